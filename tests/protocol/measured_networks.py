"""Random networks in which methods, noises, turns, budgets, clipping and compression are combined; their observers.

`PYTHONPATH=. python -m tests.protocol.measured_networks 260` measures as many and prints the figures. Not measured are
Laplace noise, and buffered rounds.
"""

import math
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms.registry import audited
from h2fdp.network import Adversaries
from h2fdp.network.adversaries import Scaling, SignFlip
from tests.network.walks import walking
from tests.networks import placed
from tests.protocol.measured import (
    FREE,
    Draws,
    Neighbour,
    Performed,
    WithHead,
    charged,
    linear,
    performed,
    records,
    squared_gap,
)
from tests.protocol.test_any_tree import Views, _rhythm, _tolerance, random_chain, random_tree
from tests.protocol.test_relays import ALONE, method, relays

ROUNDING = 1e-4  # relative, of float32: models add up what all intervals moved
FAULTS = {"device_dropout": 0.15, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.1}}
FAMILIES = (
    "correlated",
    "tree",
    "own models",
    "relay",
    "compressed",
    "turns",
    "robust",
    "one message",
    "central",
    "integers",
    "mobility",
    "lying edges",
)
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
LENGTH = 1.0065  # of a record's vector in class sums
SIZE, LABELS = 24, 5  # features of images, and labels that devices have of ten: no record moves the sums of the others
BITS = [12, 16, 24]


def images(device):
    """A few of a device, of half of the labels; the test records have all of them."""
    rng = np.random.default_rng(sum(device.encode()))
    count, labels = (20, 10) if device == "test" else (2 + sum(device.encode()) % 3, LABELS)
    return rng.random((count, 1, 8, 8), np.float32), np.arange(count) % labels


def wide(device):
    """Records of so many features that little of what rounding moves is in the places of noises."""
    return records(device, 2048)


def flat(rng, trusts, most=3):
    """One tier of edge servers, at most 8 devices."""
    sizes = rng.integers(1, most + 1, int(rng.integers(1, 4))).tolist()
    subnets = (placed(f"e{at}", rng.choice(trusts), [9.0] * n, [9.0] * n) for at, n in enumerate(sizes))
    return Topology("flat", tuple(replace(each, trust=str(each.trust)) for each in subnets))


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def some(count):
    """So many networks of all families in turns: families and numbers."""
    return [(FAMILIES[number % len(FAMILIES)], number) for number in range(count)]


def drawn(family, number):
    """What is drawn for a network of a family: the network, and settings of a run there."""
    rng = np.random.default_rng(number)
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
        edges = () if network.adversaries is None else network.adversaries.edges
        network = replace(network, adversaries=Adversaries(pick(rng, ATTACKS), tuple(sorted(liars)), edges))
    return network, settings


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

    @staticmethod
    def one_message(rng, settings):
        kept = {key: settings[key] for key in ("weights", "sensitivity", "adjacency", "faults", "seed")}
        settings.clear()
        settings |= kept | ALONE | {"method": "one-shot", "intervals": 1, "local_steps": 1, "sampling_rate": 1.0}
        settings |= {"step_size": 1.0, "clip_norm": pick(rng, [LENGTH, 0.3]), "clip_scope": "record"}
        settings |= {"model": {"name": "public-features", "size": SIZE}, "loss": "cross-entropy"}
        settings |= {"data": images, "test_data": images("test")}
        if rng.random() < 0.4:
            settings["participation"] = 0.6
        if rng.random() < 0.3:
            return relays(*rng.integers(1, 4, int(rng.integers(1, 4))).tolist())
        return flat(rng, ["trusted", "untrusted", "secure-sum"])

    @staticmethod
    def central(rng, settings):
        for key in ("clip_scope", "sensitivity", "adjacency"):
            del settings[key]
        settings |= ALONE | {"method": {"extends": "hfl", "privacy": "central"}, "weights": "uniform"}
        settings |= {"clip_norm": pick(rng, [1.0, 1.0, "normalized"])}
        return flat(rng, ["trusted"])

    @staticmethod
    def integers(rng, settings):
        sums = {"colluding": int(rng.integers(2)), "dropouts": int(rng.integers(2)), "rounding": pick(rng, BITS)}
        settings |= {"method": method(**sums), "data": wide, "test_data": wide("test")}
        if rng.random() < 0.3:
            settings |= ALONE | ({"local_steps": 1} if settings["clip_scope"] == "record" else {})
            return relays(*rng.integers(1, 4, int(rng.integers(1, 4))).tolist())
        return flat(rng, ["secure-sum", "secure-sum", "trusted", "untrusted"], most=4)

    @staticmethod
    def mobility(rng, settings):
        settings.pop("participation", None)
        settings.pop("device_turns", None)
        network = flat(rng, ["trusted", "untrusted", "untrusted"])
        while len(network.subnets) == 1:  # where no device can move
            network = flat(rng, ["trusted", "untrusted", "untrusted"])
        return replace(network, mobility=walking(network.subnets, pick(rng, [0.3, 0.6]), seed=int(rng.integers(1000))))

    @staticmethod
    def lying_edges(rng, settings):
        network = random_tree(rng) if rng.random() < 0.7 else random_chain(rng)
        plain = {"secure-sum": "untrusted"}
        nodes = {
            kind: tuple(replace(each, trust=plain.get(each.trust, each.trust)) for each in getattr(network, kind))
            for kind in ("subnets", "aggregators")
        }
        settings["aggregate_every"] = _rhythm(network, rng)
        if settings["aggregate_every"] is None:
            settings["aggregations_per_interval"] = 0
        names = network.names["edges"]
        lying = rng.choice(names, int(rng.integers(1, 1 + min(2, len(names)))), replace=False).tolist()
        return replace(network, **nodes, adversaries=Adversaries(pick(rng, ATTACKS), edges=tuple(sorted(lying))))


