"""Public images, on which features are whitened: crops of the two photographs that come with scikit-learn, dead leaves.

`china.jpg` by danielbuechele and `flower.jpg` by vultilion, both Creative Commons Attribution 2.0; see README.txt in
scikit-learn's folder `datasets/images`. Dead leaves are discs that hide each other, whose statistics are close to those
of photographs (Lee, Mumford and Huang 2001, "Occlusion models for natural images"); a fixed seed draws them with the
published mean and deviation of a data set's pixels. No record of a device is among either.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.records import Scaling

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
    found = np.broadcast_to(_colours(rng, count, pixels)[:, :, None, None], (count, channels, side, side)).copy()
    for _ in range(_DISCS * side**2 // _SIDE**2):
        radius = (_SMALLEST**-2 - rng.random(count) * (_SMALLEST**-2 - largest**-2)) ** -0.5
        x, y = ((side + 2 * radius) * rng.random(count) - radius for _ in range(2))
        far = (right - x[:, None, None]) ** 2 + (down - y[:, None, None]) ** 2
        hidden = far < (radius**2)[:, None, None]
        found = np.where(hidden[:, None], _colours(rng, count, pixels)[:, :, None, None], found)
    return np.clip(found, 0, 1)


def _colours(rng: np.random.Generator, count: int, pixels: Scaling) -> NDArray[np.float32]:
    """A colour for each image: a common part, and one of each channel's own."""
    channels = len(pixels.mean)
    drawn = _GREY**0.5 * rng.standard_normal((count, 1)) + (1 - _GREY) ** 0.5 * rng.standard_normal((count, channels))
    found: NDArray[np.float32] = (np.array(pixels.mean) + np.array(pixels.deviation) * drawn).astype(np.float32)
    return found


SOURCE = "china.jpg by danielbuechele and flower.jpg by vultilion (CC BY 2.0), which come with scikit-learn"
_FILES = ("china.jpg", "flower.jpg")


def crops(count: int, side: int, seed: int = 0) -> NDArray[np.uint8]:
    """Square parts of the photographs, in grey, at random places and of random sizes, turned and mirrored at random.

    Sizes lie between `side` and the whole height on a logarithmic scale, as things are seen from any distance.

    Args:
        side: to which each part is scaled, in pixels.

    Returns:
        shape (count, 1, side, side), from 0 to 255; equal seeds, equal crops.

    >>> crops(2, 8).shape
    (2, 1, 8, 8)
    """
    from PIL import Image

    photographs = [Image.open(_folder() / name).convert("L") for name in _FILES]
    rng = np.random.Generator(np.random.Philox(seed))
    found = np.empty((count, 1, side, side), np.uint8)
    for place in range(count):
        photograph = photographs[place % len(photographs)]
        width, height = photograph.size
        most = min(width, height)
        size = side * (most / side) ** rng.random()
        left, top = rng.random() * (width - size), rng.random() * (height - size)
        part = photograph.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + size, top + size))
        pixels = np.rot90(np.asarray(part), int(rng.integers(4)))
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        found[place] = pixels
    return found


def _folder() -> Path:
    """Where scikit-learn keeps the photographs; it is not imported, which would take a second."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("public features are whitened on photographs of scikit-learn, which is not installed")
    return Path(found.origin).parent / "datasets" / "images"
