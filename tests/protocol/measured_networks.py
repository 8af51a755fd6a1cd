"""Random networks in which methods, noises, turns, budgets, clipping and compression are combined; their observers.

`PYTHONPATH=. python -m tests.protocol.measured_networks 210` measures as many and prints the figures.
"""

import math
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Adversaries
from h2fdp.network.adversaries import Scaling, SignFlip
from tests.networks import placed
from tests.protocol.measured import Draws, Performed, WithHead, charged, linear, performed, records, squared_gap
from tests.protocol.test_any_tree import Views, _rhythm, _tolerance, random_tree
from tests.protocol.test_relays import ALONE, method, relays

ROUNDING = 1e-4  # relative, of float32: models add up what all intervals moved
FAULTS = {"device_dropout": 0.15, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.1}}
FAMILIES = ("correlated", "tree", "own models", "relay", "compressed", "turns", "robust")
OWN = [{"name": "mean-regularised", "penalty": 0.4}, {"name": "ditto", "penalty": 0.4}, "personal-head"]
RULES = [
    "median",
    {"name": "trimmed-mean", "trim": 0.2},
    {"name": "trimmed-mean", "trim": 0.4},
    {"name": "centred-clipping", "radius": 0.2, "iterations": 2},
    "krum",
]
ATTACKS = [SignFlip(), Scaling(factor=-5.0)]
COMPRESSED = [{"top_k": 0.1}, {"top_k": 0.1, "error_feedback": True}, {"quantise": 8}, {"rand_k": 0.2}]
KINDS = ["banded-inverse", "banded"]


def flat(rng, trusts, most=3):
    """One tier of edge servers, at most 8 devices."""
    sizes = rng.integers(1, most + 1, int(rng.integers(1, 4))).tolist()
    subnets = (placed(f"e{at}", rng.choice(trusts), [9.0] * n, [9.0] * n) for at, n in enumerate(sizes))
    return Topology("flat", tuple(replace(each, trust=str(each.trust)) for each in subnets))


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def drawn(number):
    """The family of a network, and what is drawn for it: the network, and settings of a run there."""
    rng, family = np.random.default_rng(number), FAMILIES[number % len(FAMILIES)]
    settings = {
        "intervals": 3,
        "local_steps": 4,
        "aggregate_every": pick(rng, [2, 4]),
        "clip_scope": pick(rng, ["batch", "batch", "record"]),
        "weights": pick(rng, ["uniform", "by-size"]),
        "sensitivity": pick(rng, ["tight", "tight", "paper"]),
        "momentum": pick(rng, [0.0, 0.0, 0.0, 0.5]),
        "adjacency": pick(rng, ["null-record", "null-record", "replace"]),
        "sampling_rate": pick(rng, [1.0, 1.0, 1.0, 0.6]),
        "budget_decay": pick(rng, ["none", "linear", "sqrt"]),
        "faults": FAULTS if rng.random() < 0.25 else {},
        "seed": int(rng.integers(1000)),
    }
    if settings["clip_scope"] == "record" and rng.random() < 0.7:
        # In a sum of several steps a record may also turn the gradients of others, which are constant here.
        settings["aggregate_every"] = 1
    if rng.random() < 0.5 or family == "turns":
        settings["device_turns"] = int(rng.integers(2, 4))
    elif rng.random() < 0.4:
        settings["participation"] = 0.6
    network = getattr(_Drawn, family.replace(" ", "_"))(rng, settings)
    clocks = np.random.default_rng([number, 5])  # of its own, so that all other draws stay
    if family in ("relay", "turns") and clocks.random() < 0.5:
        settings |= {"correlated": {"kind": pick(clocks, KINDS), "bands": int(clocks.integers(2, 5))}}
        settings["sampling_rate"] = 1.0
    if family in ("own models", "correlated", "turns") and clocks.random() < 0.3:
        settings["method"] = {"extends": "h2fdp", **settings.get("method", {}), "server": "subnet-models"}
    names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
    if rng.random() < 0.2 and len(names) > 2:
        liars = rng.choice(names, int(rng.integers(1, 3)), replace=False).tolist()
        network = replace(network, adversaries=Adversaries(pick(rng, ATTACKS), tuple(sorted(liars))))
    return family, network, settings


