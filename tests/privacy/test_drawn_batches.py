"""DP-SGD divided by the records drawn: the batch's size is seen, and what is left of amplification is nothing."""

import math

import numpy as np
import pytest
from scipy import stats

from h2fdp import Experiment
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType

DELTA = 1e-5


def hockey_stick(epsilon, rate, noise):
    """delta of a Gaussian of sensitivity 1, of a record that is in with probability `rate` against one that is not."""
    if rate == 0:
        return 0.0
    inside = math.exp(epsilon) - (1 - rate)
    if inside <= 0:
        return 1.0 - math.exp(epsilon)
    edge = 0.5 + noise**2 * math.log(inside / rate)
    above = stats.norm.sf(edge / noise)
    return rate * stats.norm.sf((edge - 1) / noise) - (math.exp(epsilon) - (1 - rate)) * above


def told_size(epsilon, records, rate, noise):
    """The same of one step whose batch size b is told: binomial(D, q), and the record in it with probability b / D."""
    sizes = np.arange(records + 1)
    chances = stats.binom.pmf(sizes, records, rate)
    return sum(chance * hockey_stick(epsilon, b / records, noise) for chance, b in zip(chances, sizes, strict=True))


@pytest.mark.parametrize(("records", "rate", "noise"), [(20, 0.1, 1.0), (60, 0.05, 1.1), (100, 0.015, 1.1)])
def test_a_batch_size_that_is_told_voids_amplification_and_not_the_account(records, rate, noise):
    pld = ACCOUNTANTS["pld"]
    amplified = pld.epsilon({ReleaseType(noise, 1, rate): 1}, DELTA)
    plain = pld.epsilon({ReleaseType(noise, 1, 1.0, "fixed"): 1}, DELTA)
    assert hockey_stick(amplified, rate, noise) == pytest.approx(DELTA, rel=0.02)  # the oracle agrees where it must
    assert told_size(amplified, records, rate, noise) > 1.2 * DELTA
    assert told_size(plain, records, rate, noise) <= DELTA


@pytest.mark.run
def test_a_run_divided_by_what_was_drawn_claims_amplification_and_accounts_for_none(tmp_path):
    privacy = {"name": "dp-sgd", "noise_multiplier": 2.0}
    training = {"intervals": 3, "local_steps": 2, "batch_size": 8, "sampling": "poisson"}
    found = {}
    for normalize in ("expected", "drawn"):
        method = {"extends": "fedavg-dp", "privacy": privacy | {"normalize": normalize}}
        run = Experiment(data="digits", method=method, epsilon=20.0, training=training).run(tmp_path / normalize)
        found[normalize] = run.metrics.iloc[-1]
    steps = {ReleaseType(2.0, 1, 1.0, "fixed"): 6}
    assert found["drawn"]["epsilon_cloud"] == pytest.approx(ACCOUNTANTS["pld"].epsilon(steps, DELTA))
    assert found["drawn"]["epsilon_cloud"] > 2 * found["expected"]["epsilon_cloud"]
    assert found["drawn"]["epsilon_claimed"] == pytest.approx(found["expected"]["epsilon_claimed"])
