"""Sampling: the right distribution, the same draw on any placement, and no draw ever cut."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler, draw_together, row_length

SIZES = np.array([40, 25, 60])


def sampler(sampling, rates, sizes=SIZES, length=None, seed=1):
    rates = np.asarray(rates, dtype=float)
    return BatchSampler(
        Streams(seed), "edge", sampling, sizes, rates, length or row_length(sampling, float(np.max(rates * sizes)))
    )


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_device_draws_the_same_whoever_shares_its_host(sampling):
    whole = sampler(sampling, [0.2, 0.3, 0.1])
    together = whole.draw(0, range(1, 6), np.arange(3))
    for rows in (np.array([1]), np.array([0, 2])):
        apart = whole.draw(0, range(1, 6), rows)
        for position, row in enumerate(rows):
            for slot in range(5):
                np.testing.assert_array_equal(apart.of(slot, position), together.of(slot, row))


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_no_record_is_drawn_twice_in_a_batch_and_all_exist(sampling):
    batches = sampler(sampling, [0.9, 0.5, 1.0]).draw(0, range(200), np.arange(3))
    for slot in range(200):
        for device, size in enumerate(SIZES):
            drawn = batches.of(slot, device)
            assert len(set(drawn.tolist())) == len(drawn)
            assert drawn.size == 0 or (drawn.min() >= 0 and drawn.max() < size)


def test_poisson_draws_each_record_independently_with_its_rate():
    """Batch sizes are binomial and inclusions uniform: chi-square tests, each at an error rate of 1e-6."""
    draws, size, rate = 20_000, 12, 0.3
    batches = sampler("poisson", [rate], np.array([size])).draw(0, range(draws), np.arange(1))
    counts = np.bincount(batches.counts[:, 0], minlength=size + 1)
    expected = stats.binom.pmf(np.arange(size + 1), size, rate) * draws
    tail = expected < 10
    observed = np.append(counts[~tail], counts[tail].sum())
    assert stats.chisquare(observed, np.append(expected[~tail], expected[tail].sum())).pvalue > 1e-6
    included = np.zeros((draws, size))
    for slot in range(draws):
        included[slot, batches.of(slot, 0)] = 1
    z = (included.sum(axis=0) - draws * rate) / np.sqrt(draws * rate * (1 - rate))
    assert stats.chi2.sf((z**2).sum(), size) > 1e-6
    correlations = np.corrcoef(included.T)[np.triu_indices(size, 1)] * np.sqrt(draws)
    assert stats.chi2.sf((correlations**2).sum(), correlations.size) > 1e-6


def test_fixed_batches_are_uniform_over_subsets():
    draws = 30_000
    batches = sampler("fixed", [2 / 5], np.array([5])).draw(0, range(draws), np.arange(1))
    subsets = np.sort(batches.indices[:, 0, :2], axis=1) @ [5, 1]
    counts = np.unique(subsets, return_counts=True)[1]
    assert counts.size == 10
    assert stats.chisquare(counts).pvalue > 1e-6


def test_a_draw_larger_than_its_row_takes_a_second_pass():
    """Rows of four uniforms for batches of 12 on average: sizes must still be binomial (error rate 1e-6)."""
    draws = 4_000
    short = sampler("poisson", [0.3], np.array([40]), length=4).draw(0, range(draws), np.arange(1))
    z = (short.counts.sum() - draws * 12) / np.sqrt(draws * 40 * 0.3 * 0.7)
    assert abs(z) < 4.9
    assert short.counts.max() > 15
    variance = short.counts.var() / (40 * 0.3 * 0.7)
    assert abs(variance - 1) < 4.9 * np.sqrt(2 / draws)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_subnets_that_draw_together_draw_what_each_draws_alone(sampling):
    """Rows of eight uniforms: many Poisson batches need more than one, each from its own subnet's streams."""
    rng = np.random.default_rng(3)
    parts = []
    for edge, devices in (("a", 3), ("b", 1), ("c", 4)):
        sizes = rng.integers(20, 60, devices)
        whole = BatchSampler(Streams(4), edge, sampling, sizes, rng.uniform(0.1, 0.4, devices), 32)
        whole = whole if sampling == "fixed" else replace(whole, row_length=8)
        parts.append((whole, np.flatnonzero(rng.random(devices) < 0.8) if devices > 1 else np.arange(1)))
    together = draw_together(parts, 2, range(5, 9))
    device = 0
    for whole, rows in parts:
        alone = whole.draw(2, range(5, 9), rows)
        for position in range(len(rows)):
            for slot in range(4):
                np.testing.assert_array_equal(together.of(slot, device), alone.of(slot, position))
            device += 1
    assert device == together.counts.shape[1] > 4
    assert sampling == "fixed" or together.counts.max() > 8


def test_the_poisson_test_would_notice_a_wrong_rate():
    batches = sampler("poisson", [0.32], np.array([12])).draw(0, range(20_000), np.arange(1))
    z = (batches.counts.sum() - 20_000 * 12 * 0.3) / np.sqrt(20_000 * 12 * 0.3 * 0.7)
    assert abs(z) > 5