class _Drawn:
    """Network -> settings of a family, from a generator and the settings that all families have."""

    @staticmethod
    def correlated(rng, settings):
        kind, bands = pick(rng, KINDS), int(rng.integers(2, 5))
        settings |= {"correlated": {"kind": kind, "bands": bands}, "sampling_rate": 1.0, "intervals": 4}
        if rng.random() < 0.3:
            settings["compression"] = {"device": pick(rng, COMPRESSED)}
            return flat(rng, ["untrusted"])
        return flat(rng, ["trusted", "trusted", "untrusted"])

    @staticmethod
    def tree(rng, settings):
        network = random_tree(rng)
        settings["aggregate_every"] = _rhythm(network, rng)
        if settings["aggregate_every"] is None:
            settings["aggregations_per_interval"] = 0
        privacy = {"name": "hierarchical", "secure_sum": _tolerance(network, rng)}
        settings["method"] = {"extends": "h2fdp", "privacy": privacy}
        return replace(network, cloud_trust=pick(rng, ["untrusted", "secure-sum"]))

    @staticmethod
    def own_models(rng, settings):
        objective, privacy = pick(rng, OWN), {"name": "local", "noise": "steps"}
        if rng.random() < 0.5:
            privacy = {"name": "dp-sgd"}
        settings["method"] = {"extends": "h2fdp", "objective": objective, "privacy": privacy}
        settings |= {"budget_decay": "none", "clip_scope": "record"}
        if objective is OWN[1]:
            settings |= {"momentum": 0.0, "aggregate_every": 2}
        if objective == "personal-head":
            settings["model"] = WithHead
        return flat(rng, ["untrusted", "trusted"])

    @staticmethod
    def relay(rng, settings):
        sizes = rng.integers(1, 4, int(rng.integers(1, 4))).tolist()
        colluding, dropouts = int(rng.integers(2)), int(rng.integers(3))
        settings |= ALONE | {"method": method(colluding=colluding, dropouts=dropouts)}
        settings["local_steps"] = 1 if settings["clip_scope"] == "record" else 4
        return relays(*sizes, deep=bool(rng.random() < 0.3))

    @staticmethod
    def compressed(rng, settings):
        settings["compression"] = {"device": pick(rng, COMPRESSED)}
        if rng.random() < 0.5:
            settings["method"] = {"extends": "h2fdp", "privacy": "local"}
        return flat(rng, ["untrusted"])

    @staticmethod
    def robust(rng, settings):
        settings |= {"method": {"extends": "h2fdp", "aggregation": {"device": pick(rng, RULES)}}, "weights": "uniform"}
        return flat(rng, [pick(rng, ["trusted", "trusted", "untrusted"])], most=5)

    @staticmethod
    def turns(rng, settings):
        return flat(rng, ["trusted", "untrusted", "secure-sum"], most=4)


def prepared(number):
    """The first network of this number that may run; others are refused in a sentence."""
    for attempt in range(40):
        family, network, settings = drawn(number + attempt * 7_000)
        fixed = {"batch_size": None, "clip_norm": 1.0, "epsilon": 3.0, "accountant": "rdp", "noise_key": "seed"}
        fixed |= {"calibration": "accounted", "model": "softmax", "loss": linear, "data": records}
        try:
            setup = Experiment(network, **{**fixed, "test_data": records("test"), **settings}).prepare()
        except UserError as error:
            refused = error
            continue
        return family, setup
    raise refused


class _Views(Views):
    """Views where devices may lie, who know the noise that they add."""

    @property
    def liars(self):
        """Their names."""
        return set(() if self.tree.adversaries is None else self.tree.adversaries.devices)


