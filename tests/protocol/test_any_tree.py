"""What every observer of any network learns, against the ledger: random trees of one to four tiers, overheard.

Trees have mixed trust and uneven heights; edge servers with devices may hold secure sums, with tolerances. The run is
prepared as any run is; see `tests.protocol.overhearing`.
"""

from dataclasses import replace
from itertools import takewhile

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from h2fdp import Experiment, Topology
from h2fdp.network import Aggregator
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.run.preview import privacy_report
from tests.networks import placed
from tests.protocol.overhearing import devices_of, first_with, overheard, squared_distance
from tests.protocol.test_noise_boundaries import carries

TREES, CHAINS, OF_DEVICES = 100, 20, 40
PLD, DELTA = ACCOUNTANTS["pld"], 1e-5
FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}
METHODS = ["h2fdp", "h2fdp", "h2fdp", "hfl-dp", {"extends": "h2fdp", "privacy": "output"}]
RHYTHMS = [1, 2, [1, 2], [1, 3], [2, 4], [1, 2, 4], [1, 1, 2], None]


def random_tree(rng):
    """One to four tiers, at most 8 devices."""
    subnets, aggregators = [], []
    trust = rng.choice([0.3, 0.6, 0.9])

    def grow(parent, tier, most):
        for _ in range(int(rng.integers(1, 4 if tier == 1 else 3))):
            name = f"n{len(subnets) + len(aggregators)}"
            trusted = bool(rng.random() < trust)
            if tier < most and rng.random() < 0.7:
                level = "secure-sum" if not trusted and rng.random() < 0.8 else trusted
                aggregators.append(Aggregator(name, level, parent=parent))
                grow(name, tier + 1, most)
            else:
                size = int(rng.integers(1, 5))
                secure = not trusted and rng.random() < 0.5
                level = "secure-sum" if secure else trusted
                subnets.append(placed(name, level, [9.0] * size, [9.0] * size, parent=parent))

    while not subnets or sum(each.size for each in subnets) > 8:
        subnets.clear(), aggregators.clear()
        grow(None, 1, int(rng.integers(1, 5)))
    return Topology("tree", tuple(subnets), aggregators=tuple(aggregators))


def random_chain(rng):
    """Trusted edge servers one above another, over an untrusted one and a trusted one: what arrives in an interval is
    raw, or noisy already, or some of both."""
    uppers = [f"upper-{tier}" for tier in range(int(rng.integers(1, 4)))]
    aggregators = [Aggregator(name, True, parent=parent) for name, parent in zip(uppers, [None, *uppers], strict=False)]
    sizes = rng.integers(1, 3, 2)
    lowest = [
        placed(name, name == "t", [9.0] * n, [9.0] * n, parent=uppers[-1]) for name, n in zip("ut", sizes, strict=True)
    ]
    return Topology("chain", tuple(lowest), aggregators=tuple(aggregators))


def records(device):
    count = 1 + sum(device.encode()) % 3  # uneven
    return np.zeros((count, 2), np.float32), np.arange(count) % 2


def prepared(tree, rng=None, **settings):
    """A run on this network, with settings that are drawn where a generator is given."""
    drawn = {} if rng is None else drawn_settings(tree, rng)
    if "cloud_trust" in drawn and "method" not in settings:
        tree = replace(tree, cloud_trust=drawn["cloud_trust"])
    drawn.pop("cloud_trust", None)
    fixed = {"intervals": 2, "local_steps": 5, "batch_size": None, "sampling_rate": 1.0, "clip_norm": 1.0}
    return Experiment(tree, records, test_data=records("test"), **{**fixed, **drawn, **settings}).prepare()


def drawn_settings(tree, rng):
    drawn = {
        "method": METHODS[int(rng.integers(len(METHODS)))],
        "weights": str(rng.choice(["uniform", "by-size"])),
        "sensitivity": str(rng.choice(["tight", "paper"])),
        "participation": float(rng.choice([1.0, 0.6])),
        "faults": FAULTS if rng.random() < 0.4 else {},
        "aggregate_every": _rhythm(tree, rng),
        "seed": int(rng.integers(1000)),
    }
    if drawn["aggregate_every"] is None:
        drawn["aggregations_per_interval"] = 0
    if drawn["method"] == "h2fdp":
        sums = _tolerance(tree, rng)
        drawn["cloud_trust"] = "secure-sum" if rng.random() < 0.5 else "untrusted"
        drawn["method"] = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": sums}}
    return drawn


