"""Sums of integers: that they are the sums of the vectors, how often they wrap around, and what they may reveal.

The law of what an observer sees is written out exactly in one and two dimensions, as a sum of discrete Gaussians, and
its hockey-stick divergence is compared with that of the continuous Gaussian that the ledger states.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from h2fdp.privacy.modular_sums import LEAST_STD, SMOOTHING, ModularCode, code_for, hadamard
from h2fdp.streams import Streams

STREAMS = Streams(seed=3)


def stream(number):
    return np.random.Generator(np.random.Philox(key=number))


def law(cells, hidden, reach):
    """Probabilities of -reach .. reach of the sum of so many discrete Gaussians, by convolution."""
    places = np.arange(-reach, reach + 1)
    one = np.exp(-(places**2) / (2 * cells**2))
    one /= one.sum()
    found = one
    for _ in range(hidden - 1):
        found = np.convolve(found, one)[reach : 3 * reach + 1]
    return found


def hockey_stick(one, other, epsilon):
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def gaussian(mu, epsilon):
    """Hockey-stick divergence of Gaussians at a distance of mu standard deviations (Balle and Wang 2018, Theorem 8)."""
    low = stats.norm.logcdf(-mu / 2 - epsilon / mu)
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + low))


def mixed(weights, shifts, probabilities, reach):
    """The mixture over shifts of a law."""
    found = np.zeros(2 * reach + 1)
    for weight, shift in zip(weights, shifts, strict=True):
        found += weight * np.roll(probabilities, shift)
    return found


def stated(cells, hidden):
    """The standard deviation that the ledger has of so many shares, in cells."""
    code = ModularCode(bits=16, spacing=1.0, parameters=1, node="a")
    return float(np.sqrt(hidden) * code.accounted(np.array([float(cells)]), np.ones(1))[0])


@pytest.mark.parametrize("cells", [LEAST_STD, 5, 9, 30])
@pytest.mark.parametrize("hidden", [1, 2, 5])
@pytest.mark.parametrize("shift", [1, 3, 20])
def test_a_sum_of_shares_hides_no_less_than_the_stated_noise(cells, hidden, shift):
    reach = int(14 * cells * math.sqrt(hidden)) + shift
    noise = law(cells, hidden, reach)
    mu = shift / stated(cells, hidden)
    for epsilon in np.linspace(0, max(mu**2 / 2 + 4 * mu, 0.1), 25):
        for moved in (shift, -shift):
            assert hockey_stick(np.roll(noise, moved), noise, epsilon) <= gaussian(mu, epsilon) * (1 + 1e-9) + 1e-14


def test_discrete_noise_does_hide_less_than_continuous_noise_of_its_own_size():
    """So the smoothing is needed: somewhere a discrete Gaussian is above the continuous one of the same sigma."""
    worst = 0.0
    for shift in (1, 2, 3, 5):
        noise, mu = law(4, 1, 80), shift / 4
        for epsilon in np.linspace(0, 2, 200):
            worst = max(worst, hockey_stick(np.roll(noise, shift), noise, epsilon) - gaussian(mu, epsilon))
    assert worst > 1e-4


@settings(max_examples=100, deadline=None)
@given(
    cells=st.integers(LEAST_STD, 12),
    hidden=st.integers(1, 4),
    rate=st.floats(0.05, 0.9),
    draws=st.integers(1, 3),
    unit=st.integers(1, 8),
    epsilon=st.floats(0.0, 3.0),
)
def test_subsampled_and_mixed_shifts_are_covered_too(cells, hidden, rate, draws, unit, epsilon):
    """A record that is drawn J times, J binomial, moves the sum by J units: against the same mixture of continuous
    Gaussians of the stated noise, by quadrature, in both directions."""
    reach = int(14 * cells * math.sqrt(hidden)) + draws * unit
    noise = law(cells, hidden, reach)
    weights, shifts = stats.binom.pmf(np.arange(draws + 1), draws, rate), unit * np.arange(draws + 1)
    with_record = mixed(weights, shifts, noise, reach)
    std = stated(cells, hidden)
    x = np.linspace(-reach, reach, 20_001)
    plain = stats.norm.pdf(x, 0, std)
    mixture = sum(weight * stats.norm.pdf(x, shift, std) for weight, shift in zip(weights, shifts, strict=True))
    width = x[1] - x[0]
    for one, other, above, below in ((with_record, noise, mixture, plain), (noise, with_record, plain, mixture)):
        bound = float(np.maximum(above - math.exp(epsilon) * below, 0).sum() * width)
        assert hockey_stick(one, other, epsilon) <= bound + 1e-7


@pytest.mark.parametrize("shift", [(1, 0), (2, 1), (3, 3)])
def test_two_dimensions_are_covered_by_the_length_of_the_shift(shift):
    cells, hidden = 4, 2
    reach = 60
    one = law(cells, hidden, reach)
    noise = np.outer(one, one)
    moved = np.roll(noise, shift, axis=(0, 1))
    mu = math.hypot(*shift) / stated(cells, hidden)
    for epsilon in np.linspace(0, 3, 20):
        assert hockey_stick(moved, noise, epsilon) <= gaussian(mu, epsilon) * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize(("cells", "hidden"), [(4, 2), (4, 6), (8, 20), (30, 50)])
@pytest.mark.parametrize("dimension", [1, 8192])
def test_the_account_is_close_to_theorem_1_of_the_paper(cells, hidden, dimension):
    """Kairouz, Liu and Steinke (2021), Theorem 1 and Proposition 14: epsilon^2 / 2 concentrated privacy with
    epsilon = min(sqrt(D^2 / (n sigma^2) + tau d / 2), D / (sqrt(n) sigma) + tau sqrt(d)). Ours is D over the stated
    noise: never smaller by more than rounding, and larger by the smoothing alone."""
    n = np.arange(1, hidden)
    tau = 10 * np.exp(-2 * math.pi**2 * cells**2 * n / (n + 1)).sum()
    moved = 7.0
    plain = moved / (math.sqrt(hidden) * cells)
    theirs = min(math.sqrt(plain**2 + tau * dimension / 2), plain + tau * math.sqrt(dimension))
    ours = moved / stated(cells, hidden)
    assert theirs * (1 - 1e-12) <= ours == pytest.approx(plain / math.sqrt(1 - (SMOOTHING / cells) ** 2))
    assert tau * dimension < 1e-60


@given(
    x=st.lists(st.floats(-100, 100), min_size=4, max_size=4),
    moved=st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    seed=st.integers(0, 10**6),
)
def test_rounding_with_the_same_draw_moves_no_vector_further_than_stated(x, moved, seed):
    """floor(x + u) of neighbours with the same u: at most the spacing more in each coordinate, gamma sqrt(d) in all."""
    code = ModularCode(bits=24, spacing=0.25, parameters=4, node="a")
    draw = stream(seed).random(4)
    one, other = np.array(x), np.array(x) + np.array(moved)
    rounded = [np.floor(vector / code.spacing + draw) * code.spacing for vector in (one, other)]
    further = np.linalg.norm(rounded[1] - rounded[0])
    assert further <= np.linalg.norm(moved) + code.inflation + 1e-9


@pytest.mark.parametrize("parameters", [1, 4, 16])
@pytest.mark.parametrize("cells_moved", [0, 2])
def test_in_the_worst_case_what_devices_send_moves_as_far_as_stated(parameters, cells_moved):
    """Residues of neighbours under one stream, whose noise cancels: every coordinate of one is rounded down from just
    below a grid point, that of the other up from just above one. The distance grows by gamma sqrt(d)."""
    spacing, signs = 0.25, np.where(np.arange(parameters) % 3 == 1, -1.0, 1.0)
    code = ModularCode(bits=24, spacing=spacing, parameters=parameters, node="a")
    below = -stream(5).random(parameters) - 1e-4  # `encode` adds this draw, and rounds down
    vectors = [torch.from_numpy(hadamard(each * spacing) * signs) for each in (below, below + cells_moved + 2e-4)]
    one, other = (code.encode(vector, 1.0, LEAST_STD, signs, stream(5)).numpy() for vector in vectors)
    assert set((other - one) % 2**24) == {cells_moved + 1}
    moved, stated = float((vectors[1] - vectors[0]).norm()), spacing * math.sqrt(parameters)
    further = stated * (cells_moved + 1) - moved
    assert further == pytest.approx(stated, rel=1e-3)
    assert further <= code.inflation


def updates(count, parameters, longest, seed=1):
    drawn = torch.from_numpy(stream(seed).standard_normal((count, parameters))).float()
    return drawn * (longest / drawn.norm(dim=1, keepdim=True))


def added(code, vectors, shares, cells, slot=1):
    signs = code.signs(STREAMS, 0, slot)
    residues = [
        code.encode(vector, share, cells, signs, stream(100 * slot + number))
        for number, (vector, share) in enumerate(zip(vectors, shares, strict=True))
    ]
    return residues, code.decode(torch.stack(residues), signs)


@pytest.mark.parametrize("parameters", [10, 100, 1000])
@pytest.mark.parametrize("bits", [16, 24])
def test_a_sum_of_residues_is_the_weighted_sum_under_the_planned_noise(parameters, bits):
    """Chi-square at an error rate of 1e-6 over many sums; two thirds and one and a half times the noise are refused."""
    shares, noises, longest = np.array([0.5, 0.3, 0.2]), np.full(3, 0.05), 1.0
    code = code_for(bits, parameters, "a", longest, noises)
    cells = int(np.ceil(noises[0] / code.spacing))
    vectors = updates(3, parameters, longest)
    exact = sum(share * vector.double() for share, vector in zip(shares, vectors, strict=True))
    times = 2000 // parameters + 2
    errors = []
    for slot in range(times):
        residues, found = added(code, vectors, shares, cells, slot)
        assert all(int(each.min()) >= 0 and int(each.max()) < 2**bits for each in residues)
        errors.append((found.double() - exact).numpy())
    squares, count = float((np.array(errors) ** 2).sum()), times * parameters
    # In the mean over signs each rounding adds at most a quarter of a cell squared.
    variance = 3 * (cells * code.spacing) ** 2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], count)
    rounded = 3 * code.spacing**2 / 4
    assert low * variance < squares < high * (variance + rounded)
    for factor in (2 / 3, 3 / 2):
        assert not low * (factor * factor * variance) < squares < high * (factor * factor * (variance + rounded))


def test_sums_do_not_wrap_around_and_too_few_bits_are_seen():
    """At the spacing that is chosen no coordinate is wrong; at a hundredth of it they are."""
    shares, noises = np.full(4, 0.25), np.full(4, 0.02)
    spiked = torch.zeros(4, 500)
    spiked[:, 7] = 1.0  # all in one coordinate: the rotation spreads it
    code = code_for(16, 500, "a", 1.0, noises)
    cells = int(np.ceil(noises[0] / code.spacing))
    sigma = 2 * cells * code.spacing
    for vectors in (spiked, updates(4, 500, 1.0)):
        exact = sum(0.25 * vector for vector in vectors)
        assert float((added(code, vectors, shares, cells)[1] - exact).abs().max()) < 6 * sigma
    small = ModularCode(16, code.spacing / 100, 500, "a")
    assert float((added(small, spiked, shares, cells)[1] - spiked.mean(0)).abs().max()) > 0.1


def test_no_device_sends_a_vector_with_too_little_noise():
    code = ModularCode(16, 1.0, 4, "a")
    with pytest.raises(AssertionError, match="less noise"):
        code.encode(torch.zeros(4), 1.0, 3, code.signs(STREAMS, 0, 1), stream(1))
