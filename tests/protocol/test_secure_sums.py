"""Secure sums overheard: what leaves devices and edge servers, against rows, formulas and a trusted edge server.

Networks of secure-sum edge servers beside trusted and untrusted ones, with tolerances and devices that fail; see
`tests.protocol.overhearing` and, for what is demanded of every tree, `test_any_tree`.
"""

import math

import numpy as np
import pytest
import torch

from h2fdp import Topology
from h2fdp.network import Aggregator
from h2fdp.privacy.views import hidden_variance
from h2fdp.protocol import InProcessNodes
from tests.networks import placed
from tests.protocol.overhearing import devices_of, overheard
from tests.protocol.test_any_tree import prepared
from tests.protocol.test_any_tree import (
    test_every_row_is_a_vector_that_left_and_nothing_left_without_a_row as rows_left,
)
from tests.protocol.test_any_tree import test_no_observer_learns_more_than_its_rows_say as learns_no_more
from tests.protocol.test_noise_boundaries import carries

NETWORKS = 30


def subnet(name, trust, size, parent=None):
    return placed(name, trust, [9.0] * size, [9.0] * size, parent=parent)


def network(trust="secure-sum", size=5, deep=False):
    """`a` and, in a deep one, `b` below a trusted region; `c` is untrusted, `d` trusted."""
    if not deep:
        return Topology("sums", (subnet("a", trust, size), subnet("c", "untrusted", 2), subnet("d", "trusted", 2)))
    subnets = (subnet("a", trust, size, "r"), subnet("b", trust, 3, "r"), subnet("c", "untrusted", 2, "u"))
    return Topology("sums", subnets, aggregators=(Aggregator("r", "trusted"), Aggregator("u", "untrusted")))