def _tolerance(tree, rng):
    """What the smallest secure sum withstands at 60 % participation."""
    sizes = [max(1, round(0.6 * each.size)) for each in tree.subnets if each.trust == "secure-sum"]
    spare = min(sizes, default=1) - 1
    colluding = int(rng.integers(spare + 1))
    return {"colluding": colluding, "dropouts": int(rng.integers(spare - colluding + 1))}


def _rhythm(tree, rng):
    fitting = [each for each in RHYTHMS if not isinstance(each, list) or len(each) <= tree.depth]
    return fitting[int(rng.integers(len(fitting)))]


@pytest.fixture(scope="module", params=range(TREES + CHAINS + OF_DEVICES))
def run(request):
    """A prepared run, and all that passed in its two intervals."""
    rng = np.random.default_rng(request.param)
    if request.param < TREES:
        setup = prepared(random_tree(rng), rng)
    elif request.param < TREES + CHAINS:
        setup = prepared(random_chain(rng), rng, faults=FAULTS, method="h2fdp")
    else:
        tree = replace(random_tree(rng), cloud_trust=str(rng.choice(["secure-sum", "untrusted"])))
        privacy = {"name": "devices", "noise_multiplier": 1.0, "secure_sum": _tolerance(tree, rng)}
        setup = prepared(tree, rng, method={"extends": "h2fdp", "privacy": privacy}, weights="uniform")
    with pytest.MonkeyPatch.context() as patch:
        return setup, overheard(setup, patch, intervals=2)


class Views:
    """Who sees what of a network, by its definition (experiments/proofs/), from the tree and its trust alone."""

    def __init__(self, setup):
        self.tree = setup.topology
        guarded = setup.config.method.privacy.name in ("hierarchical", "devices")
        self.segments, self.heights = (
            setup.aggregation_times.segments(5),
            setup.aggregation_times.heights(5, self.tree.depth),
        )
        servers = {each.name: each for each in self.tree.servers()}
        self.trusted = {name: each.trusted and guarded for name, each in servers.items()}
        self.devices = [(subnet.name, row) for subnet in self.tree.subnets for row in range(subnet.size)]
        sums = {each.name for each in self.tree.subnets if each.trust in ("secure-sum", "relay") and guarded}
        tolerance = setup.config.method.privacy.secure_sum if guarded else None
        self.colluding = dict.fromkeys(sums, 0 if tolerance is None else tolerance.colluding)
        self.cloud_sums = guarded and self.tree.cloud_trust == "secure-sum"

    def path(self, device):
        return self.tree.path(device[0])

    def name(self, device):
        return self.tree.subnets[self.tree.below(device[0])[0]].device_name(device[1])

    def outside_chain(self, device):
        """Observer -> node, of the edge servers above a device that are not in its trusted chain."""
        chain = len(list(takewhile(self.trusted.__getitem__, self.path(device))))
        outside = self.path(device)[chain:]
        return {"edge" if (at := self.tree.height(name)) == 1 else f"tier-{at}": name for name in outside}

    def aggregator(self, device, slot):
        """The node that averages what a device uploads at a slot and broadcasts the result; where that is the cloud,
        the one below it."""
        heights = {}
        for interval in range(2):
            ends = np.cumsum(self.segments) + interval * sum(self.segments)
            heights |= dict(zip(ends.tolist(), self.heights, strict=True))
        return [node for node in self.path(device) if self.tree.height(node) <= heights[slot]][-1]

    def company(self, device):
        """The other devices that receive its broadcasts, or may know noise in them: below the highest edge server above
        it, and all where the cloud holds a secure sum."""
        highest = self.path(device)[-1]
        others = [other for other in self.devices if other != device]
        return [other for other in others if self.cloud_sums or self.path(other)[-1] == highest]

    def other_branches(self, device):
        """Edge servers below that highest one, which are not above the device: the highest of each branch; also those
        of other branches of the cloud where it holds a secure sum."""
        path = self.path(device)
        nodes = (None, *path) if self.cloud_sums else path
        return [child for node in nodes for child in self.tree.children(node) if child not in path]

    def is_global(self, slot):
        return slot % sum(self.segments) == 0

    def below(self, node):
        """Names of all nodes and devices in a branch, its root too."""
        found = {each.name for each in self.tree.servers() if node in self.tree.path(each.name)}
        return found | {self.name(each) for each in self.devices if node in self.path(each)}

    def colluders(self, device, active=None):
        """Names of devices that tell observers of this one their noise: in each secure sum the first few others.

        Args:
            active: those whose noise is in a vector; None for all.
        """
        found = set()
        for subnet, count in self.colluding.items():
            others = [self.name(each) for each in self.devices if each[0] == subnet and each != device]
            found |= set([each for each in others if active is None or each in active][:count])
        return found

    def peers(self, device):
        """Of each other party that receives the device's broadcasts: the node whose vectors it has besides, if it is
        one, and who drew the noises that it knows."""
        yield from ((other[0], {self.name(other)}) for other in self.company(device))
        yield from ((branch, self.below(branch)) for branch in self.other_branches(device))


