"""Scattering of images: moduli of wavelets, and of wavelets of these, averaged; and whitening of what it gives.

Bruna and Mallat 2013, "Invariant scattering convolution networks"; for private learning Tramer and Boneh 2021,
"Differentially private learning needs better features (or much more data)". Two scales and eight angles:

    order 0        x                                 averaged over cells
    order 1        |x * psi_{j, t}|                  j = 0, 1; t = 1..8
    order 2        ||x * psi_{0, t}| * psi_{1, t'}|  t, t' = 1..8

for each colour: 81 averages of each cell. The wavelets are truncated and the convolutions direct, with the border
reflected, so values are near those of libraries that work in the Fourier domain, not equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from h2fdp.arithmetic import on_threads, run_arithmetic
from h2fdp.data.feature_cache import kept
from h2fdp.data.public_features import SOURCE, PublicFeatures, crops, dead_leaves, digest, of_length_1, squared
from h2fdp.errors import UserError

ANGLES = 8
AVERAGES = 1 + 2 * ANGLES + ANGLES**2  # of each colour and cell
_MOST_VALUES = 4_000  # of an image: more cells are finer than wavelets of two scales resolve
SMALLEST_SIDE = 8  # the borders are reflected within the image, and every cell has a pixel of half the resolution
_WIDTH, _FREQUENCY = 0.8, 3 * math.pi / 4  # of the wavelet at scale 0; one scale on, double and half
_REACH = (3, 6)  # pixels to each side, by scale
_LEAST = 1e-12  # under the root of a modulus
_PIXELS_AT_ONCE = 50_000  # whose moduli fit into a processor's cache; from 80,000 on it took twice as long


def morlet(scale: int, angle: float) -> NDArray[np.complex128]:
    """The wavelet exp(i xi u) - beta under a Gaussian envelope, truncated; beta makes its sum 0.

    u is along the angle, in pixels; the envelope is half as wide along u as across (a slant of 4 / ANGLES).

    Args:
        scale: j; the width is 0.8 * 2^j pixels, the frequency xi is 3 pi / 4 / 2^j.
        angle: in radians, from the second axis (columns) to the first (rows).

    Returns:
        shape (2 r + 1, 2 r + 1), r = 3 at scale 0 and 6 at scale 1.

    >>> bool(abs(morlet(1, 0.3).sum()) < 1e-12)
    True
    """
    reach, width, frequency = _REACH[scale], _WIDTH * 2**scale, _FREQUENCY / 2**scale
    slant = 4 / ANGLES
    down, right = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float64)
    along = math.cos(angle) * right + math.sin(angle) * down
    across = math.cos(angle) * down - math.sin(angle) * right
    envelope = slant / (2 * math.pi * width**2) * np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
    wave = envelope * np.exp(1j * frequency * along)
    wavelet: NDArray[np.complex128] = wave - envelope * (wave.sum() / envelope.sum())
    return wavelet


def cells_of(colours: int, side: int) -> int:
    """Cells along a side: of four pixels, where an image then has no more than 4,000 averages.

    >>> cells_of(1, 28), cells_of(3, 32), cells_of(1, 8)
    (7, 4, 2)
    """
    return max(1, min(side // 4, math.isqrt(_MOST_VALUES // (AVERAGES * colours))))


def scattering(images: NDArray[Any]) -> NDArray[np.float32]:
    """Signed roots of the averages of all orders, over the cells of each image.

    The root brings the values of dim and bright images nearer to each other, as their logarithm would.

    Args:
        images: shape (n, colours, side, side), from 0 to 255 if they are bytes, else from 0 to 1; an even side.

    Returns:
        shape (n, colours * AVERAGES * cells * cells).

    >>> scattering(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 3888)
    """
    side = images.shape[2]
    assert images.shape[3] == side >= SMALLEST_SIDE, "square images, no smaller than the wavelets"
    assert side % 2 == 0, "the second scale takes every other pixel"
    divisor = 255.0 if images.dtype == np.uint8 else 1.0
    banks = [_bank(scale) for scale in range(2)]
    at_once = max(1, _PIXELS_AT_ONCE // math.prod(images.shape[1:]))
    averages = np.empty((len(images), images.shape[1] * AVERAGES * cells_of(images.shape[1], side) ** 2), np.float32)

    def scatter(first: int) -> None:
        with torch.no_grad():
            part = torch.from_numpy(images[first : first + at_once]).float() / divisor
            averages[first : first + at_once] = _averages(part, banks).numpy()

    on_threads(scatter, range(0, len(images), at_once))
    return averages


def _bank(scale: int) -> Tensor:
    """The wavelets of a scale: real parts by angle, then imaginary ones, (2 ANGLES, 1, ., .)."""
    waves = np.stack([morlet(scale, math.pi * number / ANGLES) for number in range(ANGLES)])
    return torch.from_numpy(np.concatenate([waves.real, waves.imag])[:, None]).float()


def _averages(images: Tensor, banks: list[Tensor]) -> Tensor:
    fine, coarse = _moduli(images, banks[0], 1), _moduli(images, banks[1], 2)
    # At half the resolution the wavelet of scale 1 is that of scale 0.
    second = _moduli(_means(fine, fine.shape[-1] // 2), banks[0], 1)
    count, colours = images.shape[:2]
    side = cells_of(colours, images.shape[-1])
    cells = [_means(each, side).reshape(count, colours, -1, side, side) for each in (images, fine, coarse, second)]
    averages = torch.cat(cells, 2)
    pixels = averages[:, :, 0]
    signs = pixels.sign()  # pixels that a user has standardised may be below 0
    averages.abs_().sqrt_()
    pixels.mul_(signs)
    return averages.flatten(1)


def _moduli(maps: Tensor, bank: Tensor, stride: int) -> Tensor:
    """(n, c, side, side) -> (n, c * ANGLES, side / stride, side / stride): each map's modulus with each wavelet."""
    (count, channels, side, _), reach = maps.shape, bank.shape[-1] // 2
    wide = functional.pad(maps, (reach,) * 4, mode="reflect").reshape(count * channels, 1, *(side + 2 * reach,) * 2)
    parts = functional.conv2d(wide, bank, stride=stride)
    parts.square_()  # in place: memory takes more of the time than arithmetic
    moduli = (parts[:, :ANGLES] + parts[:, ANGLES:]).add_(_LEAST).sqrt_()
    return moduli.reshape(count, channels * ANGLES, *moduli.shape[2:])


