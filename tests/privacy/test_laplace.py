"""Laplace noise: its account against closed forms, quadrature and dp-accounting, its draws by statistics, its rows."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import integrate, stats

from h2fdp import Topology, UserError
from h2fdp.network import Aggregator
from h2fdp.privacy.accounting import ACCOUNTANTS, ORDERS, ReleaseType, coarse, mixture_of, rdp_of
from h2fdp.privacy.laplace import LAPLACE
from h2fdp.privacy.vectors import NOISE_LAWS
from h2fdp.protocol import InProcessNodes
from h2fdp.run.forecast import planned_accounts
from h2fdp.runtime.lockstep import lockstep_of
from h2fdp.streams import Streams
from tests.protocol.mixed_network import NETWORK, subnet
from tests.protocol.overhearing import overheard
from tests.protocol.test_any_tree import prepared

ROOT_2 = math.sqrt(2)
METHOD = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "law": "laplace"}}
ACCURATE = {"rel": 5e-4, "abs": 1e-5}  # what `pld` promises


def release(epsilon, rate=1.0, steps=1, **changes):
    """One that costs so much where its record is in it: noise of scale 1 / epsilon."""
    return ReleaseType(ROOT_2 / epsilon, steps, rate, law="laplace", **changes)


def hockey_stick(whole, epsilon):
    """Of Lap(D) from Lap(0), D = `whole` scales."""
    return np.where(
        epsilon < -whole, -np.expm1(epsilon), np.maximum(-np.expm1((np.minimum(epsilon, whole) - whole) / 2), 0)
    )


# The account


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 5.0, 40.0])
def test_one_release_has_the_epsilon_of_the_closed_form(epsilon, delta):
    """delta(e) = 1 - exp((e - e_0) / 2) up to e_0, 0 from there on."""
    exact = max(0.0, epsilon + 2 * math.log1p(-delta))
    found = ACCOUNTANTS["pld"].epsilon({release(epsilon): 1}, delta)
    assert exact <= found <= epsilon * (1 + 1e-12)
    assert found == pytest.approx(exact, **ACCURATE)


@pytest.mark.parametrize("rate", [0.5, 0.03])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_a_drawn_record_has_the_closed_form_at_another_epsilon(epsilon, rate):
    """delta(log(1 + q (exp(e) - 1))) = q times what it is at e without drawing."""
    for inner in np.array([0.2, 0.7]) * epsilon:
        delta, exact = rate * float(hockey_stick(epsilon, inner)), math.log1p(rate * math.expm1(inner))
        found = ACCOUNTANTS["pld"].epsilon({release(epsilon, rate): 1}, delta)
        assert exact * (1 - 1e-9) <= found
        assert found == pytest.approx(exact, **ACCURATE)


@pytest.mark.parametrize(
    ("epsilon", "rate", "count"), [(0.1, 1.0, 100), (2.0, 1.0, 10), (0.05, 0.1, 1000), (1.0, 0.3, 30), (0.5, 0.02, 200)]
)
def test_compositions_are_those_of_dp_accounting(epsilon, rate, count):
    theirs = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=1e-4, sampling_prob=rate)
    composed = theirs.self_compose(count)
    for delta in (1e-7, 1e-3):
        found = ACCOUNTANTS["pld"].epsilon({release(epsilon, rate): count}, delta)
        assert found == pytest.approx(composed.get_epsilon_for_delta(delta), rel=6e-4)
        assert found <= count * math.log1p(rate * math.expm1(epsilon)) * (1 + 1e-12)  # basic composition
        assert found <= coarse({release(epsilon, rate): count}, delta) * (1 + 1e-9)
        assert found <= ACCOUNTANTS["rdp"].epsilon({release(epsilon, rate): count}, delta) * (1 + 5e-4)


def test_releases_of_both_laws_compose():
    gaussian = ReleaseType(2.0, 1, 1.0)
    theirs = pld.from_laplace_mechanism(2.0, value_discretization_interval=1e-4).self_compose(5)
    theirs = theirs.compose(pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-4))
    found = ACCOUNTANTS["pld"].epsilon({release(0.5): 5, gaussian: 1}, 1e-5)
    assert found == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=6e-4)
    replaced = ReleaseType(2.0, 1, 0.5, replaced=True)  # laws, mixtures and their mirror images have an order
    assert found < ACCOUNTANTS["pld"].epsilon({release(0.5): 5, gaussian: 1, replaced: 1, release(0.2): 1}, 1e-5)


@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 3.0, 30.0])
def test_divergences_are_those_of_the_closed_form(epsilon):
    """Mironov 2017, Table II."""
    orders = ORDERS.astype(float)
    terms = np.log(orders / (2 * orders - 1)) + (orders - 1) * epsilon, np.log((orders - 1) / (2 * orders - 1))
    exact = np.logaddexp(terms[0], terms[1] - orders * epsilon) / (orders - 1)
    found = rdp_of(release(epsilon))
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=2e-14)
    assert (found >= exact * (1 - 1e-12) - 2e-14).all()


@pytest.mark.parametrize(("epsilon", "rate"), [(0.5, 0.1), (3.0, 0.4), (8.0, 0.01)])
@pytest.mark.parametrize("order", [2, 7, 40])
def test_divergences_of_drawn_records_are_those_of_quadrature(epsilon, rate, order):
    def moment(power):
        def part(point):
            ratio = 1 - rate + rate * math.exp(abs(point) - abs(point - epsilon))
            return ratio**power * math.exp(-abs(point)) / 2

        ends = [-60, 0, epsilon, epsilon + 60]
        return sum(integrate.quad(part, *pair, epsabs=0, epsrel=1e-12, limit=200)[0] for pair in pairwise(ends))

    exact = max(math.log(moment(order)), math.log(moment(1 - order))) / (order - 1)
    found = rdp_of(release(epsilon, rate))[list(ORDERS).index(order)]
    assert found == pytest.approx(exact, rel=1e-8)


def test_a_move_of_several_coordinates_reveals_less_than_one_of_as_much_in_l1():
    """By brute force on a plane, in both directions."""
    grid = np.linspace(-14, 16, 1201)
    cell = (grid[1] - grid[0]) ** 2
    still = np.exp(-np.abs(grid)) / 2
    for moves in ((0.5, 0.5), (0.2, 1.1), (2.0, 1.0)):
        there = np.outer(*(np.exp(-np.abs(grid - move)) / 2 for move in moves))
        for epsilon in np.linspace(0, sum(moves), 6)[:-1]:
            for one, other in ((there, np.outer(still, still)), (np.outer(still, still), there)):
                found = float(np.maximum(one - math.exp(epsilon) * other, 0).sum() * cell)
                assert found <= float(hockey_stick(sum(moves), epsilon)) + 2e-4


def test_sampling_amplifies_once_for_all_steps_and_not_for_records_that_others_replace():
    delta, pld_of = 1e-5, ACCOUNTANTS["pld"].epsilon
    assert pld_of({release(1.0, 0.1, steps=3): 1}, delta) == pytest.approx(pld_of({release(1.0, 1 - 0.9**3): 1}, delta))
    assert pld_of({release(1.0, 0.1, replaced=True): 1}, delta) == pld_of({release(1.0): 1}, delta)
    assert pld_of({release(1.0, 0.1, sampling="fixed"): 1}, delta) == pld_of({release(1.0): 1}, delta)


# Draws


def fits(sample, std):
    """Whether Kolmogorov's test at an error rate of 1e-6 takes the sample for Laplace noise."""
    return bool(stats.kstest(np.ravel(sample), stats.laplace(scale=std / ROOT_2).cdf).pvalue > 1e-6)