def test_no_observer_learns_more_than_its_rows_say(run):
    """Gaussian mechanisms compose by adding mu^2: the rows of an observer must add up to at least what it has. Then its
    epsilon, which is known exactly where every record is in every batch, is at most that of its account."""
    setup, heard = run
    views, allowed, worst = Views(setup), {}, {}
    for row in heard.rows:
        for device in devices_of(row):
            key = device, row.observer
            allowed[key] = allowed.get(key, 0.0) + (row.sensitivity / row.noise_std) ** 2
    for device in {whose for whose, _ in heard.signals.values()}:
        has = {observer: [(heard.had_by(node), set())] for observer, node in views.outside_chain(device).items()}
        has["cloud"] = [([*heard.received.get("cloud", ()), *heard.models], set())]
        has["public"] = [(heard.models, set())]
        has["peer"] = []
        for node, known in views.peers(device):
            listens = [*heard.broadcasts.get(node, ()), *heard.models]
            has["peer"].append((heard.had_by(node) if node in known else listens, known))
        colluders = views.colluders(device)
        for observer, sides in has.items():
            for vectors, known in sides:
                learned = squared_distance(heard, vectors, device, known | colluders)
                assert learned <= allowed.get((device, observer), 0.0) * (1 + 1e-5) + 1e-12, (device, observer)
                worst[observer] = max(learned, worst.get(observer, 0.0))
    accounts = setup.empty_accounts()
    accounts.add(heard.rows)
    for observer, learned in worst.items():
        upper = max((PLD.epsilon(each.composition, DELTA) for each in accounts.classes(observer)), default=0.0)
        assert epsilon_of_gaussian(learned**0.5) <= upper * (1 + 1e-5), observer


