"""DP-SGD: a release for each step, to everybody; R_c; Opacus's numbers and Opacus's noise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from h2fdp.privacy import Accounts, AggregationCounts
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd
from h2fdp.privacy.mechanisms.pipeline import StepNoise
from h2fdp.privacy.places import Segment
from h2fdp.streams import Streams
from tests.privacy.mechanisms.settings import RATES, RECORDS, by_observer, setting, upload
from tests.privacy.uploads import levels_of, rows_of

GIVEN = DpSgd(noise_multiplier=1.1).mechanism(setting())
CLASSIC = ACCOUNTANTS["classic-rdp"]


def account(mechanism, uploads):
    accounts = Accounts({"a": 3})
    for each in uploads:
        accounts.add(rows_of(mechanism, each))
    return accounts


def test_the_noise_on_a_sum_is_the_multiplier_times_the_clip_norm_whatever_the_weights():
    levels = levels_of(GIVEN, "step", np.array([0.9, 0.05, 0.05]), RATES, RECORDS, (2, 3))
    np.testing.assert_array_equal(levels, np.full((2, 3), 1.1 * 0.5))


def test_every_step_is_a_row_for_every_observer_alike():
    seen = by_observer(rows_of(GIVEN, upload("step", [0.55] * 3)))
    assert set(seen) == {"edge", "peer", "cloud", "public"}
    expected = {
        (slot, str(device)): (0.5, 0.55, 1, rate, "poisson")
        for slot in (9, 10, 11, 12)
        for device, rate in zip((1, 2, 3), RATES.tolist(), strict=True)
    }
    assert all(rows == expected for rows in seen.values())


def test_the_claim_is_the_classic_account_of_the_steps_really_made():
    accounts = account(GIVEN, [upload("step", [0.55] * 3, interval=each) for each in range(1, 6)])
    alone = max(CLASSIC.epsilon({ReleaseType(1.1, 1, rate): 20}, 1e-5) for rate in RATES.tolist())
    assert GIVEN.claimed(accounts, AggregationCounts(0, 5)) == pytest.approx(alone, rel=1e-6)
    assert GIVEN.claimed(Accounts({"a": 3}), AggregationCounts(0, 0)) == 0.0


def test_opacus_has_the_same_divergences():
    from opacus.accountants.analysis.rdp import compute_rdp

    orders = list(range(2, 65))
    accounts = account(GIVEN, [upload("step", [0.55] * 3)])
    for rate in RATES.tolist():
        rdp = np.array(compute_rdp(q=rate, noise_multiplier=1.1, steps=4, orders=orders))
        expected = min(rdp - math.log(1e-5) / (np.array(orders) - 1))
        (device,) = (each for each in accounts.classes("edge") if each.devices.tolist() == [RATES.tolist().index(rate)])
        assert CLASSIC.epsilon(device.composition, 1e-5) == pytest.approx(expected, rel=1e-6)


def test_calibrated_noise_meets_the_target_by_a_hair_for_the_largest_rate():
    found = DpSgd().mechanism(setting())
    spent = CLASSIC.epsilon({ReleaseType(found.noise_multiplier, 1, 0.08): 40}, 1e-5)
    assert 1.99 < spent <= 2.0
    assert found.iterations(2.0, CLASSIC) == 40


@pytest.mark.parametrize(("epsilon", "safe", "paper"), [(1.75, 174, 177), (2.0, 314, 317), (2.5, 596, 598)])
def test_a_given_noise_allows_as_many_steps_as_the_papers_table(epsilon, safe, paper):
    rates = {"sampling_rates": np.array([0.001, 0.015])}
    for search, steps in (("safe", safe), ("paper", paper)):
        made = DpSgd(noise_multiplier=1.1, rc_search=search).mechanism(setting(open_ended=True, **rates))
        assert made.iterations(epsilon, CLASSIC) == steps
        assert DpSgd(noise_multiplier=1.1).mechanism(setting(**rates)).iterations(epsilon, CLASSIC) == 40  # planned


def test_opacus_optimizer_adds_noise_of_the_same_size():
    """DPOptimizer on gradients of zero, against ours: N(0, (z C / expected batch)^2), at an error rate of 1e-6."""
    from opacus.optimizers import DPOptimizer

    size, multiplier, clip_norm, batch = 40_000, 1.3, 0.7, 8.0
    parameter = torch.nn.Parameter(torch.zeros(size))
    theirs = DPOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        noise_multiplier=multiplier,
        max_grad_norm=clip_norm,
        expected_batch_size=int(batch),
        generator=torch.Generator().manual_seed(1),
    )
    parameter.grad_sample = torch.zeros(3, size)
    theirs.step()
    noise = StepNoise(Streams(1), ["d"], np.array([multiplier * clip_norm]), Segment(0, 0, 1))
    ours = torch.zeros(1, size)
    noise.add(ours, 0, np.array([batch]))
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], size)
    for sample in (parameter.detach(), ours[0]):
        assert low < float((sample.double() ** 2).sum()) / (multiplier * clip_norm / batch) ** 2 < high


def test_a_part_of_the_noise_is_the_same_noise():
    whole = StepNoise(Streams(1), ["a", "b", "c"], np.array([1.0, 2.0, 3.0]), Segment(4, 10, 12))
    together, apart = torch.zeros(3, 50), torch.zeros(2, 50)
    whole.add(together, 2, np.array([1.0, 2.0, 4.0]))
    whole.part(np.array([2, 0])).add(apart, 2, np.array([4.0, 1.0]))
    assert torch.equal(apart, together[[2, 0]])
    split = [whole.part(np.array([0])), whole.part(np.array([1, 2]))]
    joined = torch.zeros(3, 50)
    split[0].joined(split).add(joined, 2, np.array([1.0, 2.0, 4.0]))
    assert torch.equal(joined, together)


def test_less_noise_is_accounted_as_what_it_is():
    """A schedule may change the noise: the ledger has the level of each step."""
    less = account(GIVEN, [upload("step", [0.55 * 0.5] * 3)])
    assert GIVEN.claimed(less, AggregationCounts(0, 1)) == pytest.approx(
        CLASSIC.epsilon({ReleaseType(0.55, 1, 0.08): 4}, 1e-5)
    )
