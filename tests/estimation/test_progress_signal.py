"""What noise alone makes of the statistics of progress, and what they make of progress."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.progress_signal import STATISTICS, TOGETHER, correlations, signals

ERROR = 1e-6
SIZE, COUNT = 500, 4000
VARIANCES = np.exp(np.random.default_rng(1).normal(size=COUNT))


def noise(seed):
    return np.random.default_rng(seed).normal(size=(COUNT, SIZE)) * np.sqrt(VARIANCES)[:, None]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("wrong", [2 / 3, 1.0, 3 / 2])
def test_under_noise_alone_a_statistic_has_mean_0_and_spread_1(name, wrong):
    """Of 800 that share no update; 2/3 and 3/2 of the deviation are noticed, by the mean or by the spread."""
    found = signals(noise(2), wrong**2 * VARIANCES)[name][TOGETHER - 1 :: TOGETHER]
    within = abs(found.mean()) * np.sqrt(len(found)) < stats.norm.isf(ERROR / 2)
    spread = np.std(found)
    alike = abs(spread - 1) < 5.5 / np.sqrt(2 * len(found)) * 1.3  # 1.3: their tails are those of a chi-square
    assert (within and alike) == (wrong == 1.0)


@pytest.mark.parametrize("name", STATISTICS)
def test_noise_alone_is_rarely_a_signal_and_progress_is_one(name):
    """0.00135 of normal numbers are above 3; chi-squares of 500 a little more. Progress of half the noise's length."""
    found = signals(noise(3), VARIANCES)[name][TOGETHER - 1 :: TOGETHER]
    assert (found > 3).sum() <= stats.binom.isf(ERROR, len(found), 0.004)
    direction = np.random.default_rng(4).normal(size=SIZE) / 2
    moved = signals(noise(3) + direction * np.sqrt(VARIANCES)[:, None], VARIANCES)[name]
    assert np.nanmedian(moved) == pytest.approx(
        {"alone": 0.25 * SIZE / np.sqrt(2 * SIZE), "neighbours": 0.25 * np.sqrt(SIZE)}.get(name, np.nanmedian(moved)),
        rel=0.1,
    )
    assert (moved[TOGETHER:] > 3).mean() > 0.5


def test_the_correlation_is_with_the_fall_over_the_same_intervals():
    loss = np.array([9.0, 8.0, 6.0, 5.5, 5.4, 5.0, 3.0, 2.9, 2.8])
    rows = pd.DataFrame({"seed": 1, "loss": loss})
    for name, width in (("alone", 1), ("neighbours", 2), ("together", TOGETHER)):
        fall = pd.Series(loss).shift(width) - loss
        assert correlations(rows.assign(**{name: fall**3}), name) == pytest.approx(1.0)
        assert correlations(rows.assign(**{name: -fall}), name) == pytest.approx(-1.0)