def epsilon_of_gaussian(mu):
    """The least epsilon of a Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon):
        further = stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + further) - DELTA

    return 0.0 if mu == 0 or excess(0.0) <= 0 else optimize.brentq(excess, 0, mu**2 / 2 + 10 * mu)


def test_the_accounts_of_every_observer_are_in_order(run):
    """In batches that not every record is in."""
    tree, rng = run[0].topology, np.random.default_rng(run[0].config.seed)
    setup = prepared(tree, rng, sampling_rate=0.3, epsilon=3.0)
    report = privacy_report(setup)
    for numbers in report["observers"].values():
        if numbers["rdp"] is not None:
            assert numbers["pld"] <= numbers["rdp"] * (1 + 1e-6)


def test_every_row_is_a_vector_that_left_and_nothing_left_without_a_row(run):
    """Sensitivity and noise of each row, read off vectors that its observer received, update by update."""
    setup, heard = run
    views, expected, found = Views(setup), {}, {}
    for row in heard.rows:
        for device in devices_of(row):
            key = device, row.slot, row.observer
            assert key not in found
            found[key] = row.sensitivity, row.noise_std
    for place, (device, slot) in heard.signals.items():
        path, aggregator = views.path(device), views.aggregator(device, slot)
        summed = views.cloud_sums and views.is_global(slot)
        inside = set().union(*map(views.below, views.tree.children(None))) if summed else views.below(aggregator)
        # Of the node that broadcasts, or the last below the cloud unless that holds a secure sum.
        average = first_with(place, heard.models if summed else heard.sent[aggregator])
        active = {node for at, (node, when) in heard.noises.items() if when == slot and average[at]}
        inside -= views.colluders(device, active)
        moved, noise = heard.made_of(average, place, inside)
        for observer, node in [*views.outside_chain(device).items(), ("cloud", "cloud"), ("public", None)]:
            seen = first_with(place, heard.received.get(node, heard.models))
            values = heard.made_of(seen, place, inside)
            if node not in path or path.index(node) > path.index(aggregator):  # in other units
                np.testing.assert_allclose(values[0] / values[1], moved / noise)
                values = moved, noise
            expected[device, slot, observer] = values
        if views.company(device):
            known = max((heard.made_of(average, place, inside & each)[1] for _, each in views.peers(device)), default=0)
            expected[device, slot, "peer"] = moved, np.sqrt(max(noise**2 - known**2, 0.0))
    assert found.keys() == expected.keys()
    cut = 1e-6 if setup.placement.protects == "device" else 1e-9  # whole uploads are cut to a little less than the norm
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=cut, err_msg=str(key))


# north (trusted) - middle (trusted) - a (trusted, 2 devices), b (not trusted, 1 device); north - c (trusted, 1 device);
# south (not trusted) - d (trusted, 2 devices).
CHAIN = Topology(
    "chain of three",
    tuple(
        placed(name, name != "b", [9.0] * size, [9.0] * size, parent=parent)
        for name, size, parent in (("a", 2, "middle"), ("b", 1, "middle"), ("c", 1, "north"), ("d", 2, "south"))
    ),
    aggregators=(
        Aggregator("north", True),
        Aggregator("middle", True, parent="north"),
        Aggregator("south", False),
    ),
)


@pytest.mark.parametrize("height", [1, 2, 3])
def test_a_chain_of_three_adds_the_noise_of_its_rows_and_no_other(monkeypatch, height):
    """Aggregations of this height at every slot; devices that do not move, so that all that passes is noise. Chi-square
    at an error rate of 1e-6 for each place."""
    setup = prepared(CHAIN, aggregate_every=[1] * height, intervals=1, local_steps=3)
    heard = overheard(setup, monkeypatch, silent=20_000)
    std = {(row.slot, row.edge, row.observer): row.noise_std for row in heard.rows}
    places = {
        f"a device of b, slot {slot + 1}": (heard.received["b"][slot], std[slot + 1, "b", "edge"]) for slot in (0, 1, 2)
    }
    for subnet in ("a", "c", "d"):
        node = Views(setup).aggregator((subnet, 0), slot=1)
        models = heard.broadcasts[node]
        for slot in (0, 1):
            places[f"{node}, slot {slot + 1}"] = models[slot] - models[slot + 1], std[slot + 1, subnet, "public"]
        if CHAIN.path(node) == (node,):  # to the cloud
            places[f"{node}, slot 3"] = heard.sent[node][0] - models[0] + models[2], std[3, subnet, "cloud"]
    if height > 1:  # the chain ends with d, and goes on from a and c
        places["d to south, slot 1"] = heard.sent["d"][0], std[1, "d", "tier-2"]
    for name in {1: "", 2: "a", 3: "ac"}[height]:
        assert not any(vector.any() for vector in heard.sent[name])
    assert len(places) == {1: 9, 2: 11, 3: 10}[height]
    for place, (vector, level) in places.items():
        assert carries(torch.from_numpy(vector), level), place