def _means(maps: Tensor, side: int) -> Tensor:
    """(n, c, ., .) -> (n, c, side, side): the mean of each cell, its pixels added row by row."""
    if maps.shape[-1] != 2 * side:
        return functional.adaptive_avg_pool2d(maps, side)
    total = maps[..., ::2, ::2] + maps[..., ::2, 1::2]  # the same sums as torch's, in a third of its time
    return total.add_(maps[..., 1::2, ::2]).add_(maps[..., 1::2, 1::2]).div_(4)


_FLOOR = 1e-6  # of the mean variance: directions in which public records do not differ are not blown up
_SPARE, _ITERATIONS = 32, 4  # directions in addition to those that are wanted, and iterations that turn to them


@dataclass(frozen=True, eq=False)
class Whitening:
    """z = (x - mean) @ axes: the directions in which public records differ most, each scaled to variance 1.

    Steps of gradient descent are as long in all directions then, and a clip norm cuts none of them off: whitening is
    the second-order step, with a public Hessian.

    Attributes:
        mean: shape (d,).
        axes: shape (d, size); orthogonal columns, by falling variance.
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def of(cls, public: NDArray[np.float32], size: int) -> Whitening:
        """Fit it on public records (n, d).

        >>> drawn = (np.random.default_rng(0).normal(size=(400, 3)) * [5, 3, 1]).astype("float32")
        >>> bool(abs(Whitening.of(drawn[:200], 2)(drawn[200:]).std() - 1) < 0.1)
        True
        """
        mean = public.mean(axis=0, dtype=np.float64).astype(np.float32)
        wide = public - mean
        assert 1 <= size <= min(wide.shape), "no more directions than public records or values"
        span = _leading(wide, min(size + _SPARE, *wide.shape))
        scores = (wide @ span).astype(np.float64)
        values, turned = np.linalg.eigh(scores.T @ scores / (len(wide) - 1))
        values, axes = values[::-1][:size], span @ turned[:, ::-1][:, :size]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(size)])  # else signs would differ by machine
        floor = _FLOOR * wide.var(axis=0).mean()
        return cls(mean, (axes / np.sqrt(values + floor)).astype(np.float32))

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, size)."""
        projected: NDArray[np.float32] = (x - self.mean).astype(np.float32, copy=False) @ self.axes
        return projected


