"""The numbers that the specification and two papers state."""

import math

import pytest

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType, coarse
from h2fdp.privacy.calibration import largest_count

DELTA = 1e-5
BUDGETS = [1.75, 2.0, 2.5, 3.25]
DP_SGD = ReleaseType(1.1, steps=1, sampling_rate=0.015)  # ALI-DPFL's device: one Poisson step, noise multiplier 1.1


@pytest.mark.parametrize(("budget", "count"), list(zip(BUDGETS, [174, 314, 596, 1119], strict=True)))
def test_ali_dpfl_releases_within_a_budget_by_classic_rdp(budget, count):
    assert largest_count(DP_SGD, budget, DELTA, ACCOUNTANTS["classic-rdp"]) == count


@pytest.mark.parametrize(("budget", "count"), list(zip(BUDGETS, [397, 553, 904, 1537], strict=True)))
def test_opacus_rdp_has_fractional_orders_and_one_percent_more(budget, count):
    from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent

    orders = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))  # RDPAccountant.DEFAULT_ALPHAS
    divergences = compute_rdp(q=0.015, noise_multiplier=1.1, steps=1, orders=orders)

    def opacus(steps):
        return get_privacy_spent(orders=orders, rdp=divergences * steps, delta=DELTA)[0]

    assert opacus(count) <= budget < opacus(count + 1)
    ours = largest_count(DP_SGD, budget, DELTA, ACCOUNTANTS["rdp"])
    assert 0.985 * count < ours <= count
    assert largest_count(DP_SGD, budget, DELTA, ACCOUNTANTS["pld"]) > count


def test_pld_allows_716_at_two():
    assert largest_count(DP_SGD, 2.0, DELTA, ACCOUNTANTS["pld"]) == 716


LOCAL, GLOBAL, TAU, STEPS, RECORDS = 600, 200, 20, 5, 1200


def paper_default(batch, divisor=1.0, sampling="poisson"):
    """The paper's default by hand: epsilon 1, c2 = sqrt 2; noise for tau = 20 steps on uploads of m = 5.

    sigma = c2 q Delta sqrt(L log(1/delta)) with Delta = 2 eta tau G; the upload's sensitivity is 2 eta m G, divided by
    `divisor` relative to the noise as the observer sees it.
    """
    rate = batch / RECORDS
    return {
        ReleaseType(
            math.sqrt(2) * rate * (TAU / STEPS) * math.sqrt(count * math.log(1 / DELTA)) * divisor,
            STEPS,
            rate,
            sampling,
        ): count
        for count in (LOCAL, GLOBAL)
    }


@pytest.mark.parametrize(("batch", "accounted", "bound"), [(32, 0.784, 1.353), (8, 0.850, 1.544)])
def test_the_papers_default_as_an_untrusted_edge_sees_a_device(batch, accounted, bound):
    composition = paper_default(batch)
    assert ACCOUNTANTS["pld"].epsilon(composition, DELTA) == pytest.approx(accounted, abs=1e-3)
    assert coarse(composition, DELTA) == pytest.approx(bound, abs=1e-3)
    assert ACCOUNTANTS["rdp"].epsilon(composition, DELTA) == pytest.approx(accounted, rel=0.11)


def test_the_cloud_sees_an_average_of_five_independent_noises():
    assert ACCOUNTANTS["pld"].epsilon(paper_default(32, math.sqrt(5)), DELTA) == pytest.approx(0.325, abs=1e-3)
