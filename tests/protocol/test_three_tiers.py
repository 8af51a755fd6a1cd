"""Networks of more than one tier of edge servers: models and ledger by hand, and what each observer really learns.

By hand: region `A` (trusted) has the edge servers `a1` (trusted, two devices) and `a2` (not trusted, one device);
region `B` (not trusted) has `b1` (trusted, two devices). Edge servers aggregate at slot 1, regions at slot 2, the cloud
at slot 3. F_i = |w - a_i|^2 / 2, eta = 1/2, w(0) = 0: a step halves the distance to the target.
"""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch

import h2fdp.privacy.mechanisms.device_side
import h2fdp.protocol.aggregator
import h2fdp.protocol.edge_server
import h2fdp.protocol.tiers
from h2fdp.privacy import TRUST_MODELS, GradientSums, PaperCalibration
from h2fdp.protocol import Cloud, LocalTeam, Planner, SubnetFacts, TierFacts, UpperAggregator
from h2fdp.schedules import FixedSchedule, Rhythm
from h2fdp.training.work import PLAIN_TERMS, Trained
from tests.protocol.subnets import STREAMS, device_group, edge_server, noise
from tests.protocol.test_noise_boundaries import accepts

TARGETS = {"a1": [8.0, 0.0], "a2": [16.0], "b1": [8.0, 16.0]}
TREE = {"A": (True, {"a1": True, "a2": False}), "B": (False, {"b1": True})}
# sigma = c2 q Delta sqrt(L log(1/delta)) / epsilon = q Delta sqrt(L), with L = 4, 9 and 16 releases of the tiers.
CALIBRATION = PaperCalibration(2.0, math.exp(-4), 1.0, 0, 16, tiers={(1, 2): 4, (2, 3): 9})
LEVELS = GradientSums(CALIBRATION, clip_norm=1.0, sensitivity="tight")  # 2 eta m G = 1
RHYTHM = Rhythm(every=[1, 2])


def network(tree, sizes, private=True, levels=LEVELS, edges=None, step_size=0.5, dimension=1, rhythm=RHYTHM, steps=3):
    """A cloud above the trees; `tree` maps regions to their trust and their edge servers' trust."""
    facts, tiers, aggregators = [], {}, {}
    for region, (trusted, below) in tree.items():
        guarded = frozenset(name for name, each in below.items() if each and trusted and private)
        tiers[region] = TierFacts(
            name=region, children=tuple(below), height=2, height_above=3, guarded=guarded, ends_chain=True
        )
        aggregators[region] = UpperAggregator(name=region, streams=STREAMS, guarded=guarded)
        for name, each in below.items():
            source = "none" if not private else "edge" if each else "device"
            chain = (1 + trusted) if each else 0
            count = sizes[name]
            facts.append(
                SubnetFacts(
                    name,
                    TRUST_MODELS[source],
                    np.full(count, 10),
                    np.full(count, 0.5),
                    "poisson",
                    heights=(1, 2),
                    depth=2,
                    trusted=chain,
                    company=sum(sizes[other] for other in below),
                )
            )
    planner = Planner(
        STREAMS,
        tuple(facts),
        rhythm,
        levels if private else None,
        "uniform",
        tiers=tiers,
        children=tuple(tree),
    )
    schedule = FixedSchedule(steps, step_size, "none", np.array([sizes[each.name] for each in facts]), 1.0)
    return Cloud(torch.zeros(dimension), planner, LocalTeam(edges or {}), schedule, aggregators=aggregators)


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


@pytest.mark.parametrize(("factor", "accepted"), [(1, True), (2 / 3, False), (3 / 2, False)])
def test_every_place_adds_the_noise_that_is_planned(factor, accepted):
    """Without targets all that passes is noise, halved by each step after it; chi-square at an error rate of 1e-6."""
    heard = []

    class Spy(LocalTeam):
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
        assert accepts(sample, std * factor) is accepted, place


# What each observer really learns, from the protocol itself: every device's updates and every noise vector get a
# coordinate of their own, so that whatever passes shows what it is made of. An observer's vectors are then linear in
# signals and noises: exactly Gaussian, with an exact distance between neighbours.


class Signals:
    """Engine whose update of device j from a given model is one more in a coordinate of j and the stage."""

    coordinates: ClassVar[dict] = {}

    def __init__(self, name):
        self.name = name

    def train(self, starts, records, rows, batches, step_size, terms=PLAIN_TERMS):
        updates = torch.zeros_like(starts)
        for position, row in enumerate(rows):
            place = len(Signals.coordinates)
            Signals.coordinates[place] = (self.name, int(row))
            updates[position, place] = 1.0
        return Trained(updates)


def random_tree(rng):
    tree, sizes = {}, {}
    for region in range(int(rng.integers(1, 4))):
        below = {f"r{region}e{edge}": bool(rng.random() < 0.5) for edge in range(int(rng.integers(1, 4)))}
        tree[f"r{region}"] = (bool(rng.random() < 0.5), below)
        sizes |= {name: int(rng.integers(1, 4)) for name in below}
    return tree, sizes


