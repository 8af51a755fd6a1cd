"""Scattering features: their formula, that they are public, and that they are computed once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import fftconvolve

from h2fdp.data import DATA_SETS, image_features, load
from h2fdp.data.dead_leaves import dead_leaves
from h2fdp.data.image_features import features_of
from h2fdp.data.images import Cifar10
from h2fdp.data.records import Records, Scaling
from h2fdp.data.scattering import ANGLES, AVERAGES, CELLS, morlet, scattering
from h2fdp.data.whitening import Whitening
from h2fdp.streams import Streams

GREY = Scaling(255.0, (0.5,), (0.25,))


def images(count: int, channels: int = 1, side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, side, side), dtype=np.uint8)


@pytest.mark.parametrize(
    ("scale", "number", "values"),
    [
        (0, 0, {(0, 0): 0.10240737, (1, 0): 0.08423801, (0, 1): -0.050297663 + 0.04025459j}),
        (0, 3, {(0, 0): 0.10329981, (1, 0): -0.045830827 + 0.050982352j, (0, 1): 0.04234145 + 0.073629774j}),
        (1, 1, {(0, 0): 0.025825376, (1, 0): 0.02117744 + 0.012625493j, (0, 1): 0.0076980256 + 0.023144012j}),
    ],
)
def test_wavelets_are_those_of_kymatio_but_for_their_tails(scale, number, values):
    """Its `morlet_2d` (0.3.0) at offsets (rows, columns); there the angle turns the other way round."""
    wave = morlet(scale, math.pi * number / ANGLES)
    middle = len(wave) // 2
    for (down, right), value in values.items():
        assert wave[middle + down, middle + right] == pytest.approx(value, abs=0.0003)


def by_scipy(image: np.ndarray) -> np.ndarray:
    """(side, side) -> (AVERAGES, CELLS, CELLS), each convolution by itself in the Fourier domain."""

    def modulus(x, wave, stride):
        reach = len(wave) // 2
        return np.abs(fftconvolve(np.pad(x, reach, mode="reflect"), wave[::-1, ::-1], "valid")[::stride, ::stride])

    def halved(x):
        return x.reshape(len(x) // 2, 2, -1, 2).mean((1, 3))

    waves = [[morlet(scale, math.pi * number / ANGLES) for number in range(ANGLES)] for scale in range(2)]
    fine = [modulus(image, wave, 1) for wave in waves[0]]
    coarse = [modulus(image, wave, 2) for wave in waves[1]]
    second = [modulus(halved(map_), wave, 1) for map_ in fine for wave in waves[0]]
    maps = [image, *fine, *coarse, *second]
    return np.sqrt([each.reshape(CELLS, len(each) // CELLS, CELLS, -1).mean((1, 3)) for each in maps])


def test_scattering_is_what_its_formula_says_for_each_colour():
    given = images(2, channels=3)
    found = scattering(given).reshape(2, 3, AVERAGES, CELLS, CELLS)
    for image, of in zip(given, found, strict=True):
        for channel, averages in zip(image, of, strict=True):
            np.testing.assert_allclose(averages, by_scipy(channel / 255), atol=2e-4)


def test_a_turned_image_has_turned_angles_in_turned_cells():
    """A quarter turn is half of the angles; scale 1 takes every other pixel, which a turn exchanges."""
    given = images(3)
    before, after = (
        scattering(np.ascontiguousarray(each)).reshape(3, AVERAGES, CELLS, CELLS)
        for each in (given, np.rot90(given, axes=(2, 3)))
    )
    turned = np.rot90(before, axes=(2, 3))
    half = [(number + ANGLES // 2) % ANGLES for number in range(ANGLES)]
    np.testing.assert_allclose(after[:, 1 : 1 + ANGLES], turned[:, 1 : 1 + ANGLES][:, half], atol=1e-4)
    second = slice(1 + 2 * ANGLES, None)
    pairs = turned[:, second].reshape(3, ANGLES, ANGLES, CELLS, CELLS)[:, half][:, :, half]
    np.testing.assert_allclose(after[:, second], pairs.reshape(3, -1, CELLS, CELLS), atol=1e-4)


def test_one_colour_all_over_has_no_waves():
    flat = scattering(np.full((1, 1, 16, 16), 64, np.uint8)).reshape(AVERAGES, -1)
    np.testing.assert_allclose(flat[0], math.sqrt(64 / 255), rtol=1e-6)
    assert flat[1:].max() < 2e-3


def test_dead_leaves_have_the_stated_colours_and_are_the_same_each_time():
    pixels = Scaling(255.0, (0.3, 0.5, 0.6), (0.1, 0.1, 0.15))
    leaves = dead_leaves(400, 3, 16, pixels)
    np.testing.assert_array_equal(leaves, dead_leaves(400, 3, 16, pixels))
    # Some four independent colours an image: a standard error of about 0.15 / sqrt(400 * 4); five of them.
    np.testing.assert_allclose(leaves.mean((0, 2, 3)), pixels.mean, atol=0.02)
    np.testing.assert_allclose(leaves.std((0, 2, 3)), pixels.deviation, rtol=0.1)
    near, far = (np.mean(leaves[..., gap:] == leaves[..., :-gap]) for gap in (1, 8))
    assert near > 3 * far > 0


def test_whitening_is_the_principal_axes_by_their_deviations():
    rng = np.random.default_rng(3)
    public = (rng.normal(size=(60, 8)) @ rng.normal(size=(8, 8)) + 5).astype(np.float32)
    white = Whitening.of(public, 3)(public)
    values = np.linalg.eigvalsh(np.cov(public.T.astype(np.float64)))[::-1]
    floor = 0.01 * public.astype(np.float64).var(axis=0).mean()
    np.testing.assert_allclose(np.cov(white.T), np.diag(values[:3] / (values[:3] + floor)), atol=1e-4)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-4)


@pytest.fixture
def few_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(image_features, "_LEAVES", 20)
    image_features._whitening.cache_clear()
    yield
    image_features._whitening.cache_clear()


@pytest.mark.usefixtures("few_leaves")
def test_features_of_a_record_depend_on_no_other_record():
    one, other = images(4), images(4, seed=1)
    other[2] = one[2]
    np.testing.assert_allclose(features_of(one, GREY, 6)[2], features_of(other, GREY, 6)[2], rtol=2e-3, atol=2e-3)


@pytest.mark.usefixtures("few_leaves")
def test_features_are_computed_once_for_the_same_images(monkeypatch, tmp_path):
    first = features_of(images(3), GREY, 5)
    (kept,) = (tmp_path / "h2fdp" / "features").iterdir()
    computed = []
    monkeypatch.setattr(image_features, "scattering", lambda part: computed.append(len(part)) or scattering(part))
    np.testing.assert_array_equal(features_of(images(3), GREY, 5), first)
    assert not computed
    features_of(images(3, seed=9), GREY, 5)
    assert computed == [3]
    kept.write_bytes(kept.read_bytes()[:90])  # a torn file is no features
    np.testing.assert_array_equal(features_of(images(3), GREY, 5), first)
    assert computed == [3, 3]


@pytest.mark.usefixtures("few_leaves")
def test_features_are_spread_over_devices_like_images(monkeypatch, tmp_path):
    labels = np.arange(40) % 10
    monkeypatch.setattr(Cifar10, "missing", lambda self, root: [])
    monkeypatch.setattr(Cifar10, "_read", lambda self, root, train: Records(images(40, 3, 8, seed=train), labels))
    data = load(DATA_SETS.read({"name": "cifar10-features", "size": 7, "partition": "iid"}), 4, Streams(1), tmp_path)
    assert (data.train.x.shape, data.train.x.dtype, data.shape, data.classes) == ((40, 7), np.float32, (7,), 10)
    assert data.sizes.tolist() == [10] * 4
    np.testing.assert_array_equal(data.test.x, features_of(images(40, 3, 8, seed=0), Cifar10.scaling, 7))
