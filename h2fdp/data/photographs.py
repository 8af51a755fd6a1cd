"""Crops of the two photographs that come with scikit-learn: public images, on which features are whitened.

`china.jpg` by danielbuechele and `flower.jpg` by vultilion, both Creative Commons Attribution 2.0; see README.txt in
scikit-learn's folder `datasets/images`. No record of a device is among them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
