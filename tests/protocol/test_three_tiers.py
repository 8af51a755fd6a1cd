"""Networks of more than one tier of edge servers: models, ledger and noise by hand.

By hand: region `A` (trusted) has the edge servers `a1` (trusted, two devices) and `a2` (not trusted, one device);
region `B` (not trusted) has `b1` (trusted, two devices). Edge servers aggregate at slot 1, regions at slot 2, the cloud
at slot 3. F_i = |w - a_i|^2 / 2, eta = 1/2, w(0) = 0: a step halves the distance to the target.
"""

import math

import numpy as np
import pytest
import torch

from h2fdp.privacy import GradientSumMechanism, HierarchicalDp
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches
from h2fdp.protocol import Averaging, Cloud, InProcessNodes, Planner, SubnetFacts, TierFacts, UpperAggregator
from h2fdp.schedules import AggregationTimes, FixedSchedule
from tests.protocol.subnets import STREAMS, edge_server, noise
from tests.protocol.test_noise_boundaries import carries

TARGETS = {"a1": [8.0, 0.0], "a2": [16.0], "b1": [8.0, 16.0]}
TREE = {"A": (True, {"a1": True, "a2": False}), "B": (False, {"b1": True})}
# sigma = c2 q Delta sqrt(L log(1/delta)) / epsilon = q Delta sqrt(L), with L = 4, 9 and 16 releases of the tiers.
CALIBRATION = PaperCalibration(2.0, math.exp(-4), 1.0, 0, 16, tiers={(1, 2): 4, (2, 3): 9})
LEVELS = GradientSumMechanism(CALIBRATION, ClippedBatches(1.0), "tight")  # 2 eta m G = 1
RHYTHM = AggregationTimes(every=[1, 2])


def network(
    tree, sizes, private=True, levels=LEVELS, edges=None, step_size=0.5, dimension=1, aggregation_times=RHYTHM, steps=3
):
    """A cloud above the trees; `tree` maps regions to their trust and their edge servers' trust."""
    facts, tiers, aggregators = [], {}, {}
    for region, (trusted, below) in tree.items():
        guarded = frozenset(name for name, each in below.items() if each and trusted and private)
        tiers[region] = TierFacts(
            name=region, children=tuple(below), height=2, height_above=3, guarded=guarded, ends_chain=True
        )
        aggregators[region] = UpperAggregator(name=region, streams=STREAMS, guarded=guarded)
        for name, each in below.items():
            chain = ["trusted" if node else "untrusted" for node in (each, trusted)]
            places = tuple(HierarchicalDp().place(chain, passed) if private else None for passed in (1, 2))
            count = sizes[name]
            facts.append(
                SubnetFacts(
                    name,
                    places,
                    np.full(count, 10),
                    np.full(count, 0.5),
                    "poisson",
                    heights=(1, 2),
                    depth=2,
                    company=sum(sizes[other] for other in below),
                )
            )
    planner = Planner(
        STREAMS,
        tuple(facts),
        aggregation_times,
        levels if private else None,
        Averaging(),
        tiers=tiers,
        children=tuple(tree),
    )
    schedule = FixedSchedule(steps, step_size, "none", 1000, np.array([sizes[each.name] for each in facts]), 1.0)
    return Cloud(torch.zeros(dimension), planner, InProcessNodes(edges or {}), schedule, aggregators=aggregators)


def servers(tree, targets, private=True):
    found = {}
    for trusted, below in tree.values():
        for name, each in below.items():
            source = "none" if not private else "edge" if each else "device"
            node = edge_server(targets[name], source, name=name)
            found[name] = type(node)(**{**vars(node), "ends_chain": not trusted})
    return found


def small(private=True, **changes):
    sizes = {name: len(each) for name, each in TARGETS.items()}
    return network(TREE, sizes, private, edges=servers(TREE, TARGETS, private), **changes)


def test_every_tier_averages_what_the_one_below_it_sends():
    # Slot 1: a1 4, 0 -> 2; a2 8; b1 4, 8 -> 6. Slot 2: a1 5, 1 -> 3; a2 12; A 7.5; b1 7, 11 -> 9 = B.
    # Slot 3: a1 7.75, 3.75 -> 5.75; a2 11.75; A 8.75; b1 8.5, 12.5 -> 10.5 = B; the cloud 9.625.
    cloud = small(private=False)
    cloud.run_interval(cloud.plan(0))
    assert cloud.model.item() == 9.625


