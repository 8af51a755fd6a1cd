"""Images as features that no private record had a part in, for models that train in seconds and under much noise.

The features of a record depend on that record alone, so no account has to cover them: neighbouring data sets have
neighbouring features (Tramer and Boneh 2021, "Differentially private learning needs better features"). What makes them
is scattering (`data.scattering`) or a frozen module (`data.encoders`), fitted on public images.

The photographs are `china.jpg` by danielbuechele and `flower.jpg` by vultilion, both Creative Commons Attribution 2.0;
see README.txt in scikit-learn's folder `datasets/images`. Dead leaves are discs that hide each other, whose statistics
are close to those of photographs (Lee, Mumford and Huang 2001, "Occlusion models for natural images").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from h2fdp.data.feature_cache import MANY, kept_rows
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.images import bundled
from h2fdp.data.records import Records, Scaling
from h2fdp.wording import note

BIAS = 0.1  # a feature that is the same for all records; the others have length 1 together


def _nothing() -> None:
    """Do nothing meanwhile: the default."""


class PublicFeatures(ABC):
    """A map from images to features.

    Attributes:
        size: number of features without the constant one.
        key: a digest of all that an image's features depend on but the images.
        called: the features, in words.
        note: the sentence that every account of a run on these features has.
        declared: the frozen module and its training data; None where there is none.
        together: images that are computed at once, where an image's bits depend on its place among these.
    """

    size: int
    key: str
    called: str = "public features"
    declared: str | None = None
    together: int = 1

    @property
    @abstractmethod
    def note(self) -> str:
        """The sentence that every account of a run on these features has."""

    @property
    def width(self) -> int:
        """Numbers of a row that is kept."""
        return self.size

    @abstractmethod
    def rows(self, images: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """(n, width) of length 1, of images (n, channels, height, width) from 0 to 1."""

    def finished(self, rows: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """(n, size + 1) the features of images with these rows."""
        features = np.full((len(rows), self.size + 1), BIAS, np.float32)
        features[:, :-1] = rows
        return features

    def begin(self, count: int, meanwhile: Callable[[], None]) -> None:
        """Tell the user before the rows of so many images are computed, and call `meanwhile`, where that takes long."""
        if count > MANY:
            note(f"computing {self.called} of {count:,} images, once")
            meanwhile()

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features of images (n, channels, height, width) from 0 to 1: (n, size + 1), of length 1 but for the last."""
        return self.finished(self.rows(images))

    def kept(
        self, images: NDArray[Any], lowest: float, highest: float, meanwhile: Callable[[], None] = _nothing
    ) -> NDArray[np.float32]:
        """The features, to 16 bits, of stored images from `lowest` to `highest`: from the user's cache, or kept there.

        Args:
            meanwhile: called where computing them will take seconds.
        """
        rows = self.stored_rows(images, lowest, highest, meanwhile)
        return self.finished(rows).astype(np.float16).astype(np.float32)

    def stored_rows(
        self, images: NDArray[Any], lowest: float, highest: float, meanwhile: Callable[[], None] = _nothing
    ) -> NDArray[np.float16]:
        """(n, width) see `kept` and `rows`."""

        def rows(part: NDArray[Any]) -> NDArray[np.floating[Any]]:
            return self.rows((part.astype(np.float32) - lowest) / (highest - lowest))

        key = digest(f"{self.key}|{lowest}|{highest}|{images.shape[1:]}|{images.dtype}")
        return kept_rows(key, self.width, images, rows, partial(self.begin, meanwhile=meanwhile), self.together)


def digest(facts: str) -> str:
    """32 hexadecimal digits."""
    return blake2b(facts.encode(), digest_size=16).hexdigest()