def test_it_is_the_law_with_the_level_as_its_standard_deviation():
    levels, keys = np.array([2.0, 1e-3]), [Streams(1).key("a", f"noise-{place}") for place in range(2)]
    vectors = torch.zeros(2, 50_000)
    LAPLACE.add(vectors, levels, keys)
    for vector, level in zip(vectors.double().numpy(), levels.tolist(), strict=True):
        assert fits(vector, level)
        assert not fits(vector, level * 2 / 3)
        assert not fits(vector, level * 3 / 2)
    NOISE_LAWS["gaussian"].add(vectors.zero_(), levels, keys)
    assert not fits(vectors[0].double().numpy(), 2.0)  # of equal variance


def test_a_row_depends_on_its_own_level_and_key_alone():
    keys, levels = [Streams(1).key("a", f"noise-{place}") for place in range(5)], np.linspace(1, 2, 5)
    vectors = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    together = vectors.clone()
    LAPLACE.add(together, levels, keys)
    for rows in ([3], [4, 0]):
        part = vectors[rows].clone()
        LAPLACE.add(part, levels[rows], [keys[row] for row in rows])
        assert torch.equal(part, together[rows])
    with pytest.raises(AssertionError, match="carries noise"):
        LAPLACE.add(vectors, np.zeros(5), keys)


# Runs


def rows_of(setup):
    cloud = setup.cloud(InProcessNodes({}))
    plan = cloud.plan(0)
    return plan, list(cloud.releases(plan))


def network(trust, *servers, above=True):
    return Topology("q", (subnet("a", trust, 5), subnet("b", trust, 3)), *servers)


def run(topology=NETWORK, **settings):
    return prepared(
        topology, **{"method": METHOD, "aggregate_every": 2, "local_steps": 4, "calibration": "accounted"} | settings
    )


