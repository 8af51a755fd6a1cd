"""Statistics of records before training, against their definitions written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.data.statistics import Bounds, Mean, Moments, Standardizing, score_of
from h2fdp.training.losses import OwnScore, RecordLoss

LOWEST, HIGHEST = -20, 33


def bin_of(number):
    """The lower and upper end of the bin of a number, by a loop over powers of two."""
    if abs(number) < 2.0**LOWEST:
        return -(2.0**LOWEST), 2.0**LOWEST
    power = next((e for e in range(LOWEST, HIGHEST) if abs(number) < 2.0 ** (e + 1)), HIGHEST)
    ends = 2.0**power, 2.0 ** (power + 1)
    return ends if number > 0 else (-ends[1], -ends[0])


numbers = st.floats(-(2.0**40), 2.0**40, width=32) | st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0**-20, -(2.0**33), 1e30])


@given(st.lists(numbers, min_size=1, max_size=20))
def test_a_column_goes_from_its_lowest_to_its_highest_bin(column):
    x = torch.tensor(column)[:, None]
    rows = Bounds().of(x)
    assert (rows.sum(dim=1) == 1).all()
    found = Bounds().use(rows.double().mean(dim=0).numpy(), 0.0, (1,))
    ends = [bin_of(each) for each in x[:, 0].tolist()]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    assert found(np.array([[low], [high]])).tolist() == [[-1.0], [1.0]]
    assert found.deviation[0] == pytest.approx((high - low) / 2)
    assert np.abs(found(x.numpy().astype(float))).max() <= 1.0


def test_bins_that_noise_alone_may_have_filled_count_for_nothing():
    rows = Bounds().of(torch.tensor([[3.0]] * 95 + [[900.0]] * 5)).double().mean(dim=0).numpy()
    sure, unsure = (Bounds().use(rows, std, (1,)) for std in (0.012, 0.013))
    assert (sure.mean[0], sure.deviation[0]) == (513.0, 511.0)  # 2 to 1024: 0.05 is above 4 deviations of 0.012
    assert (unsure.mean[0], unsure.deviation[0]) == (3.0, 1.0)
    nothing = Bounds().use(rows, 1.0, (1,))
    assert (nothing.mean[0], nothing.deviation[0]) == (0.0, 1.0)


def test_bounds_say_when_noise_hides_bins_of_half_a_column():
    """Four deviations of 0.12 of the count are 48 % of a column, of 0.13 they are 52 %: no smaller bin is seen."""
    assert Bounds().hides(0.12) == Moments().hides(10.0) == ""
    assert "less than 52% of a column" in Bounds().hides(0.13)
    hidden = np.zeros((1, 109))
    hidden[0, 60] = 0.51  # its bin is seen under the first noise alone
    seen = [Bounds().use(hidden.ravel(), noise, (1,)).deviation[0] != 1 for noise in (0.12, 0.13)]
    assert seen == [True, False]


def test_a_gap_is_in_no_bin_and_becomes_the_mean():
    x = torch.tensor([[math.nan, 1.0], [4.0, math.inf]])
    assert Bounds().of(x).sum(dim=1).tolist() == [1.0, 2.0]
    assert Moments().of(x[:1]).tolist() == [[0.0, 1.0, 0.0, 1.0]]
    found = Standardizing(np.array([3.0, 0.0]), np.array([2.0, 1.0]))(x.numpy().astype(float))
    assert found.tolist() == [[0.0, 1.0], [0.5, 5.0]]


def test_moments_are_means_and_deviations():
    x = np.random.default_rng(1).uniform(-1, 1, (500, 3)) * [1.0, 0.1, 0.5] + [0.0, 0.6, -0.3]
    average = Moments().of(torch.from_numpy(x)).mean(dim=0).numpy()
    found = Moments().use(average, 0.0, (3,))
    assert found.mean == pytest.approx(x.mean(axis=0))
    assert found.deviation == pytest.approx(x.std(axis=0))
    noisy = Moments().use(average, 0.2, (3,))
    assert noisy.deviation == pytest.approx(np.maximum(x.std(axis=0), 0.4))


@pytest.mark.parametrize("statistic", [Bounds(), Moments()])
def test_no_row_of_columns_in_their_ranges_is_much_longer_than_its_norm(statistic):
    x = torch.from_numpy(np.random.default_rng(2).uniform(-1, 1, (1000, 30)))
    longest = statistic.of(x).norm(dim=1).max()
    assert 0.5 < longest / statistic.norm((30,)) <= 1.0 + 1e-6


def test_the_mean_of_features_is_drawn_to_0_as_james_and_stein_say():
    rng, inputs, noise = np.random.default_rng(5), 384, 0.005
    mean = rng.standard_normal(inputs) * 0.01
    arrived = mean + noise * rng.standard_normal(inputs)
    found = Mean().use(arrived, noise, (inputs + 1,))
    drawn = 1 - (inputs - 1) * noise**2 / (arrived**2).sum()
    assert 0.2 < drawn < 0.9
    assert found.mean[:-1] == pytest.approx(drawn * arrived)
    assert found.mean[-1] == 0.0
    assert found.moves
    assert np.linalg.norm(found.mean[:-1] - mean) < np.linalg.norm(arrived - mean)
    assert np.linalg.norm(Mean().use(noise * rng.standard_normal(inputs), noise, (inputs + 1,)).mean) < 0.3 * noise * 20


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(-2, 2), st.floats(0.1, 3))
def test_two_in_one_are_one_after_the_other(column, mean, deviation):
    first = Standardizing(np.array([3.0]), np.array([8.0]), low=-1.0, high=1.0)
    second = Standardizing(np.array([mean]), np.array([deviation]))
    x = np.array(column)[:, None]
    assert first.then(second)(x) == pytest.approx(second(first(x).astype(float)), abs=1e-5)
    read = Standardizing.read(first.then(second).written(), (1,))
    assert (read(x) == first.then(second)(x)).all()


def test_inputs_that_do_not_differ_become_0_after_a_map_without_ends():
    first = Standardizing(np.array([1.0]), np.array([2.0]), low=-np.inf, high=np.inf)
    found = first.then(Standardizing(np.array([3.0]), np.array([0.0])))
    assert found(np.array([[7.0], [9.0], [np.nan]])).tolist() == [[0.0], [0.0], [0.0]]


@pytest.mark.parametrize("statistic", [Bounds(), Moments(), Mean()])
def test_the_gradient_of_its_score_is_the_statistic(statistic):
    x = torch.from_numpy(np.random.default_rng(3).uniform(-1, 1, (4, 5)).astype(np.float32))
    module = score_of(statistic, (5,))
    (weight,) = module.parameters()
    for row, record in zip(statistic.of(x), x, strict=True):
        (gradient,) = torch.autograd.grad(module(record[None]).sum(), weight)
        assert gradient[0].equal(row)


@pytest.mark.parametrize("statistic", [Bounds(), Moments(), Mean()])
def test_records_rows_are_the_slopes_that_autograd_finds(statistic):
    """To the bit, and without `torch.func`, whose import takes a second."""
    x = torch.from_numpy(np.random.default_rng(3).uniform(-1, 1, (4, 5)).astype(np.float32))
    module, labels = score_of(statistic, (5,)), torch.zeros(4, dtype=torch.int64)
    losses = RecordLoss(module, OwnScore(), None)
    model = losses.flat.to_vector(module).requires_grad_()
    slopes = [
        torch.autograd.grad(losses.mean(model, *pair), model)[0]
        for pair in zip(x[:, None], labels[:, None], strict=True)
    ]
    assert losses.gradients(model, x, labels).equal(torch.stack(slopes))
