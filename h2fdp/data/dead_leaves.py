"""Dead leaves: images of discs that hide each other, whose statistics are close to those of photographs.

Lee, Mumford and Huang 2001, "Occlusion models for natural images". They are drawn by a fixed seed and the published
mean and deviation of a data set's pixels, so what is computed from them is public.
"""

from __future__ import annotations

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