def of_length_1(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, d) each row divided by its norm."""
    unit: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def with_features(
    data: DeviceData, features: PublicFeatures, meanwhile: Callable[[], None] = _nothing, computed: bool = True
) -> FederatedData:
    """A copy with features for inputs.

    Args:
        meanwhile: called where computing them will take seconds.
        computed: else they are zeros, which stand for them in what depends on their number alone.
    """
    assert isinstance(data, FederatedData), "images are not drawn"
    bounds = pixel_bounds(data)

    def of(records: Records) -> Records:
        if not computed:
            return Records(np.broadcast_to(np.float32(0), (len(records), features.size + 1)), records.y)
        return Records(features.kept(records.x, *bounds, meanwhile), records.y)

    return replace(data.of_records(of), scaling=Scaling())


def pixel_bounds(data: DeviceData) -> tuple[float, float]:
    """The stored values of a black and of a white pixel: 0 and 1 before scaling; or those of public test images that
    lie outside, as of pixels that a user has standardised."""
    highest = 255.0 if data.test.x.dtype == np.uint8 and data.scaling.divisor == 1 else data.scaling.divisor
    if data.test.x.dtype == np.uint8 or data.test_owners is not None or not data.test.x.size:
        return 0.0, highest
    least, most = float(data.test.x.min()), float(data.test.x.max())
    return (0.0, highest) if least >= 0 and most <= highest else (least, most if most > least else least + 1)


def squared(images: NDArray[np.float32], side: int, mode: str = "bilinear") -> NDArray[np.float32]:
    """Images of side x side pixels: padded by their borders to squares, then scaled."""
    if images.shape[2:] == (side, side):
        return images
    height, width = images.shape[2:]
    down, right = max(width - height, 0), max(height - width, 0)
    wide = functional.pad(
        torch.from_numpy(images), (right // 2, right - right // 2, down // 2, down - down // 2), mode="replicate"
    )
    scaled = functional.interpolate(wide, size=(side, side), mode=mode, antialias=True)
    squared: NDArray[np.float32] = scaled.numpy()
    return squared


_DISCS = 300  # of an image of 32x32 pixels: six layers
_SMALLEST = 1.0  # radius in pixels
_LARGEST = 0.75  # of the side
_GREY = 0.85  # share of a colour's variance that its channels have in common
_SIDE = 32
_MEAN, _DEVIATION = 0.47, 0.25  # of pixels, of no data set


def dead_leaves(count: int, side: int, seed: int = 0) -> NDArray[np.float32]:
    """Discs at uniform places, with radii of density r^-3, so that images look alike at any distance.

    Returns:
        shape (count, 3, side, side), from 0 to 1.

    >>> dead_leaves(2, 8).shape
    (2, 3, 8, 8)
    """
    rng = np.random.Generator(np.random.Philox(seed))
    down, right = np.mgrid[:side, :side].astype(np.float32)
    largest = max(_LARGEST * side, 2 * _SMALLEST)
    images = np.broadcast_to(_colours(rng, count), (count, 3, side, side)).copy()
    for _ in range(_DISCS * side**2 // _SIDE**2):
        radius = (_SMALLEST**-2 - rng.random(count) * (_SMALLEST**-2 - largest**-2)) ** -0.5
        x, y = ((side + 2 * radius) * rng.random(count) - radius for _ in range(2))
        far = (right - x[:, None, None]) ** 2 + (down - y[:, None, None]) ** 2
        hidden = far < (radius**2)[:, None, None]
        images = np.where(hidden[:, None], _colours(rng, count), images)
    return np.clip(images, 0, 1)


def _colours(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """(count, 3, 1, 1) colours around a grey in the middle: a common part, and one of each channel's own."""
    drawn = _GREY**0.5 * rng.standard_normal((count, 1)) + (1 - _GREY) ** 0.5 * rng.standard_normal((count, 3))
    colours: NDArray[np.float32] = (_MEAN + _DEVIATION * drawn).astype(np.float32)
    return colours[:, :, None, None]


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
    from PIL import Image  # 0.1 s, for those who compute features

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