@pytest.mark.parametrize(("factor", "accepted"), [(1, True), (2 / 3, False), (3 / 2, False)])
@pytest.mark.parametrize("place", ["device", "edge", "tier"])
def test_what_leaves_a_place_of_trust_has_the_noise_of_the_ledger(monkeypatch, place, factor, accepted):
    """Devices that do not move, below nobody that they trust, a trusted edge server, or two trusted nodes."""
    above = (Aggregator("top", True, parent=None),) if place == "tier" else ()
    tree = Topology("one", (subnet("a", place != "device", 3, *(each.name for each in above)),), aggregators=above)
    setup = run(tree, aggregate_every=None, aggregations_per_interval=0)
    heard = overheard(setup, monkeypatch, silent=20_000)
    if place == "device":
        levels = {int(row.devices.split("-")[0]): row.noise_std for row in heard.rows if row.observer == "edge"}
        vectors = {levels[row]: vector for row, vector in enumerate(heard.received["a"], 1) if row in levels}
    else:
        (level,) = {row.noise_std for row in heard.rows}
        vectors = {level: heard.sent["a" if place == "edge" else "top"][0]}
    assert vectors
    for level, vector in vectors.items():
        assert fits(vector, factor * level) is accepted


def test_everyone_has_the_account_of_a_devices_own_noise_or_of_the_node_that_adds_it():
    """No sum of Laplace noises is credited, at no tier; sensitivities are sqrt(M) times those of Gaussian rows."""
    setup, gaussian = run(), run(method="h2fdp")
    (plan, rows), (_, theirs) = rows_of(setup), rows_of(gaussian)
    root = math.sqrt(setup.initial.numel())
    assert {(each.slot, each.edge, each.observer) for each in rows} == {
        (each.slot, each.edge, each.observer) for each in theirs
    }
    moved = {(each.slot, each.edge, each.devices): each.sensitivity for each in theirs if each.observer == "edge"}
    of_nodes = {level for _, _, level in plan.upper_noises}
    assert of_nodes
    for row in rows:
        part = plan.subnets[row.edge]
        segment = part.ends().index(row.slot)
        assert row.law == "laplace"
        if row.edge in ("a", "c"):
            assert row.noise_std in part.noise_std[segment]
            assert row.sensitivity == pytest.approx(root * moved[row.slot, row.edge, row.devices])
        else:
            assert row.noise_std in (part.noise_std[segment, :1] if part.at[segment].own else of_nodes)
    ratios = {row.noise_std / row.sensitivity for row in rows if row.edge == "a"}
    assert len(ratios) == 1 or max(ratios) <= 1.001 * min(ratios)


def test_noise_of_other_branches_is_not_credited_above_a_trusted_chain():
    """A node adds noise to what is raw in its average, and another part of that has the noise of a node further down:
    its own alone counts, where of Gaussians both would."""
    servers = (Aggregator("relay", False, parent="top"), Aggregator("mid", True, parent="relay"))
    tree = Topology(
        "deep",
        (subnet("a", True, 2, "top"), subnet("b", True, 3, "mid")),
        aggregators=(Aggregator("top", True, parent=None), *servers),
    )
    found = {}
    for law, method in (("laplace", METHOD), ("gaussian", "h2fdp")):
        plan, rows = rows_of(run(tree, aggregate_every=None, aggregations_per_interval=0, method=method))
        levels = {node: level for node, _, level in plan.upper_noises}
        seen = {row.noise_std for row in rows if row.edge == "a"}
        assert levels.keys() == {"mid", "top"}
        found[law] = [each / levels["top"] for each in seen]
    assert found["laplace"] == [1]
    assert max(found["gaussian"]) > 1.01


@pytest.mark.parametrize("settings", [{}, {"sampling_rate": 0.3}, {"adjacency": "replace"}, {"clip_scope": "record"}])
def test_it_is_calibrated_to_the_stated_epsilon(settings):
    accounts, account = planned_accounts(run(epsilon=2.0, **settings)), ACCOUNTANTS["pld"].epsilon
    held = [account(each.composition, 1e-5) for name in accounts.observers for each in accounts.classes(name)]
    assert 1.99 < max(held) <= 2.0


def test_bits_do_not_depend_on_where_devices_are():
    setup = run(faults={"device_dropout": 0.3}, aggregate_every=[1, 2])
    names = [each.name for each in setup.topology.subnets]
    apart = {name: setup.blueprint.edge_server(at, setup.blueprint.device_group(at)) for at, name in enumerate(names)}
    models = []
    for edges in (
        InProcessNodes(apart),
        lockstep_of(setup.blueprint, range(len(names)), setup.blueprint.local_engine()),
    ):
        cloud = setup.cloud(edges)
        for interval in range(2):
            cloud.run_interval(cloud.plan(interval))
        models.append(cloud.model)
    assert torch.equal(*models)
    assert not torch.equal(models[0], setup.initial)


@pytest.mark.parametrize(
    ("trust", "changes", "text"),
    [
        ("secure-sum", {}, "expected gaussian, as other laws change in a sum, found laplace"),
        (
            "untrusted",
            {"control": {"enabled": True}},
            "control.enabled: .*knows the noise of laplace; expected false, or law gaussian",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(trust, changes, text):
    with pytest.raises(UserError, match=text):
        run(network(trust), **changes)


def test_what_knows_gaussians_alone_refuses_others():
    with pytest.raises(AssertionError, match="another law"):
        mixture_of(release(1.0))