def method(**tolerance):
    return {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": tolerance}}


def drawn(number):
    """A network, and the settings of a run in it."""
    rng = np.random.default_rng(number)
    size, deep = int(rng.integers(2, 7)), bool(rng.random() < 0.5)
    spare = min(3 if deep else size, size) - 1
    colluding = int(rng.integers(spare + 1))
    settings = {
        "method": method(colluding=colluding, dropouts=int(rng.integers(spare - colluding + 1))),
        "weights": str(rng.choice(["uniform", "by-size"])),
        "sensitivity": str(rng.choice(["tight", "paper"])),
        "faults": {"device_dropout": float(rng.choice([0.0, 0.3, 0.6])), "straggler": {"probability": 0.2}},
        "aggregate_every": [1, 2] if deep else 2,
        "seed": int(rng.integers(1000)),
    }
    return size, deep, settings


@pytest.fixture(scope="module", params=range(NETWORKS))
def run(request):
    """A prepared run, and all that passed in its two intervals."""
    size, deep, settings = drawn(request.param)
    setup = prepared(network(size=size, deep=deep), **settings)
    with pytest.MonkeyPatch.context() as patch:
        return setup, overheard(setup, patch, intervals=2)


def test_no_observer_with_its_colluders_learns_more_than_its_rows_say(run):
    learns_no_more(run)


def test_every_row_is_a_sum_that_left_less_what_colluders_know(run):
    rows_left(run)


def plans(setup, intervals=2):
    cloud = setup.cloud(InProcessNodes({}))
    for interval in range(intervals):
        plan = cloud.plan(interval)
        yield plan, list(cloud.releases(plan))
        cloud.skip(plan)


def multipliers(setup, observer, edge="a"):
    """(slot, device) -> noise over sensitivity."""
    found = {}
    for _, rows in plans(setup):
        for row in rows:
            if (row.observer, row.edge) == (observer, edge):
                found |= {(row.slot, device): row.noise_std / row.sensitivity for _, device in devices_of(row)}
    return found


@pytest.mark.parametrize("number", [each for each in range(NETWORKS) if not drawn(each)[1]])
def test_within_its_tolerance_a_sum_has_at_least_a_trusted_edge_servers_noise(number):
    size, _, settings = drawn(number)
    sums = prepared(network(size=size), **settings)
    trusted = multipliers(prepared(network("trusted", size), **settings), "cloud")
    for observer in ("edge", "cloud", "public"):
        found = multipliers(sums, observer)
        assert found.keys() <= trusted.keys()
        for place, value in found.items():
            assert value >= trusted[place] * (1 - 1e-9), place


def test_sums_below_the_tolerance_leave_nothing_and_work_comes_to_nothing(run):
    setup, heard = run
    tolerance = setup.placement.place(("secure-sum",), 1).tolerance
    slots = {row.slot for row in heard.rows if row.edge == "a"}
    for plan, _ in plans(setup):
        part = plan.subnets.get("a") or plan.lost["a"]
        begun, whole = len(part.rows), setup.without_faults()
        (planned, _), *_ = plans(whole)
        assert begun == len(planned.subnets["a"].rows)
        unopened = part.tasks.unopened
        unopened = np.zeros((len(part.segments), begun), dtype=bool) if unopened is None else unopened
        for segment, end in enumerate(part.ends()):
            arrived = len(part.aggregation(segment).rows)
            assert (end in slots) == (arrived > 0)
            assert arrived == 0 or arrived >= begun - tolerance.lost(begun)
            assert not unopened[segment].any() or unopened[segment].sum() < begun - tolerance.lost(begun)
            if unopened[segment].any():
                assert arrived == 0
                assert not any(when == end for (whose, _), when in heard.signals.values() if whose == "a")


def test_some_of_these_runs_lose_sums_and_some_have_colluders():
    """So that the tests above mean something."""
    lost = colluding = 0
    some = NETWORKS // 3
    for number in range(some):
        size, deep, settings = drawn(number)
        setup = prepared(network(size=size, deep=deep), **settings)
        parts = [plan.subnets.get("a") or plan.lost["a"] for plan, _ in plans(setup)]
        lost += any(part.tasks.unopened is not None for part in parts)
        colluding += setup.placement.place(("secure-sum",), 1).tolerance.colluding > 0
    assert lost > some / 4
    assert colluding > some / 4


def test_without_tolerances_everybody_sees_what_a_trusted_edge_server_would_send():
    sums, trusted = (prepared(network(trust), weights="by-size") for trust in ("secure-sum", "trusted"))
    for observer in ("cloud", "public"):
        assert multipliers(sums, observer) == pytest.approx(multipliers(trusted, observer))
    assert multipliers(sums, "edge") == multipliers(sums, "cloud")
    assert multipliers(trusted, "edge") == {}
    known = {place: value * math.sqrt(4 / 5) for place, value in multipliers(sums, "cloud").items()}
    assert multipliers(sums, "peer") == pytest.approx(known)  # less a peer's own share


@pytest.mark.parametrize("tolerance", [{}, {"colluding": 1, "dropouts": 2}, {"dropouts": 0.5}])
def test_what_arrives_has_the_noise_of_the_plan(monkeypatch, tolerance):
    """Devices that do not move, so that sums are noise: chi-square at an error rate of 1e-6 for each sum. Five devices
    begin and s - c - d shares make one trusted noise, sigma = q Delta c2 sqrt(L log(1 / delta)) / epsilon / 5."""
    setup = prepared(network(), method=method(**tolerance), aggregate_every=2, intervals=1)
    heard = overheard(setup, monkeypatch, silent=20_000)
    honest = {(): 5, ("colluding", "dropouts"): 2, ("dropouts",): 3}[tuple(tolerance)]
    privacy, step = setup.config.privacy, setup.config.training.step_size
    assert len(heard.received["a"]) == 3
    for vector, local, steps in zip(heard.received["a"], (True, True, False), (2, 2, 1), strict=True):
        releases = 2 if local else 1
        formula = privacy.c2 * math.sqrt(releases * math.log(1 / privacy.delta)) / privacy.epsilon
        counted = 5 if privacy.sensitivity == "paper" else steps
        sigma = formula * 2 * step * counted / 5
        assert carries(torch.from_numpy(vector), sigma * math.sqrt(5 / honest))


def test_the_noise_of_one_small_sum_by_hand():
    """Records 1, 2 and 3; by size 1/6, 1/3 and 1/2. A trusted edge server: the largest share, 1/2, times level 1. One
    colludes: shares of variance 1/8 in the sum, of which two remain, one beyond a peer."""
    sums = prepared(network(size=3), method=method(colluding=1), intervals=1, local_steps=1, aggregate_every=None,
                    aggregations_per_interval=0)  # fmt: skip
    facts = next(facts for facts in sums.blueprint.facts if facts.name == "a")
    weights = np.array([1 / 6, 1 / 3, 1 / 2])
    levels = facts.place.levels(weights, np.ones(3))
    assert levels == pytest.approx([3 / math.sqrt(2), 1.5 / math.sqrt(2), 1 / math.sqrt(2)])
    assert (weights * levels) ** 2 == pytest.approx([1 / 8] * 3)
    assert hidden_variance(facts.place, weights * levels) == pytest.approx(1 / 4)
    found = {row.observer: row.noise_std for _, rows in plans(sums, 1) for row in rows if row.edge == "a"}
    assert found["edge"] == found["cloud"] == found["public"]
    assert found["peer"] == pytest.approx(found["cloud"] / math.sqrt(2))