def _leading(wide: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """(d, size) orthonormal columns that span the leading directions of (n, d), by subspace iteration: all directions
    of 4,000 values would take ten times as long (Halko, Martinsson and Tropp 2011, Algorithm 4.4)."""
    rng = np.random.Generator(np.random.Philox(0))
    records, span = torch.from_numpy(wide), torch.from_numpy(rng.standard_normal((wide.shape[1], size), np.float32))
    for _ in range(_ITERATIONS):
        span = torch.linalg.qr(records.T @ (records @ span))[0]
    axes: NDArray[np.float32] = span.numpy()
    return axes


_RECIPE = 4  # raised by whatever changes the features, so that those kept before are not taken
CROPS, _LEAVES = 6_000, 2_000  # public images
# The whitening of the most common images comes with the package: `experiments.whitening` writes it, and prints this.
SHIPPED, SHIPPED_SIDE = Path(__file__).with_name("whitening.npz"), 28
SHIPPED_DIGEST = "7d841bd130ad14897f38b067d2ed52a7"
_LARGEST_SIDE = 64
SIZE = 384  # features, where none is stated


def are_images(shape: tuple[int, ...]) -> bool:
    """Whether records of this shape have such features: grey or in three colours, and not smaller than the wavelets.

    >>> are_images((1, 28, 28)), are_images((784,)), are_images((3, 6, 6))
    (True, False, False)
    """
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST_SIDE


@dataclass(frozen=True)
class Scattering(PublicFeatures):
    """Scattering, made few and white by what was fitted on two photographs that come with scikit-learn (grey images) or
    on dead leaves, which a seed draws (images in colour).

    Attributes:
        channels, side: of the square images that are transformed; others are padded and scaled to it.
    """

    channels: int
    side: int
    size: int
    together = 1_000  # of a product, whose sums are ordered by the place of a row

    @classmethod
    def of(cls, shape: tuple[int, ...], size: int | None) -> Scattering:
        """The scattering of records of a shape (channels, height, width); small images have fewer features than `size`.

        Raises:
            UserError: these are no images.

        >>> Scattering.of((1, 8, 8), 512)
        Scattering(channels=1, side=8, size=324)
        """
        if not are_images(shape):
            text = f"public features are those of images, 1 or 3 channels of at least {SMALLEST_SIDE}x{SMALLEST_SIDE}"
            raise UserError(f"{text}; found records of shape {shape}", key="model.name")
        side = min(_LARGEST_SIDE, max(shape[1:]) + max(shape[1:]) % 2)
        return cls(shape[0], side, min(size or SIZE, shape[0] * AVERAGES * cells_of(shape[0], side) ** 2))

    @property
    def key(self) -> str:  # type: ignore[override]
        """A digest of all that the features depend on but the images."""
        fitted = SHIPPED_DIGEST if self.is_shipped else f"{CROPS}|{_LEAVES}"
        return digest(f"{_RECIPE}|{fitted}|{self.channels}|{self.side}|{self.size}")

    @property
    def is_shipped(self) -> bool:
        """Whether the package has its whitening."""
        return (self.channels, self.side) == (1, SHIPPED_SIDE) and self.size <= SIZE

    @property
    def note(self) -> str:
        """The note of `PublicFeatures` that names the images of the whitening."""
        source = SOURCE if self.channels == 1 else "dead leaves, images of discs that a fixed seed draws"
        return f"model public-features: whitened on {source}; no account covers these, and no device holds them"

    def rows(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, width) scattering coefficients of length 1, whitened; see `PublicFeatures`."""
        return of_length_1(_whitening(self)(scattering(squared(images, self.side))))

    def begin(self, count: int, meanwhile: Callable[[], None]) -> None:
        """Begin as `PublicFeatures` does, and fit the whitening."""
        super().begin(count, meanwhile)
        _whitening(self)


@cache
def _whitening(features: Scattering) -> Whitening:
    """Fitted on photographs, for grey images; on dead leaves for colours, of which two photographs have too few: on
    CIFAR-10 at epsilon 1, with no trusted node, photographs make 51 % and leaves 56 %."""
    if features.is_shipped:
        with np.load(SHIPPED, allow_pickle=False) as shipped:
            high, low, units = (shipped[name][..., : features.size] for name in ("high", "low", "units"))
            return Whitening(shipped["mean"], (256 * high.astype(np.float32) + low) * units)

    def fitted() -> NDArray[np.float32]:
        grey, side = features.channels == 1, features.side
        public = scattering(crops(CROPS, side) if grey else dead_leaves(_LEAVES, side))
        with run_arithmetic():
            whitening = Whitening.of(public, features.size)
        return np.concatenate([whitening.mean[:, None], whitening.axes], axis=1)

    both = kept(features.key, fitted)
    return Whitening(both[:, 0], both[:, 1:])