def prepared(family, number):
    """The first network of this family and number that may run; others are refused in a sentence."""
    for attempt in range(40):
        network, settings = drawn(family, number + attempt * 7_000)
        fixed = {"batch_size": None, "clip_norm": 1.0, "epsilon": 3.0, "accountant": "rdp", "noise_key": "seed"}
        fixed |= {"calibration": "accounted", "model": "softmax", "loss": linear, "data": records}
        try:
            setup = Experiment(network, **{**fixed, "test_data": records("test"), **settings}).prepare()
        except UserError as error:
            refused = error
            continue
        # What the cloud makes of one message is no linear function of it, and costs nothing.
        method = setup.config.method
        linear_method = method.model_copy(update={"server": audited(method.server)})
        return replace(setup, config=setup.config.model_copy(update={"method": linear_method}))
    raise refused


class _Views(Views):
    """Views where nodes may lie, who know the noise that they add, and where devices may move.

    Attributes:
        rows: device (edge server, row) where it is at home -> its rows, wherever it ever is.
    """

    def __init__(self, setup):
        super().__init__(setup)
        self.central = setup.placement.clips == "update"
        lying = self.tree.adversaries
        self.liars, self.lying_edges = (set(), set()) if lying is None else map(set, (lying.devices, lying.edges))
        visits, places = self.tree.membership, self.devices
        self.rows = {device: (device,) for device in places}
        if visits is not None:
            at = [visits.rows_at(interval) for interval in range(setup.config.training.intervals)]
            homes = [places[row] for row in visits.home]
            self.rows = {
                home: tuple(places[row] for row in np.flatnonzero(visits.device == n)) for n, home in enumerate(homes)
            }
            # Device -> the edge server that it is at in each interval.
            self.stays = {
                home: [places[row[n]][0] if row[n] >= 0 else None for row in at] for n, home in enumerate(homes)
            }
            self.devices = homes

    @cached_property
    def device_of(self):
        """Row -> the device whose it is."""
        return {row: device for device, rows in self.rows.items() for row in rows}

    def sides(self, device, by_upload):
        """Observer -> what each party of it has, in kinds and nodes, and whose noise it knows.

        Args:
            by_upload: everybody has what a function of the device's noisy uploads says, so at most these.
        """
        if self.central:  # edge servers and the cloud see raw updates
            public = [([("models",)], set())]
            return [(each, public) for each in ["public", *(["peer"] if self.company(device) else [])]]
        if self.tree.membership is not None:
            return self._of_moving(device)
        outside, peers = self.outside_chain(device), list(self.peers(device))
        if by_upload:
            own = [([("uploads", self.name(device))], set())]
            return [(each, own) for each in [*outside, "cloud", "public", *(["peer"] if peers else [])]]
        # Edge servers that lie tell everybody what they have, but for those that are to keep the device's noise.
        lying = self.lying_edges - (set(self.path(device)) - set(outside.values()))
        leaked = [place for node in sorted(lying) for place in _had(node)]
        had = {each: _had(node) for each, node in outside.items()}
        found = [(observer, [([*places, *leaked], lying)]) for observer, places in had.items()]
        found += [("cloud", [([("received", "cloud"), ("models",), *leaked], lying)])]
        found += [("public", [([("models",), *leaked], lying)])]
        listened = [
            (
                [("sent down", node), ("models",), *([("received", node)] if node in known else []), *leaked],
                known | lying,
            )
            for node, known in peers
        ]
        return [*found, ("peer", listened)]

    def _of_moving(self, device):
        """All edge servers together that the device ever is at and that are not trusted; each device that it meets."""
        own = self.stays[device]
        edges = sorted({at for at in own if at is not None and not self.trusted[at]})
        found = [("edge", [([place for node in edges for place in _had(node)], set())])] if edges else []
        found += [("cloud", [([("received", "cloud"), ("models",)], set())]), ("public", [([("models",)], set())])]
        listened = []
        for other, theirs in self.stays.items():
            if other == device or not any(at and at == there for at, there in zip(own, theirs, strict=True)):
                continue
            when = {at: {k for k, there in enumerate(theirs) if there == at} for at in {*theirs} - {None}}
            heard = [("sent down", at, intervals) for at, intervals in when.items()]
            listened.append(([*heard, ("models",)], {self.name(other)}))
        return [*found, ("peer", listened)]