@dataclass
class Measured:
    """A network, its run, and those of all neighbours.

    Attributes:
        others: device -> the run in which one of its records is another.
    """

    family: str
    setup: object
    run: Performed
    others: dict = field(default_factory=dict)

    @cached_property
    def learned(self):
        """(device, observer, interval) -> mu^2 of all that an observer has of a device's neighbours until then."""
        views, found = _Views(self.setup), {}
        for device, other in self.others.items():
            assert (other.ends, other.draws.owners) == (self.run.ends, self.run.draws.owners), "a record says who draws"
            colluders = views.colluders(device) | views.liars
            for observer, sides in _sides(views, device, self._by_upload):
                for interval in range(len(self.run.ends)):
                    each = (self._distance(other, interval, places, known | colluders) for places, known in sides)
                    found[device, observer, interval] = max(each, default=0.0)
        return found

    @property
    def rows(self):
        """Of the ledger."""
        return self.run.heard.rows

    def charged(self, left_out=None):
        """The same for the ledger: the sum of mu^2 of all rows until then, but for the one that is left out."""
        ends = [end["rows", None] for end in self.run.ends]
        kept = [[row for row in self.rows[:end] if row is not left_out] for end in ends]
        allowed = [charged(rows) for rows in kept]
        return {key: allowed[key[2]].get(key[:2], 0.0) for key in self.learned}

    def above(self, left_out=None):
        """Where more is learned than is charged."""
        allowed = self.charged(left_out)
        return [key for key, learned in self.learned.items() if learned > allowed[key] * (1 + ROUNDING) ** 2]

    def ratios(self):
        """Distances by those of the ledger, where there are any."""
        allowed = self.charged()
        return {key: math.sqrt(learned / allowed[key]) for key, learned in self.learned.items() if allowed[key]}

    @property
    def _by_upload(self):
        """Whether what is made of devices' noisy uploads is not linear in them."""
        whole = all(stage.keeps_sums for stage in self.setup.config.compression.of_devices)
        robust = self.setup.blueprint.aggregation.at("device").visible == "each"
        return not whole or (robust and not any(subnet.trusted for subnet in self.setup.topology.subnets))

    def _distance(self, other, interval, places, known):
        vectors = [vector for place in places for vector in self.run.until(interval, *place)]
        others = [vector for place in places for vector in other.until(interval, *place)]
        assert len(vectors) == len(others), "what passes when does not hang on a record"
        return squared_gap(self.run, other, vectors, others, known) if vectors else 0.0


def _sides(views, device, by_upload):
    """Observer -> what each party of it has, in kinds and nodes, and whose noise it knows.

    Args:
        by_upload: everybody has what a function of the device's noisy uploads says, so at most these.
    """
    outside, peers = views.outside_chain(device), list(views.peers(device))
    if by_upload:
        own = [([("uploads", views.name(device))], set())]
        return [(each, own) for each in [*outside, "cloud", "public", *(["peer"] if peers else [])]]
    both = [("sent down",), ("received",)]
    had = {each: [(*place, node) for place in both] + [("models",)] for each, node in [*outside.items()]}
    found = [(observer, [(places, set())]) for observer, places in had.items()]
    found += [("cloud", [([("received", "cloud"), ("models",)], set())]), ("public", [([("models",)], set())])]
    listened = [
        ([("sent down", node), ("models",), *([("received", node)] if node in known else [])], known)
        for node, known in peers
    ]
    return [*found, ("peer", listened)]


def measured(number, monkeypatch, **planted):
    family, setup = prepared(number)
    found = Measured(family, setup, performed(setup, monkeypatch, draws=Draws(**planted)))
    to = -1.0 if setup.config.privacy.adjacency == "replace" else 0.0
    views = _Views(setup)
    for device in views.devices:
        if views.name(device) in views.liars:
            continue  # it has no account
        found.others[device] = performed(setup, monkeypatch, device, to, draws=Draws(**planted))
    return found


def figures(count):
    """What `count` networks show, in lines."""
    largest, ratios, squares, values = 0.0, Counter(), 0.0, 0
    tight, total, above = Counter(), Counter(), 0
    for number in range(count):
        with pytest.MonkeyPatch.context() as patch:
            found = measured(number, patch)
        above += len(found.above())
        own = found.ratios().values()
        ratios[found.family] += len(own)
        tight[found.family] += max(own, default=0.0) > 0.99
        total[found.family] += 1
        largest = max(largest, *own)
        squares, values = squares + found.run.draws.squares, values + found.run.draws.values
    variance, error = squares / values, largest / math.sqrt(2 * values)
    yield f"{count} networks, {sum(ratios.values())} distances, {above} above the ledger"
    yield f"largest distance, in units of what the ledger has: {largest:.6f}"
    yield f"by the measured noise {largest / math.sqrt(variance):.5f}, with a standard error of {error:.5f}"
    yield f"({values} values of noise, of variance {variance:.5f})"
    for family, many in total.items():
        yield f"{family}: {many} networks, {ratios[family]} distances; {tight[family]} networks reach 0.99 of it"


if __name__ == "__main__":
    for line in figures(int(sys.argv[1])):
        print(line)
