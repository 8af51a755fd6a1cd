"""Objective perturbation: Theorem 6.3, its conditions, and that nothing sound is said of it."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from h2fdp.errors import UserError
from h2fdp.privacy import Accounts, AggregationCounts, Moment
from h2fdp.privacy.mechanisms.perturbations import ObjectivePerturbation
from h2fdp.privacy.mechanisms.stages import RandomLinearTerm
from h2fdp.privacy.places import Segment
from h2fdp.streams import Streams
from tests.privacy.mechanisms.settings import RATES, RECORDS, by_observer, setting, upload
from tests.privacy.uploads import levels_of, rows_of

MU = 0.5


def levels_by(mechanism):
    return levels_of(mechanism, "device", np.array([0.5, 0.3, 0.2]), RATES, RECORDS)


def terms(alpha, devices=300, size=12):
    nodes = [f"a/{row + 1}" for row in range(devices)]
    levels = np.full(devices, 1 / alpha)
    at = Moment(streams=Streams(3), nodes=nodes, levels=levels, segment=Segment(2, 8, 12))
    return RandomLinearTerm().linear_terms(torch.zeros(size), at).double().numpy()


def test_a_given_rate_claims_the_theorem():
    made = ObjectivePerturbation(noise_multiplier=0.1).mechanism(setting(mu=MU))
    assert levels_by(made).tolist() == [[0.1] * 3]
    expected = 10 * (2 * 10.0 * math.sqrt(2) * MU + 2.8 * 0.5) / (100 * MU)
    assert made.claimed(Accounts({}), AggregationCounts(0, 10)) == pytest.approx(expected)
    assert made.claimed(Accounts({}), AggregationCounts(0, 10, unplanned_noise=True)) is None


def test_a_calibrated_rate_claims_the_target_for_every_device():
    made = ObjectivePerturbation().mechanism(setting(mu=MU, epsilon=5.0))
    assert made.claimed(Accounts({}), AggregationCounts(0, 10)) == pytest.approx(5.0)
    (levels,) = levels_by(made)
    for level, records in zip(levels, RECORDS, strict=True):
        spent = (2 / level * math.sqrt(2) * MU + 2.8 * 0.5) / (records * MU)
        assert 10 * spent == pytest.approx(5.0)


def test_a_bias_is_one_more_feature():
    plain, biased = (
        ObjectivePerturbation(noise_multiplier=0.1).mechanism(setting(mu=MU, biased=biased)) for biased in (False, True)
    )
    assert plain.claimed(Accounts({}), AggregationCounts(0, 1)) == pytest.approx(
        (20 * math.sqrt(2) * MU + 1.4) / (100 * MU)
    )
    assert biased.claimed(Accounts({}), AggregationCounts(0, 1)) == pytest.approx((20 * 2 * MU + 2.8) / (100 * MU))


def test_the_theorems_condition_on_the_curvature():
    with pytest.raises(UserError, match=r"u2 <= 0\.5 D_i mu; here u2 is 0\.5, mu 0\.009, and a device has 100 records"):
        ObjectivePerturbation(noise_multiplier=0.1).mechanism(setting(mu=0.009))


def test_every_account_of_it_is_infinite():
    accounts = Accounts({"a": 3})
    made = ObjectivePerturbation(noise_multiplier=0.1).mechanism(setting(mu=MU))
    accounts.add(rows_of(made, upload("device", made.stated(np.full(3, 0.1)))))
    assert all(accounts.worst(observer, 1e-5) == math.inf for observer in ("edge", "peer", "cloud", "public"))
    for rows in by_observer(rows_of(made, upload("device", made.stated(np.full(3, 0.1))))).values():
        assert {values[1] for values in rows.values()} == {0.0}


@pytest.mark.parametrize(("factor", "accepted"), [(1, True), (2 / 3, False), (3 / 2, False)])
def test_lengths_have_a_gamma_law(factor, accepted):
    """Kolmogorov-Smirnov against Gamma(M, 1/alpha), at an error rate of 1e-6."""
    lengths = np.linalg.norm(terms(alpha=7.0), axis=1)
    found = stats.kstest(lengths, stats.gamma(12, scale=factor / 7.0).cdf).pvalue
    assert bool(found > 1e-6) is accepted


def test_directions_are_uniform_and_no_two_devices_share_one():
    """A coordinate of a uniform direction has mean 0 and variance 1/M; six standard deviations."""
    found = terms(alpha=7.0)
    directions = found / np.linalg.norm(found, axis=1, keepdims=True)
    assert abs(directions.mean(axis=0)).max() < 6 / math.sqrt(12 * 300)
    assert abs((directions**2).mean(axis=0) - 1 / 12).max() < 6 * math.sqrt(2 / 12**2 / 300)
    assert len(np.unique(found[:, 0])) == 300