def _had(node):
    """What an edge server has, in kinds and nodes."""
    return [("sent down", node), ("received", node), ("models",)]


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
    def views(self):
        """Who sees what."""
        return _Views(self.setup)

    @cached_property
    def learned(self):
        """(device, observer, interval) -> mu^2 of all that an observer has of a device's neighbours until then."""
        views, found = self.views, {}
        for device, other in self.others.items():
            assert (other.ends, other.draws.owners) == (self.run.ends, self.run.draws.owners), "a record says who draws"
            colluders = views.colluders(device) | views.liars
            for observer, sides in views.sides(device, self._by_upload):
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
        allowed = [charged(rows, self.views.device_of) for rows in kept]
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
        whole = all(stage.keeps_sums for stage in self.setup.config.messages.devices.stages)
        robust = self.setup.blueprint.aggregation.at("device").visible == "each"
        return not whole or (robust and not any(subnet.trusted for subnet in self.setup.topology.subnets))

    def _distance(self, other, interval, places, known):
        vectors = [vector for place in places for vector in self.run.until(interval, *place)]
        others = [vector for place in places for vector in other.until(interval, *place)]
        assert len(vectors) == len(others), "what passes when does not hang on a record"
        return squared_gap(self.run, other, vectors, others, known) if vectors else 0.0


def measured(family, number, monkeypatch, **planted):
    setup = prepared(family, number)
    free = range((SIZE + 1) * LABELS, 2 * (SIZE + 1) * LABELS) if family == "one message" else FREE
    found = Measured(family, setup, performed(setup, monkeypatch, draws=Draws(**planted, free=free)))
    views, to = found.views, -1.0 if setup.config.privacy.adjacency == "replace" else 0.0
    for device in views.devices:
        if views.name(device) in views.liars:
            continue  # it has no account
        changed = Neighbour(views.rows[device], to, views.central)
        found.others[device] = performed(setup, monkeypatch, changed, draws=Draws(**planted, free=free))
    return found


def figures(count):
    """What `count` networks show, in lines."""
    largest, ratios, squares, values = 0.0, Counter(), 0.0, 0
    tight, total, above = Counter(), Counter(), 0
    for each in some(count):
        with pytest.MonkeyPatch.context() as patch:
            found = measured(*each, patch)
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
