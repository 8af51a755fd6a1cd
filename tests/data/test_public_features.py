"""Scattering features: their formula, that they are public, and that they are computed once."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import fftconvolve

from h2fdp.data import feature_cache, public_features
from h2fdp.data import scattering as module
from h2fdp.data.federate import load
from h2fdp.data.images import Digits
from h2fdp.data.public_features import BIAS, pixel_bounds, with_features
from h2fdp.data.records import Records, Scaling
from h2fdp.data.scattering import ANGLES, AVERAGES, Scattering, Whitening, morlet, scattering
from h2fdp.streams import Streams

CELLS = 4  # of images of 16x16


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


def test_whitening_is_the_principal_axes_by_their_deviations():
    rng = np.random.default_rng(3)
    public = (rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8)) + 5).astype(np.float32)
    fitted = Whitening.of(public, 3)
    white = fitted(public)
    np.testing.assert_allclose(np.cov(white.T), np.eye(3), atol=1e-3)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-3)
    values, axes = np.linalg.eigh(np.cov(public.T.astype(np.float64)))
    along = np.abs((fitted.axes / np.linalg.norm(fitted.axes, axis=0)).T @ axes[:, ::-1][:, :3])
    np.testing.assert_allclose(along, np.eye(3), atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(fitted.axes, axis=0) ** -2, values[::-1][:3], rtol=1e-3)


@pytest.fixture
def few_crops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "CROPS", 60)
    monkeypatch.setattr(module, "_LEAVES", 40)
    module._whitening.cache_clear()
    yield
    module._whitening.cache_clear()


FEATURES = Scattering(1, 16, 6)


@pytest.mark.usefixtures("few_crops")
def test_a_record_is_of_length_1_with_a_constant_next_to_it():
    found = FEATURES(images(5).astype(np.float32) / 255)
    assert found.shape == (5, 7)
    np.testing.assert_allclose(np.linalg.norm(found[:, :-1], axis=1), 1, rtol=1e-5)
    assert (found[:, -1] == np.float32(BIAS)).all()


@pytest.mark.usefixtures("few_crops")
@pytest.mark.parametrize("shape", [(1, 16, 30), (3, 100, 80)])
def test_other_sides_are_padded_and_scaled(shape):
    features = Scattering.of(shape, 5)
    found = features(np.random.default_rng(1).random((2, *shape), np.float32))
    assert features.side % 2 == 0
    assert features.side <= 64
    assert found.shape == (2, 6)
    assert np.isfinite(found).all()


@pytest.mark.usefixtures("few_crops")
def test_devices_hold_the_features_of_their_images_and_the_same_labels():
    data = load(Digits(), 4, Streams(1))
    featured = with_features(data, Scattering.of(data.shape, 20))
    assert (featured.shape, featured.train.x.dtype, featured.scaling) == ((21,), np.float32, Scaling())
    assert pixel_bounds(data) == (0.0, 16.0)
    np.testing.assert_array_equal(featured.sizes, data.sizes)
    mine = Scattering.of(data.shape, 20)(data.device(2).x.astype(np.float32) / 16)
    np.testing.assert_allclose(featured.device(2).x, mine, atol=2e-3)
    np.testing.assert_array_equal(featured.device(2).y, data.device(2).y)


@pytest.mark.parametrize(
    ("x", "bounds"),
    [
        (np.array([0, 255], np.uint8), (0, 255)),
        (np.array([0.0, 1.0], np.float32), (0, 1)),
        (np.array([0.2, 0.7], np.float32), (0, 1)),
        (np.array([-2.1, 2.6], np.float32), (-2.1, 2.6)),
        (np.array([0.0, 255.0], np.float32), (0, 255)),
    ],
)
def test_black_and_white_follow_from_public_test_images(x, bounds):
    pixels = np.resize(x, (2, 1, 8, 8))

    class Data:
        test, test_owners, scaling = Records(pixels, np.zeros(2, np.int64)), None, Scaling()

    assert pixel_bounds(Data()) == pytest.approx(bounds)
    Data.test_owners = np.zeros(2, np.int64)  # where these belong to devices, nothing is read from them
    assert pixel_bounds(Data()) == (0, 255 if x.dtype == np.uint8 else 1)


@pytest.mark.usefixtures("few_crops")
def test_not_a_bit_of_a_records_features_moves_with_another_record():
    one, other = images(40), images(40, seed=1)
    other[2] = one[2]
    first, again = FEATURES.kept(one, 0, 255), FEATURES.kept(other, 0, 255)
    np.testing.assert_array_equal(first[2], again[2])
    assert (first[3] != again[3]).any()


@pytest.mark.usefixtures("few_crops")
def test_something_else_may_begin_where_many_features_are_computed_and_not_where_they_are_kept(monkeypatch, capsys):
    monkeypatch.setattr(public_features, "MANY", 30)
    called: list[int] = []
    for count in (30, 31, 31):
        FEATURES.kept(images(count), 0, 255, lambda: called.append(1))
        assert len(called) == (0 if count == 30 else 1)
    assert capsys.readouterr().err == "note: computing public features of 31 images, once\n"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "_BLOCK", 4)
    monkeypatch.setattr(Scattering, "together", 4)


def in_blocks(given: np.ndarray) -> np.ndarray:
    """The features of blocks of images that are computed together, to 16 bits."""
    pixels = given.astype(np.float32) / 255
    return np.concatenate([FEATURES(pixels[first : first + 4]) for first in range(0, len(given), 4)]).astype(np.float16)


@pytest.mark.usefixtures("few_crops", "small_blocks")
def test_what_is_kept_has_the_bits_of_images_that_are_computed_together_and_goes_on_after_an_interruption(monkeypatch):
    given, rows, asked = images(10), Scattering.rows, []
    expected = in_blocks(given)

    def ended(self, part):
        asked.append(len(part))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return rows(self, part)

    monkeypatch.setattr(Scattering, "rows", ended)
    with pytest.raises(KeyboardInterrupt):
        FEATURES.kept(given, 0, 255)
    for _ in range(2):
        np.testing.assert_array_equal(FEATURES.kept(given, 0, 255), expected)
    assert asked == [4, 4, 4, 2]


@pytest.mark.usefixtures("few_crops", "small_blocks")
@pytest.mark.parametrize("harm", ["cut", "swapped", "whitening cut", "emptied"])
def test_features_by_a_cache_that_was_harmed_are_computed_again_to_equal_bits(harm, tmp_path):
    given, folder = images(10), tmp_path / "h2fdp" / "features"
    before = FEATURES.kept(given, 0, 255)
    first, second, _ = sorted(folder.glob("*/*.npy"))
    if harm == "cut":
        first.write_bytes(first.read_bytes()[:-20])
    elif harm == "swapped":  # blocks of one key say whose rows they have
        one, other = first.read_bytes(), second.read_bytes()
        first.write_bytes(other)
        second.write_bytes(one)
    elif harm == "emptied":
        shutil.rmtree(folder)
    else:
        (whitening,) = folder.glob("*.npy")
        whitening.write_bytes(whitening.read_bytes()[:-20])
        first.unlink()
        module._whitening.cache_clear()
    np.testing.assert_array_equal(FEATURES.kept(given, 0, 255), before)


@pytest.mark.usefixtures("few_crops", "small_blocks")
def test_the_features_of_a_block_do_not_depend_on_other_blocks_in_the_cache():
    given = images(12)
    FEATURES.kept(given[2:], 0, 255)  # the same images, at other places of their blocks
    np.testing.assert_array_equal(FEATURES.kept(given, 0, 255), in_blocks(given))