def test_noise_is_added_where_the_trusted_chain_ends():
    cloud = small()
    cloud.run_interval(cloud.plan(0))

    def drawn(node, kind, slot, level):
        return level * noise(node, f"noise-{kind}", 0, slot, 1).item()

    def step(model, targets):
        return sum((model + target) / 2 for target in targets) / len(targets)

    a1 = step(0, TARGETS["a1"]) - drawn("a1", "local", 1, 0.5)
    a2 = step(0, TARGETS["a2"]) - drawn("a2/1", "local", 1, 1.0)
    b1 = step(0, TARGETS["b1"]) - drawn("b1", "local", 1, 0.5)
    # a1 sends A its average as it is; A adds the noise to what it broadcasts. B may not see that of b1, which adds it.
    of_a2 = step(a2, TARGETS["a2"]) - drawn("a2/1", "local", 2, 1.5)
    region_a = (step(a1, TARGETS["a1"]) + of_a2) / 2 - drawn("A", "local", 2, 0.375)
    region_b = step(b1, TARGETS["b1"]) - drawn("b1", "local", 2, 0.75)
    of_a2 = step(region_a, TARGETS["a2"]) - drawn("a2/1", "global", 3, 2.0)
    region_a = (step(region_a, TARGETS["a1"]) + of_a2) / 2 - drawn("A", "global", 3, 0.5)
    region_b = step(region_b, TARGETS["b1"]) - drawn("b1", "global", 3, 1.0)
    assert cloud.model.item() == pytest.approx((region_a + region_b) / 2, rel=1e-5)


def test_the_ledger_says_what_every_observer_receives():
    cloud = small()
    found = {}
    for row in cloud.releases(cloud.plan(0)):
        found.setdefault((row.slot, row.edge), {})[row.observer] = (row.sensitivity, pytest.approx(row.noise_std))
    a_2, a_3 = math.sqrt(0.375**2 + 0.75**2), math.sqrt(0.5**2 + 1.0**2)  # all noise on the averages of region A
    everyone = dict.fromkeys(("tier-2", "peer", "cloud", "public"))
    # a1: A belongs to the trusted chain. A peer may be a2, which knows its own part of the noise.
    assert found[1, "a1"] == dict.fromkeys(("peer", "cloud", "public"), (0.5, 0.5))
    assert found[2, "a1"] == {"peer": (0.25, 0.375), "cloud": (0.25, a_2), "public": (0.25, a_2)}
    assert found[3, "a1"] == {"peer": (0.25, 0.5), "cloud": (0.25, a_3), "public": (0.25, a_3)}
    # a2: its device adds the noise, so a2 and A see that.
    assert found[1, "a2"] == {"edge": (1.0, 1.0)} | dict.fromkeys(everyone, (1.0, 1.0))
    upwards = {"peer": (0.5, a_2), "cloud": (0.5, a_2), "public": (0.5, a_2)}
    assert found[2, "a2"] == {"edge": (1.0, 1.5), "tier-2": (1.0, 1.5)} | upwards
    upwards = {"peer": (0.5, a_3), "cloud": (0.5, a_3), "public": (0.5, a_3)}
    assert found[3, "a2"] == {"edge": (1.0, 2.0), "tier-2": (1.0, 2.0)} | upwards
    # b1: the chain ends with it.
    for slot, level in ((1, 0.5), (2, 0.75), (3, 1.0)):
        assert found[slot, "b1"] == dict.fromkeys(everyone, (0.5, level))


SIZE = 20_000


def test_every_place_adds_the_noise_that_is_planned():
    """Without targets all that passes is noise, halved by each step after it; chi-square at an error rate of 1e-6."""
    heard = []

    class Spy(InProcessNodes):
        def call(self, method, shared, each):
            answers = super().call(method, shared, each)
            heard.append((shared.clone(), dict(each), answers))
            return answers

    still = {name: [[0.0] * SIZE] * len(each) for name, each in TARGETS.items()}
    edges = servers(TREE, still)
    sizes = {name: len(each) for name, each in TARGETS.items()}
    cloud = network(TREE, sizes, dimension=SIZE)
    cloud = cloud.above(Spy(edges))
    cloud.run_interval(cloud.plan(0))
    (_, _, first), (models, plans, second) = heard
    updates = {name: upload.update for name, upload in first.items()}
    model = {name: models[part.received] for name, part in plans.items()}
    from_a1, from_a2, from_b1 = updates["a1"], updates["a2"], updates["b1"]
    places = {
        "a1 to its devices": (from_a1, 0.5 / 2),  # A is in its chain: no more noise at slot 2
        "a2's device": (from_a2, math.sqrt((1.0 / 2) ** 2 + 1.5**2)),
        "b1 to B": (from_b1, math.sqrt((0.5 / 2) ** 2 + 0.75**2)),
        "A to its region": (-model["a1"] - (from_a1 + from_a2) / 2, 0.375),
    }
    up = {name: upload.update for name, upload in second.items()}
    of_cloud = (model["a1"] + model["b1"]) / 2 - cloud.model - (up["a1"] + up["a2"]) / 4 - up["b1"] / 2
    places["A to the cloud"] = (of_cloud * 2, 0.5)
    for place, (sample, std) in places.items():
        assert carries(sample, std), place
