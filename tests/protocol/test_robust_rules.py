"""Rules that are no sums: how far one upload moves them, what liars do to them, and what the ledger says under them."""

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms import WeightedAverage, aggregation_of
from h2fdp.algorithms.by_link import ByLinkOptions
from h2fdp.algorithms.robust import CentredClipping, GeometricMedian, Krum, Median, MultiKrum, TrimmedMean
from h2fdp.protocol import InProcessNodes
from h2fdp.runtime.lockstep import lockstep_of
from tests.protocol.mixed_network import NETWORK, subnet
from tests.protocol.overhearing import overheard
from tests.protocol.test_any_tree import records
from tests.protocol.test_noise_boundaries import carries

RULES = {"median": Median(), "trimmed-mean": TrimmedMean(trim=0.2)}
BOUNDED = RULES | {"centred-clipping": CentredClipping()}


UNTRUSTED = Topology("bare", (subnet("a", False, 5), subnet("b", False, 4)))


def prepared(rule, network=NETWORK, **settings):
    fixed = {"intervals": 2, "local_steps": 4, "batch_size": None, "sampling_rate": 1.0, "clip_norm": 1.0, "seed": 5}
    rhythm = [1, 2] if network is NETWORK else 4
    given = {"method": {"extends": "h2fdp", "aggregation": rule}, "aggregate_every": rhythm} | settings
    return Experiment(network, records, test_data=records("test"), **fixed | given).prepare()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_one_upload_moves_the_result_by_its_reach_and_no_more(rule, count):
    random, found = np.random.default_rng(count), []
    reach = rule.reach(np.full(count, 1 / count))
    for _ in range(300):
        updates = torch.from_numpy(random.standard_normal((count, 6)) * random.choice([0.01, 1.0, 100.0]))
        moved = torch.from_numpy(random.standard_normal(6) * random.choice([1e-3, 1.0, 50.0]))
        at = int(random.integers(count))
        other = updates.clone()
        other[at] += moved
        before, after = (rule.combine(list(each), np.full(count, 1 / count)) for each in (updates, other))
        found.append(float((after - before).norm() / moved.norm()) / reach[at])
    assert max(found) <= 1 + 1e-9
    updates = torch.zeros(count, 2, dtype=torch.float64)  # attained where the others' values leave room
    updates[: count // 2], updates[count // 2 :] = -1.0, 1.0
    middle = torch.zeros(2, dtype=torch.float64)
    updates[count // 2] = middle
    before = rule.combine(list(updates), np.full(count, 1 / count))
    updates[count // 2] += 0.5
    moved = rule.combine(list(updates), np.full(count, 1 / count)) - before
    assert float(moved[0]) == pytest.approx(0.5 * reach[0])


@pytest.mark.parametrize(
    ("rule", "stands"), [("median", True), (TrimmedMean(trim=0.3), True), (WeightedAverage(), False)]
)
def test_three_liars_of_ten_cannot_lead_it_away_from_the_others(rule, stands):
    rule, random = RULES.get(rule, rule) if isinstance(rule, str) else rule, np.random.default_rng(1)
    updates = torch.from_numpy(random.standard_normal((10, 50)))
    honest = updates[3:].clone()
    updates[0], updates[1], updates[2] = 1e9, -1e12, 1e12
    found = rule.combine(list(updates), np.full(10, 0.1))
    within = (found >= honest.min(dim=0).values) & (found <= honest.max(dim=0).values)
    assert bool(within.all()) is stands


def test_it_is_numpys_median_and_knows_no_order():
    updates = torch.from_numpy(np.random.default_rng(2).standard_normal((6, 30)))
    found = RULES["median"].combine(list(updates), np.full(6, 1 / 6))
    np.testing.assert_allclose(found, np.median(updates.numpy(), axis=0))
    assert torch.equal(found, RULES["median"].combine(list(updates.flip(0)), np.full(6, 1 / 6)))
    lied = torch.cat([updates[:5], torch.full((1, 30), torch.nan)])
    assert RULES["median"].combine(list(lied), np.full(6, 1 / 6)).isfinite().all()


@pytest.mark.parametrize("rule", BOUNDED)
def test_everyone_has_the_account_of_a_devices_own_noise_or_of_the_node_that_adds_it(rule):
    """Under an untrusted edge server a row is one device's upload, whoever sees it; under a trusted chain it is the
    vector of the node that adds the noise, and no noise of another branch is credited."""
    setup = prepared(rule)
    plan, rows = planned(setup)
    assert {(row.slot, row.edge, row.observer) for row in rows} == {
        (row.slot, row.edge, row.observer) for row in planned(prepared("average"))[1]
    }
    of_nodes = {level for node, _, level in plan.upper_noises if node == "top"}
    local = BOUNDED[rule].reach(np.full(4, 1 / 4))[0]
    assert of_nodes
    for row in rows:
        part, whole = plan.subnets[row.edge], 2 * setup.config.training.step_size * row.steps
        segment = part.ends().index(row.slot)
        if row.edge in ("a", "c"):
            assert row.noise_std in part.noise_std[segment]
            assert row.sensitivity == pytest.approx(whole)
        elif part.at[segment].own:
            assert row.noise_std == part.noise_std[segment, 0]
            assert row.sensitivity == pytest.approx(whole * (local if row.edge == "b" else 1))
        else:
            assert row.noise_std in of_nodes
            others = BOUNDED[rule].reach(np.full(3, 1 / 3))[0]
            assert row.sensitivity == pytest.approx(whole * others * (local if row.edge == "b" else 1))


def planned(setup):
    cloud = setup.cloud(InProcessNodes({}))
    plan = cloud.plan(0)
    return plan, list(cloud.releases(plan))


def test_a_trusted_node_adds_the_noise_of_the_ledger_to_the_median(monkeypatch):
    """Devices that do not move: what comes up is the median of nothing under the node's noise, chi-square at 1e-6."""
    heard = overheard(prepared("median", Topology("one", (subnet("b", True, 4),))), monkeypatch, silent=20_000)
    (level,) = (row.noise_std for row in heard.rows if row.observer == "cloud")
    (vector,) = heard.sent["b"]
    assert carries(torch.from_numpy(vector), level)


@pytest.mark.parametrize("rule", [*BOUNDED, "krum", "multi-krum", "geometric-median", {"edge": "median"}])
def test_bits_do_not_depend_on_where_devices_are(rule):
    network = NETWORK if str(rule) in BOUNDED else UNTRUSTED
    setup = prepared(rule, network, faults={"device_dropout": 0.3})
    names = [subnet.name for subnet in setup.topology.subnets]
    apart = {name: setup.blueprint.edge_server(at, setup.blueprint.device_group(at)) for at, name in enumerate(names)}
    together = lockstep_of(setup.blueprint, range(len(names)), setup.blueprint.local_engine())
    models = []
    for edges in (InProcessNodes(apart), together):
        cloud = setup.cloud(edges)
        for interval in range(2):
            cloud.run_interval(cloud.plan(interval))
        models.append(cloud.model)
    assert torch.equal(*models)
    assert not torch.equal(models[0], setup.initial)


def by_hand(updates, liars, many):
    """Krum of lists of numbers, by its definition: distances one by one, no sorting of tensors."""
    count = len(updates)
    lying = int(liars * count + 1e-9)
    near = max(1, count - lying - 2)
    scores = []
    for own in range(count):
        others = (
            sum((a - b) ** 2 for a, b in zip(updates[own], updates[o], strict=True)) for o in range(count) if o != own
        )
        scores.append(sum(sorted(others)[:near]))
    best = sorted(range(count), key=lambda own: (scores[own], own))[: count - lying if many else 1]
    return [sum(updates[own][at] for own in best) / len(best) for at in range(len(updates[0]))]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("count", "liars"), [(1, 0.2), (2, 0.4), (3, 0.4), (7, 0.2), (10, 0.3), (11, 0.45)])
def test_krum_is_its_definition_also_of_many_models_at_once(count, liars, many):
    random = np.random.default_rng(count)
    updates = random.standard_normal((count, 3, 5)) * random.choice([0.1, 10.0], (count, 1, 1))
    updates[0] = updates[-1]  # a tie, which the first one wins
    found = (MultiKrum if many else Krum)(liars=liars).combine(
        list(torch.from_numpy(updates)), np.full(count, 1 / count)
    )
    for model in range(3):
        expected = by_hand(updates[:, model].tolist(), liars, many)
        np.testing.assert_allclose(found[model], expected, rtol=1e-12)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("lie", [1e9, float("nan"), float("inf")])
def test_three_liars_of_ten_are_never_chosen(lie, many):
    updates = torch.from_numpy(np.random.default_rng(3).standard_normal((10, 20)))
    updates[[1, 4, 9]] = lie
    found = (MultiKrum if many else Krum)(liars=0.3).combine(list(updates), np.full(10, 0.1))
    assert float(found.abs().max()) < 5
    assert (updates == found).all(dim=1).any() or many


@pytest.mark.parametrize("rule", ["krum", "multi-krum", "geometric-median"])
def test_under_krum_each_device_has_the_account_of_its_own_noise(rule):
    setup = prepared(rule, UNTRUSTED)
    plan, rows = planned(setup)
    assert {row.observer for row in rows} == {"edge", "cloud", "peer", "public"}
    for row in rows:
        part = plan.subnets[row.edge]
        assert row.noise_std in part.noise_std[part.ends().index(row.slot)]
        assert row.sensitivity == pytest.approx(2 * setup.config.training.step_size * row.steps)
    with pytest.raises(UserError, match="nothing says how far one upload moves"):
        prepared(rule).cloud(InProcessNodes({}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": "by-size"}, "expected uniform"),
        ({"method": {"extends": "hfl", "aggregation": "median", "privacy": "central"}}, "for an average"),
        ({"network": Topology("one", (subnet("a", "secure-sum", 3),))}, "secure sum"),
        ({"method": {"extends": "h2fdp", "aggregation": {"edge": "median"}, "topology": "star"}}, "a star has no edge"),
        ({"method": {"extends": "h2fdp", "aggregation": {"edge": "krum"}}}, "nothing says how far one upload moves"),
        (
            {
                "network": Topology("sum", NETWORK.subnets[:1], cloud_trust="secure-sum"),
                "method": {"extends": "h2fdp", "aggregation": {"edge": "median"}},
            },
            "secure sum",
        ),
    ],
)
def test_what_needs_a_sum_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        prepared("median", **change).cloud(InProcessNodes({}))


def centred(updates, radius, iterations):
    """Centred clipping by its definition, in lists of numbers."""
    centre = [0.0] * len(updates[0])
    for _ in range(iterations):
        moves = []
        for update in updates:
            away = [a - b for a, b in zip(update, centre, strict=True)]
            length = sum(each**2 for each in away) ** 0.5
            moves.append([each * min(1.0, radius / length) if length else 0.0 for each in away])
        centre = [c + sum(each) / len(updates) for c, each in zip(centre, zip(*moves, strict=True), strict=True)]
    return centre


@pytest.mark.parametrize(("count", "radius", "iterations"), [(1, 1.0, 1), (4, 0.3, 1), (7, 2.0, 3), (10, 1.0, 10)])
def test_centred_clipping_is_its_definition_also_of_many_models_at_once(count, radius, iterations):
    updates = np.random.default_rng(count).standard_normal((count, 3, 5))
    rule = CentredClipping(radius=radius, iterations=iterations)
    found = rule.combine(list(torch.from_numpy(updates)), np.full(count, 1 / count))
    for model in range(3):
        np.testing.assert_allclose(found[model], centred(updates[:, model].tolist(), radius, iterations), rtol=1e-12)
        alone = rule.combine(list(torch.from_numpy(updates[:, model])), np.full(count, 1 / count))
        assert torch.equal(alone, found[model])


def moves_of(rule, count, size, tries, seed):
    """How far the result moves where one upload does, over how far that moves; random neighbours, some of them close,
    and then the worst of them climbed on."""
    random, best = np.random.default_rng(seed), (0.0, None)

    def ratio(updates, moved):
        other = updates.copy()
        other[0] += moved
        before, after = (
            rule.combine(list(torch.from_numpy(each)), np.full(count, 1 / count)) for each in (updates, other)
        )
        return float((after - before).norm()) / np.linalg.norm(moved)

    for _ in range(tries):
        updates = random.standard_normal((count, size)) * random.choice([0.1, 1.0, 10.0], (count, 1))
        moved = random.standard_normal(size) * random.choice([1e-3, 0.1, 1.0, 10.0])
        best = max(best, (ratio(updates, moved), (updates, moved)), key=lambda each: each[0])
    for _ in range(tries):
        updates, moved = (each + random.standard_normal(each.shape) * 0.03 * np.abs(each).mean() for each in best[1])
        best = max(best, (ratio(updates, moved), (updates, moved)), key=lambda each: each[0])
    return best[0]


@pytest.mark.parametrize(("count", "iterations"), [(1, 1), (2, 1), (5, 1), (3, 2), (4, 3), (6, 10)])
def test_one_upload_moves_centred_clipping_by_its_reach_and_no_more(count, iterations):
    """Two of a hundred neighbours' worst attain it: where an upload stays inside the ball, and the others outside."""
    rule = CentredClipping(radius=1.0, iterations=iterations)
    reach = rule.reach(np.full(count, 1 / count))[0]
    assert reach == iterations / count
    assert moves_of(rule, count, 4, 400, seed=count) <= reach * (1 + 1e-9)
    updates = torch.full((count, 2), 0.0, dtype=torch.float64)
    updates[1:, 0] = 1e6  # the others lead away, each time as far: across their way nothing calls the upload back
    updates[1:, 0][1::2] *= -1
    moved = updates.clone()
    moved[0, 1] += 1e-4
    before, after = (rule.combine(list(each), np.full(count, 1 / count)) for each in (updates, moved))
    if iterations == 1:
        assert float((after - before).norm()) == pytest.approx(reach * 1e-4)


def test_the_geometric_median_has_the_least_sum_of_distances():
    """Against a general minimiser, from another start."""
    from scipy import optimize

    for count in (1, 2, 3, 4, 7, 10):
        updates = np.random.default_rng(count).standard_normal((count, 4))
        updates[-1] *= 1000.0
        if count == 7:  # the median by coordinate is an upload, at which Weiszfeld's steps stand still
            updates[0] = np.median(updates[1:], axis=0)

        def total(point, updates=updates):
            return np.linalg.norm(updates - point, axis=1).sum()

        found = GeometricMedian().combine(list(torch.from_numpy(updates)), np.full(count, 1 / count)).numpy()
        least = optimize.minimize(
            total, updates.mean(axis=0), method="Nelder-Mead", options={"maxiter": 20_000, "fatol": 1e-12}
        )
        assert total(found) <= least.fun * (1 + 1e-6)
    assert GeometricMedian().reach(np.ones(3)) is None


@pytest.mark.parametrize(
    "rule",
    [GeometricMedian(), CentredClipping(radius=4.0, iterations=20)],
    ids=["geometric-median", "centred-clipping"],
)
@pytest.mark.parametrize("lie", [1e9, -1e12, float("nan"), float("inf")])
def test_four_liars_of_ten_lead_them_no_further_than_a_bound(rule, lie):
    """Honest uploads of length about 1 around (3, ..., 3): the result stays near, where the average is lost."""
    updates = torch.from_numpy(3 + 0.2 * np.random.default_rng(3).standard_normal((10, 20)))
    honest = updates[[0, 2, 3, 5, 6, 7]].mean(dim=0)
    updates[[1, 4, 8, 9]] = lie
    found = rule.combine(list(updates), np.full(10, 0.1))
    assert float((found - honest).norm()) < 6
    assert not float((WeightedAverage().combine(list(updates), np.full(10, 0.1)) - honest).norm()) < 1e7


def test_a_rule_for_each_link():
    """Sums below, the median above: the cloud has each edge server's average under all its noises, and no more."""
    rule = aggregation_of(ByLinkOptions(edge=Median()))
    assert isinstance(rule.at("device"), WeightedAverage)
    assert isinstance(rule.at("edge"), Median)
    (_, by_link), (_, average) = (planned(prepared(each, UNTRUSTED)) for each in ({"edge": "median"}, "average"))
    assert [row.as_row() for row in by_link] == [row.as_row() for row in average]
    setup = prepared({"edge": {"name": "trimmed-mean", "trim": 0.4}})
    plan, rows = planned(setup)
    whole = {row.edge: 2 * setup.config.training.step_size * row.steps for row in rows}
    for row in rows:
        segment = plan.subnets[row.edge].ends().index(row.slot)
        weights = plan.subnets[row.edge].aggregation(segment).weights
        levels = plan.subnets[row.edge].noise_std[segment]
        if row.edge in ("a", "c") and row.observer == "edge":
            assert row.noise_std in levels
        elif row.edge in ("a", "c"):  # its own devices' noises, and none of another subnet
            known = float((levels * weights).max()) if row.observer == "peer" else 0.0
            assert row.noise_std**2 + known**2 == pytest.approx(float(((levels * weights) ** 2).sum()))
        elif not plan.subnets[row.edge].at[segment].own:  # top adds the noise to the one that is left of three
            assert row.sensitivity == pytest.approx(2 * setup.config.training.step_size * row.steps * weights[0])
            assert row.noise_std in {level for node, _, level in plan.upper_noises if node == "top"}
    assert whole
