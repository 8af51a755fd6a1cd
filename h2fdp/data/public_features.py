"""Images as features that no private record had a part in, for models that train in seconds and under much noise.

Scattering is fixed, and what makes its outputs few and white was fitted on two photographs that come with scikit-learn
(grey images) or on dead leaves, which a seed draws (images in colour).
The features of a record depend on that record alone, so no account has to cover them: neighbouring data sets have
neighbouring features (Tramer and Boneh 2021, "Differentially private learning needs better features").

The photographs are `china.jpg` by danielbuechele and `flower.jpg` by vultilion, both Creative Commons Attribution 2.0;
see README.txt in scikit-learn's folder `datasets/images`. Dead leaves are discs that hide each other, whose statistics
are close to those of photographs (Lee, Mumford and Huang 2001, "Occlusion models for natural images").
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.feature_cache import kept_array, kept_rows
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.images import bundled
from h2fdp.data.records import Records, Scaling
from h2fdp.data.scattering import AVERAGES, SMALLEST_SIDE, Whitening, cells_of, scattering
from h2fdp.errors import UserError

if TYPE_CHECKING:
    from h2fdp.data.encoders import Encoder

BIAS = 0.1  # a feature that is the same for all records; the others have length 1 together
_RECIPE = 4  # raised by whatever changes the features, so that those kept before are not taken
_CROPS = 6_000
_AT_ONCE = 1_000
_LARGEST_SIDE = 64
_TOLD = 5_000  # images, of which the wait is a matter of seconds

_COLOURS = Scaling(255.0, (0.47, 0.47, 0.47), (0.25, 0.25, 0.25))  # of no data set: a grey in the middle
_LEAVES = 2_000
SIZE = 384  # features by scattering, where none is stated


def are_images(shape: tuple[int, ...]) -> bool:
    """Whether records of this shape have such features: grey or in three colours, and not smaller than the wavelets.

    >>> are_images((1, 28, 28)), are_images((784,)), are_images((3, 6, 6))
    (True, False, False)
    """
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST_SIDE


@dataclass(frozen=True)
class PublicFeatures:
    """The map from images to features.

    Attributes:
        channels, side: of the square images that are transformed; others are padded and scaled to it.
        size: number of features besides the constant one.
        encoder: makes them, in place of scattering.
    """

    channels: int
    side: int
    size: int
    encoder: Encoder | None = field(default=None, repr=False)

    @classmethod
    def of(cls, shape: tuple[int, ...], size: int | None, encoder: Encoder | None = None) -> PublicFeatures:
        """For records of a shape (channels, height, width); of small images there are fewer than `size`.

        Raises:
            UserError: these are no images.

        >>> PublicFeatures.of((1, 8, 8), 512)
        PublicFeatures(channels=1, side=8, size=324)
        """
        if encoder is not None:
            return cls(shape[0], max(shape[1:]), encoder.size, encoder)
        if not are_images(shape):
            text = f"public features are those of images, 1 or 3 channels of at least {SMALLEST_SIDE}x{SMALLEST_SIDE}"
            raise UserError(f"{text}; found records of shape {shape}", key="model.name")
        side = min(_LARGEST_SIDE, max(shape[1:]) + max(shape[1:]) % 2)
        return cls(shape[0], side, min(size or SIZE, shape[0] * AVERAGES * cells_of(shape[0], side) ** 2))

    @property
    def note(self) -> str:
        """What every account of a run on these features says."""
        if self.encoder is not None:
            text = f"model public-features: by the encoder {self.encoder.declared}; no account covers what it learned"
            return f"{text} there, so no record of a device may be among that"
        source = SOURCE if self.channels == 1 else "dead leaves, images of discs that a fixed seed draws"
        return f"model public-features: whitened on {source}; no account covers these, and no device holds them"

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features of images (n, channels, height, width) from 0 to 1: (n, size + 1), of length 1 but for the last."""
        if self.encoder is not None:
            return self._centred(_encoded(self.encoder, images), images.shape[1:])
        white = _whitening(self.channels, self.side, self.size)(scattering(_squared(images, self.side)))
        return np.concatenate([_of_length_1(white), np.full((len(white), 1), BIAS, np.float32)], axis=1)

    def _centred(self, rows: NDArray[np.float16], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Features of what an encoder makes of images: less what it makes of photographs, on average.

        Outputs that are never negative have much in common, which is half their length. Without it more of the length
        that is clipped tells images apart; that of photographs costs no budget.
        """
        assert self.encoder is not None, "scattering is whitened"
        sides = shape[1:] if self.encoder.side is None else (_PART_SIDE, _PART_SIDE)
        parts = crops(_PARTS, max(sides), colours=self.channels)[:, :, : sides[0], : sides[1]]
        middle = _rows(self.encoder, parts, 0.0, 255.0).mean(axis=0, dtype=np.float64).astype(np.float32)
        features = np.full((len(rows), self.size + 1), BIAS, np.float32)
        centred = np.subtract(rows, middle, out=features[:, :-1])  # in place: there may be a gigabyte of them
        centred /= np.maximum(np.sqrt(np.einsum("ij,ij->i", centred, centred)), 1e-12)[:, None]
        return features

    def kept(
        self, images: NDArray[Any], lowest: float, highest: float, meanwhile: Callable[[], None] = lambda: None
    ) -> NDArray[np.float16]:
        """The same, of stored images from `lowest` to `highest`: from the user's cache, or computed and kept there.

        Args:
            meanwhile: called where that will take seconds.
        """
        if self.encoder is not None:
            rows = _rows(self.encoder, images, lowest, highest, meanwhile)
            return self._centred(rows, images.shape[1:]).astype(np.float16)

        def computed() -> NDArray[np.float16]:
            from h2fdp.arithmetic import on_threads

            if len(images) > _TOLD:
                print(f"note: computing public features of {len(images):,} images, once", file=sys.stderr)
                meanwhile()
            _whitening(self.channels, self.side, self.size)  # fitted once, before the threads ask for it

            def of(first: int) -> NDArray[np.float16]:
                pixels = images[first : first + _AT_ONCE].astype(np.float32)
                return self((pixels - lowest) / (highest - lowest)).astype(np.float16)

            none = np.empty((0, self.size + 1), np.float16)  # of no images there are no parts
            return np.concatenate([none, *on_threads(of, range(0, len(images), _AT_ONCE))])

        key = blake2b(f"{_RECIPE}|{self}|{lowest}|{highest}|{images.shape}|{images.dtype}|".encode(), digest_size=16)
        key.update(np.ascontiguousarray(images).view(np.uint8).data)
        return kept_array(key.hexdigest(), (len(images), self.size + 1), np.float16, computed)


def with_features(
    data: DeviceData, features: PublicFeatures, meanwhile: Callable[[], None] = lambda: None, computed: bool = True
) -> DeviceData:
    """A copy with features for inputs.

    Args:
        meanwhile: called where computing them will take seconds.
        computed: else they are zeros, which stand for them in what depends on their number alone.
    """
    assert isinstance(data, FederatedData), "images are not drawn"
    bounds = pixel_bounds(data)

    def of(records: Records | None) -> Any:
        if records is None:
            return None
        if not computed:
            return Records(np.broadcast_to(np.float32(0), (len(records), features.size + 1)), records.y)
        return Records(features.kept(records.x, *bounds, meanwhile).astype(np.float32), records.y)

    return replace(
        data,
        train=of(data.train),
        test=of(data.test),
        validation=of(data.validation),
        public=of(data.public),
        shape=(features.size + 1,),
        scaling=Scaling(),
    )


def pixel_bounds(data: DeviceData) -> tuple[float, float]:
    """The stored values of a black and of a white pixel: 0 and 1 before scaling; or those of public test images that
    lie outside, as of pixels that a user has standardised."""
    highest = 255.0 if data.test.x.dtype == np.uint8 and data.scaling.divisor == 1 else data.scaling.divisor
    if data.test.x.dtype == np.uint8 or data.test_owners is not None or not data.test.x.size:
        return 0.0, highest
    least, most = float(data.test.x.min()), float(data.test.x.max())
    return (0.0, highest) if least >= 0 and most <= highest else (least, most if most > least else least + 1)


_PARTS, _PART_SIDE = 256, 64  # of photographs; pixels, where the encoder resizes


def _encoded(encoder: Encoder, images: NDArray[np.float32]) -> NDArray[np.float16]:
    """(n, size) what an encoder makes of images, each by itself, at length 1."""
    if encoder.side is not None:
        squares = [_squared(each, encoder.side, "bicubic") for each in images[:, None]]
        images = np.concatenate(squares).clip(0, 1)
    return _of_length_1(encoder.features(images)).astype(np.float16)


def _rows(
    encoder: Encoder,
    images: NDArray[Any],
    lowest: float,
    highest: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> NDArray[np.float16]:
    """The same, of stored images: from the user's cache, or computed and kept there."""

    def of(part: NDArray[Any]) -> NDArray[np.float16]:
        return _encoded(encoder, (part.astype(np.float32) - lowest) / (highest - lowest))

    key = f"{encoder.key}|{lowest}|{highest}|{images.shape[1:]}|{images.dtype}"
    digest = blake2b(key.encode(), digest_size=16).hexdigest()
    return kept_rows(digest, encoder.size, images, of, f"features by {encoder.name}", meanwhile)


def _of_length_1(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _squared(images: NDArray[np.float32], side: int, mode: str = "bilinear") -> NDArray[np.float32]:
    """Images of side x side pixels: padded by their borders to squares, then scaled."""
    if images.shape[2:] == (side, side):
        return images
    import torch
    from torch.nn import functional

    height, width = images.shape[2:]
    down, right = max(width - height, 0), max(height - width, 0)
    wide = functional.pad(
        torch.from_numpy(images), (right // 2, right - right // 2, down // 2, down - down // 2), mode="replicate"
    )
    scaled = functional.interpolate(wide, size=(side, side), mode=mode, antialias=True)
    squared: NDArray[np.float32] = scaled.numpy()
    return squared


@cache
def _whitening(channels: int, side: int, size: int) -> Whitening:
    values = channels * AVERAGES * cells_of(channels, side) ** 2

    def fitted() -> NDArray[np.float32]:
        from h2fdp.arithmetic import run_arithmetic

        public = scattering(_public_images(channels, side))
        with run_arithmetic():
            whitening = Whitening.of(public, size)
        return np.concatenate([whitening.mean[:, None], whitening.axes], axis=1)

    key = blake2b(f"{_RECIPE}|{_CROPS}|{_LEAVES}|{channels}|{side}|{size}".encode(), digest_size=16).hexdigest()
    both = kept_array(key, (values, size + 1), np.float32, fitted)
    return Whitening(both[:, 0], both[:, 1:])


def _public_images(channels: int, side: int) -> NDArray[Any]:
    """Photographs, for grey images; dead leaves for colours, of which two photographs have too few: on CIFAR-10 at
    epsilon 1, with no trusted node, photographs make 51 % and leaves 56 %."""
    if channels == 1:
        return crops(_CROPS, side)
    return dead_leaves(_LEAVES, channels, side, _COLOURS)


_DISCS = 300  # of an image of 32x32 pixels: six layers
_SMALLEST = 1.0  # radius in pixels
_LARGEST = 0.75  # of the side
_GREY = 0.85  # share of a colour's variance that its channels have in common
_SIDE = 32


def dead_leaves(count: int, channels: int, side: int, pixels: Scaling, seed: int = 0) -> NDArray[np.float32]:
    """Discs at uniform places, with radii of density r^-3, so that images look alike at any distance.

    Args:
        pixels: mean and deviation of the colours, for each channel; its divisor is not used.

    Returns:
        shape (count, channels, side, side), from 0 to 1.

    >>> dead_leaves(2, 1, 8, Scaling(255.0, (0.5,), (0.2,))).shape
    (2, 1, 8, 8)
    """
    rng = np.random.Generator(np.random.Philox(seed))
    down, right = np.mgrid[:side, :side].astype(np.float32)
    largest = max(_LARGEST * side, 2 * _SMALLEST)
    images = np.broadcast_to(_colours(rng, count, pixels)[:, :, None, None], (count, channels, side, side)).copy()
    for _ in range(_DISCS * side**2 // _SIDE**2):
        radius = (_SMALLEST**-2 - rng.random(count) * (_SMALLEST**-2 - largest**-2)) ** -0.5
        x, y = ((side + 2 * radius) * rng.random(count) - radius for _ in range(2))
        far = (right - x[:, None, None]) ** 2 + (down - y[:, None, None]) ** 2
        hidden = far < (radius**2)[:, None, None]
        images = np.where(hidden[:, None], _colours(rng, count, pixels)[:, :, None, None], images)
    return np.clip(images, 0, 1)


def _colours(rng: np.random.Generator, count: int, pixels: Scaling) -> NDArray[np.float32]:
    """A colour for each image: a common part, and one of each channel's own."""
    channels = len(pixels.mean)
    drawn = _GREY**0.5 * rng.standard_normal((count, 1)) + (1 - _GREY) ** 0.5 * rng.standard_normal((count, channels))
    colours: NDArray[np.float32] = (np.array(pixels.mean) + np.array(pixels.deviation) * drawn).astype(np.float32)
    return colours


SOURCE = "china.jpg by danielbuechele and flower.jpg by vultilion (CC BY 2.0), which come with scikit-learn"
_FILES = ("china.jpg", "flower.jpg")


def crops(count: int, side: int, seed: int = 0, colours: int = 1) -> NDArray[np.uint8]:
    """Square parts of the photographs, at random places and of random sizes, turned and mirrored at random.

    Sizes lie between `side` and the whole height on a logarithmic scale, as things are seen from any distance.

    Args:
        side: to which each part is scaled, in pixels.
        colours: 1 for grey parts, or 3.

    Returns:
        shape (count, colours, side, side), from 0 to 255; equal seeds, equal crops.

    >>> crops(2, 8).shape
    (2, 1, 8, 8)
    """
    from PIL import Image

    folder = bundled("public features are whitened on photographs that come") / "images"
    photographs = [Image.open(folder / name).convert("L" if colours == 1 else "RGB") for name in _FILES]
    rng = np.random.Generator(np.random.Philox(seed))
    patches = np.empty((count, colours, side, side), np.uint8)
    for place in range(count):
        photograph = photographs[place % len(photographs)]
        width, height = photograph.size
        most = min(width, height)
        size = min(most, side * (most / side) ** rng.random())
        left, top = rng.random() * (width - size), rng.random() * (height - size)
        part = photograph.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + size, top + size))
        pixels = np.rot90(np.asarray(part), int(rng.integers(4)))
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        patches[place] = np.moveaxis(pixels, -1, 0) if colours > 1 else pixels
    return patches