def overheard(tree, sizes, monkeypatch, rhythm, steps):
    """All that passes in one interval; coordinate -> who drew it as noise."""
    dimension = 400
    Signals.coordinates, drawn = {}, {}

    def mark(owner):
        place = dimension // 2 + len(drawn)
        drawn[place] = owner
        return place

    def add(vector, level, stream, out=None):
        found = vector.clone() if out is None else vector
        found[mark(stream)] += level
        return found if out is None else out.copy_(found)

    lent = type(STREAMS).lent
    # Where noise would be drawn, its owner's name is handed on in the place of a stream.
    named = lambda self, node, purpose, *rest: node if "noise" in purpose else lent(self, node, purpose, *rest)  # noqa: E731
    monkeypatch.setattr(type(STREAMS), "lent", named)
    monkeypatch.setattr(h2fdp.protocol.aggregator, "add_gaussian_noise", add)
    monkeypatch.setattr(h2fdp.privacy.mechanisms.device_side, "add_gaussian_noise", add)
    passed = []

    def listening(intervals, perform):
        def heard(calls):
            answers = perform(calls)
            for name, call in calls.items():
                passed.append((name, call.model.clone(), {child: _vectors(up) for child, up in answers[name].items()}))
            return answers

        return original(intervals, heard)

    original = h2fdp.protocol.aggregator.in_step
    for module in (h2fdp.protocol.edge_server, h2fdp.protocol.tiers):
        monkeypatch.setattr(module, "in_step", listening)
    edges = servers(tree, {name: [[0.0]] * count for name, count in sizes.items()})
    for name, node in edges.items():
        group = device_group([[0.0]] * sizes[name], node.trust_model.noise_from, name=name)
        group = type(group)(**{**vars(group), "engine": Signals(name)})
        edges[name] = type(node)(**{**vars(node), "groups": LocalTeam({"devices": group})})
    cloud = network(tree, sizes, edges=edges, dimension=dimension, rhythm=rhythm, steps=steps)
    plan = cloud.plan(0)
    up = {}
    run = cloud._tiers.run_interval
    monkeypatch.setattr(cloud._tiers, "run_interval", lambda *each: up.update(run(*each)) or up)
    cloud.run_interval(plan)
    monkeypatch.setattr(type(STREAMS), "lent", lent)
    to_cloud = [upload.update for upload in up.values()]
    return list(cloud.releases(plan)), passed, to_cloud, cloud.model, drawn


def _vectors(answer):
    return list(answer.updates) if isinstance(answer, Trained) else [answer.update]


def learned(vectors, device, drawn, known=()):
    """mu^2 of what these vectors say about a device: how far its record moves them, in units of the noise."""
    seen = torch.stack(vectors).double().numpy()
    own = [place for place, owner in Signals.coordinates.items() if owner == device]
    hidden = [place for place, owner in drawn.items() if owner not in known]
    # The worst record moves every update of the device by 2 eta m G = 1, in a direction that all of them share.
    moved, noises = seen[:, own].sum(axis=1), seen[:, hidden]
    covariance = noises @ noises.T
    solved = np.linalg.pinv(covariance, rcond=1e-10) @ moved
    assert np.allclose(covariance @ solved, moved, atol=1e-6), "something is seen without any noise"
    return float(moved @ solved)


@pytest.mark.parametrize("seed", range(100))
def test_no_observer_of_a_random_tree_learns_more_than_its_account_says(seed, monkeypatch):
    """Gaussian mechanisms compose by adding mu^2: the rows of an observer must add up to at least what it has."""
    rng = np.random.default_rng(seed)
    tree, sizes = random_tree(rng)
    rhythm = Rhythm(every=[[1, 2], [1, 3], [2, 4], [1, 1]][int(rng.integers(4))])
    rows, passed, to_cloud, model, drawn = overheard(tree, sizes, monkeypatch, rhythm, steps=5)
    moved = 2 * 0.5  # an update of one step moves by 2 eta G; `steps` of a row say how many it accumulates
    region_of = {name: region for region, (_, below) in tree.items() for name in below}
    trusted = {region: each for region, (each, _) in tree.items()} | {
        name: each for _, below in tree.values() for name, each in below.items()
    }
    for name, count in sizes.items():
        for row in range(count):
            device, region = (name, row), region_of[name]
            allowed = {}
            for release in rows:
                if release.edge == name and str(row + 1) in _numbers(release.devices):
                    ratio = (release.sensitivity / (moved * release.steps)) / release.noise_std
                    allowed[release.observer] = allowed.get(release.observer, 0.0) + ratio**2
            views = {"cloud": [(to_cloud, ())], "public": [([model], ())]}
            if not trusted[name]:
                views["edge"] = [(_at(passed, name), ())]
            if not (trusted[name] and trusted[region]):
                views["tier-2"] = [(_at(passed, region), ())]
            peers = []
            for other in tree[region][1]:
                models = [vector for node, vector, _ in passed if node == other] + [model]
                peers += [(models, (f"{other}/{n + 1}",)) for n in range(sizes[other]) if (other, n) != device]
                if other != name:
                    peers.append(([*_at(passed, other), model], (other,)))  # it knows the noise that it added itself
            if peers:
                views["peer"] = peers
            for observer, sides in views.items():
                for vectors, known in sides:
                    assert learned(vectors, device, drawn, known) <= allowed[observer] * (1 + 1e-5), observer


def _at(passed, node):
    """All that a node has: what it broadcasts and what its children send."""
    found = []
    for name, model, answers in passed:
        if name == node:
            found += [model, *(vector for each in answers.values() for vector in each)]
    return found


def _numbers(ranges):
    found = set()
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found |= {str(each) for each in range(int(first), int(last or first) + 1)}
    return found
