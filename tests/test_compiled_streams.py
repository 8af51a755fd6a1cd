"""Rows of random numbers by machine code: NumPy's bits, and the law that noise has to have."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

pytest.importorskip("numba")

from h2fdp import compiled_streams, streams
from h2fdp.compiled_streams import _layers, halves, normals, proved, uniforms

EDGE = 3.6541528853610088


def numpys(key, size):
    return np.random.Generator(np.random.Philox(key=key)).standard_normal(size, np.float32)


def drawn_by(keys, size):
    rows = np.empty((len(keys), size), np.float32)
    normals(halves(keys), rows)
    return rows


def keys_of(seed, count):
    words = np.random.Generator(np.random.PCG64(seed)).integers(0, 2**64, (count, 2), np.uint64).tolist()
    return [low | high << 64 for low, high in words]


def test_layers_have_equal_areas_under_which_the_bell_lies():
    """One layer has the area of a 256-th of all, to float32; the lowest one that of the tail, by quadrature, too."""
    heights, widths, sure = _layers()
    edges = widths[:256].astype(np.float64) * 2**23
    area = EDGE * math.exp(-(EDGE**2) / 2) + integrate.quad(lambda x: math.exp(-x * x / 2), EDGE, 40)[0]
    np.testing.assert_allclose(edges[0] * math.exp(-(EDGE**2) / 2), area, rtol=1e-6)
    others = edges[1:] * (heights[:-1].astype(np.float64) - heights[1:])
    np.testing.assert_allclose(others, area, rtol=3e-5)  # differences of neighbouring heights have lost digits
    np.testing.assert_allclose(heights[1:], np.exp(-(edges[1:] ** 2) / 2), rtol=1e-6)
    np.testing.assert_array_equal(widths[:256], -widths[256:])
    np.testing.assert_allclose(sure[2:] / 2**23, edges[1:-1] / edges[2:], rtol=2e-7)


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 7), (2, 255), (2, 256), (2, 257), (64, 16_384)])
def test_normals_are_numpys_to_the_bit(rows, size):
    keys = [0, 1, (1 << 128) - 1, 1 << 64, *keys_of(rows, rows)][-rows:]
    expected = np.stack([numpys(key, size) for key in keys])
    np.testing.assert_array_equal(drawn_by(keys, size).view(np.uint32), expected.view(np.uint32))
    if rows == 64:  # a million draws: 260 of them in the tail, whose law has a branch of its own
        assert 150 < (np.abs(expected) > EDGE).sum() < 400


def test_short_rows_of_many_keys_are_numpys_to_the_bit():
    keys = keys_of(5, 20_000)
    np.testing.assert_array_equal(drawn_by(keys, 11), np.stack([numpys(key, 11) for key in keys]))


def fits(draws, deviation=1.0):
    """Kolmogorov and Smirnov's distance is exceeded by one in 700,000 samples of the law: P = 2 exp(-2 x 2.7^2)."""
    return math.sqrt(draws.size) * stats.kstest(draws, stats.norm(scale=deviation).cdf).statistic < 2.7


def test_normals_have_their_law_and_no_other():
    draws = drawn_by(keys_of(8, 40), 5_000).ravel()
    assert fits(draws)
    assert not fits(draws, 2 / 3)
    assert not fits(draws, 3 / 2)


def test_tails_have_their_law_to_six_deviations():
    """Counts beyond 3, 3.7, 4, 5 and 6 are those of the law, each but for one sample in a million."""
    counts, keys, size = dict.fromkeys((3.0, 3.7, 4.0, 5.0, 6.0), 0), keys_of(9, 64), 1 << 20
    beyond = []
    for key in keys:
        draws = np.abs(drawn_by([key], size)[0])
        draws = draws[draws > 3].astype(np.float64)
        counts = {level: count + int((draws > level).sum()) for level, count in counts.items()}
        beyond.append(draws[draws > EDGE])

    def within(level, count):
        wanted = 2 * stats.norm.sf(level) * len(keys) * size
        return stats.poisson.cdf(count, wanted) > 5e-7 and stats.poisson.sf(count - 1, wanted) > 5e-7

    assert all(within(*each) for each in counts.items()), counts
    assert not any(within(level * 1.5, counts[level]) or within(level * 2 / 3, counts[level]) for level in (3.0, 4.0))
    tail = np.concatenate(beyond)  # 17,000, whose law is its own branch's
    uniform = stats.norm.sf(tail) / stats.norm.sf(EDGE)
    assert math.sqrt(tail.size) * stats.kstest(uniform, "uniform").statistic < 2.7


def test_streams_of_neighbouring_keys_do_not_resemble_each_other():
    """Correlations of 500 pairs of rows of 4,096 numbers exceed 5 / 64 in one of 3,000 sets."""
    keys = [*range(500), *(key << 64 for key in range(1, 501))]
    rows = drawn_by(keys, 4096)
    found = (rows[:-1] * rows[1:]).mean(axis=1)
    assert np.abs(found).max() < 5 / 64
    assert len({row.tobytes() for row in rows}) == len(keys)


def test_uniforms_are_numpys_to_the_bit_wherever_they_begin():
    keys, owners, steps = keys_of(3, 6), np.array([0, 2, 2, 1]), np.array([0, 3, 2**40, 5])
    drawn = np.empty((2, 4, 12))
    uniforms(halves(keys).reshape(2, 3, 2), owners, steps, drawn)
    for slot, row in np.ndindex(2, 4):
        bits = np.random.Philox(key=keys[3 * slot + owners[row]]).advance(int(steps[row]))
        np.testing.assert_array_equal(drawn[slot, row], np.random.Generator(bits).random(12))


def test_a_kernel_that_draws_other_bits_is_not_used(monkeypatch):
    assert proved() or not streams._KERNELS

    def off_by_one_bit(keys, drawn):
        normals(keys, drawn)
        drawn[-1, -1] = np.nextafter(drawn[-1, -1], np.float32(9))

    monkeypatch.setattr(streams, "_KERNELS", [])
    monkeypatch.setattr(compiled_streams, "normals", off_by_one_bit)
    assert not proved()
    streams.compile_rows()
    assert streams._KERNELS == []
