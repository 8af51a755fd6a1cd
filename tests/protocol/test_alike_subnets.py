"""Subnets that look alike are planned once: with the same plans, releases and accounts as one by one."""

import dataclasses

import numpy as np

from h2fdp import Experiment, Topology
from h2fdp.network import Aggregator
from h2fdp.protocol import InProcessNodes
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.protocol.subnet_facts import SubnetFacts
from tests.networks import placed
from tests.protocol.test_any_tree import drawn_settings
from tests.protocol.test_any_tree import records as uneven

NETWORKS = 16


def even(device):
    return np.zeros((2, 2), np.float32), np.arange(2) % 2


def network(rng):
    """Six edge servers of at most three kinds, in one tier or under two others."""
    levels = [True, False, "secure-sum"]
    kinds = [(levels[int(rng.integers(3))], int(rng.integers(1, 4))) for _ in range(int(rng.integers(1, 4)))]
    above = ["west", "east"] if rng.random() < 0.5 else []
    trusted = bool(rng.random() < 0.5)
    subnets = []
    for number in range(6):
        trust, size = kinds[int(rng.integers(len(kinds)))]
        parent = above[number // 3] if above else None
        subnets.append(placed(f"n{number}", trust, [9.0] * size, [9.0] * size, parent=parent))
    return Topology("net", tuple(subnets), aggregators=tuple(Aggregator(name, trusted) for name in above))


def prepared(seed):
    """A run with random settings; in most networks all devices have equal records, and nothing fails."""
    rng = np.random.default_rng(seed)
    net = network(rng)
    given = drawn_settings(net, rng) | ({"faults": {}, "participation": 1.0} if seed % 4 else {})
    net = dataclasses.replace(net, cloud_trust=given.pop("cloud_trust", "untrusted"))
    fixed = {"intervals": 2, "local_steps": 5, "batch_size": None, "sampling_rate": 1.0, "clip_norm": 1.0}
    data = even if seed % 5 else uneven
    return Experiment(net, data, test_data=data("test"), **fixed, **given).prepare()


def planned(setup):
    """All numbers of two intervals' plans and releases, and how many plans are shared."""
    cloud, found, shared = setup.cloud(InProcessNodes({})), [], 0
    facts = {each.name: each for each in setup.blueprint.facts}
    for interval in range(2):
        plan = cloud.plan(interval)
        rows = list(cloud.releases(plan))
        alike = [
            dataclasses.replace(row, edge=edge)
            for group in cloud.alike_releases(plan)
            for edge in group.edges
            for row in group.releases
        ]
        assert sorted(map(repr, alike)) == sorted(map(repr, rows))
        noise = noise_and_gradients(plan, facts, setup.noise) if plan.subnets else None
        found.append((repr(plan), rows, noise))
        shared += len(plan.subnets) - len({id(part) for part in plan.subnets.values()})
        cloud.skip(plan)
    return found, shared


def test_they_share_what_each_would_have_by_itself(monkeypatch):
    runs = [prepared(seed) for seed in range(NETWORKS)]
    together = [planned(setup) for setup in runs]
    monkeypatch.setattr(SubnetFacts, "likeness", property(lambda facts: facts.name))
    single = [planned(setup) for setup in runs]
    assert [found for found, _ in together] == [found for found, _ in single]
    assert sum(shared for _, shared in single) == 0
    assert sum(shared > 0 for _, shared in together) > NETWORKS // 2
