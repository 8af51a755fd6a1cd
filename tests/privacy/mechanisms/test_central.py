"""Central noise by hand: sized for the largest weight, about whole devices, seen by peers and public only."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import Accounts, AggregationCounts
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.mechanisms.device_unit import CentralDp
from h2fdp.privacy.vectors import clip_rows
from tests.privacy.accounting.gaussian_oracle import exact_gaussian_epsilon
from tests.privacy.mechanisms.settings import by_observer, setting, upload
from tests.privacy.uploads import levels_of, rows_of

NOISE = CentralDp(noise_multiplier=3.0).mechanism(setting())


def of_cloud(weights):
    """The noise on an average of these weights."""
    return float(levels_of(NOISE, "cloud", weights, weights, weights)[0, 0])


def test_the_noise_covers_the_largest_weight_over_all_subnets():
    # z C max(rho varrho) = 3 * 0.5 * 0.4
    assert of_cloud(np.array([0.1, 0.2, 0.4, 0.2, 0.1])) == pytest.approx(0.6)


def test_peers_and_public_see_each_device_by_its_weight_without_amplification():
    seen = by_observer(rows_of(NOISE, upload("cloud", []), cloud=(0.25, 0.6)))
    assert set(seen) == {"peer", "public"}
    for rows in seen.values():
        # C rho varrho = 0.5 * 0.25 * (0.5, 0.3, 0.2)
        assert rows == {
            (12, "1"): (pytest.approx(0.0625), 0.6, 1, 1.0, "fixed"),
            (12, "2"): (pytest.approx(0.0375), 0.6, 1, 1.0, "fixed"),
            (12, "3"): (pytest.approx(0.025), 0.6, 1, 1.0, "fixed"),
        }


def test_the_calibrated_noise_is_formula_15_without_sampling():
    found = CentralDp().mechanism(setting())
    # c2 sqrt(K log(1/delta)) / epsilon = 1.5 sqrt(10 log 1e5) / 2
    assert found.noise_multiplier == pytest.approx(0.75 * math.sqrt(10 * math.log(1e5)))
    assert found.claimed(Accounts({}), AggregationCounts(0, 10)) == pytest.approx(2.0)
    assert found.claimed(Accounts({}), AggregationCounts(0, 5)) == pytest.approx(2.0 / math.sqrt(2))


def test_the_account_is_the_plain_gaussian_of_its_multiplier():
    accounts = Accounts({"a": 3})
    for interval in range(1, 11):
        noise = of_cloud(np.array([0.125, 0.075, 0.05]))
        accounts.add(rows_of(NOISE, upload("cloud", [], interval=interval), cloud=(0.25, noise)))
    worst = max(ACCOUNTANTS["pld"].epsilon(each.composition, 1e-5) for each in accounts.classes("public"))
    # Ten Gaussians of multiplier 3 are one of 3 / sqrt(10).
    assert worst == pytest.approx(exact_gaussian_epsilon(3 / math.sqrt(10), 1e-5), rel=2e-3)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_clipped_vectors_are_never_longer_than_the_bound(values, bound):
    rows = torch.tensor([values, [0.0] * len(values)])
    clip_rows(rows, bound)
    assert float(torch.linalg.vector_norm(rows[0].double())) <= bound
    assert not rows[1].any()


def test_what_is_short_enough_stays_to_the_bit_and_what_is_no_number_becomes_zero():
    rows = torch.tensor([[0.3, 0.4], [float("inf"), 1.0], [float("nan"), 1.0]])
    before = rows[0].clone()
    clip_rows(rows, 0.51)
    assert torch.equal(rows[0], before)
    assert torch.equal(rows[1:], torch.zeros(2, 2))


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6))
def test_no_device_is_ever_covered_by_less_than_the_multiplier(masses):
    weights = np.array(masses) / sum(masses)
    assert (of_cloud(weights) >= 3.0 * 0.5 * weights * (1 - 1e-12)).all()


def test_nothing_may_leave_a_subnet_between_global_aggregations():
    with pytest.raises(AssertionError, match="between global"):
        rows_of(NOISE, upload("cloud", [], kind="local"))
