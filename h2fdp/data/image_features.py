"""`cifar10-features`: images as features that no private record had a part in, for models that train in seconds.

Scattering is fixed, and what makes its outputs few and white was fitted on dead leaves, which are drawn by a seed: the
features of a record depend on that record alone. So no account has to cover them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Hashable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect
from h2fdp.data.dead_leaves import dead_leaves
from h2fdp.data.images import Cifar10, ImageSet, user_cache
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Records, Scaling
from h2fdp.data.scattering import scattering
from h2fdp.data.source import PARTITION, DataOptions, DataRequest, Pool
from h2fdp.data.whitening import Whitening

_RECIPE = 1  # raised by whatever changes the features, so that those kept before are not taken
_LEAVES = 2_000
_AT_ONCE = 1_000
MOST = 1_000
Size = Annotated[int, Field(ge=1, le=MOST), Expect(f"a whole number from 1 to {MOST}")]


class Cifar10Features(DataOptions):
    """Scattering features of CIFAR-10, whitened on dead leaves.

    Attributes:
        partition: how records are spread over devices.
        size: number of features of an image; the first are those in which dead leaves differ most.
        images: whose features they are.
    """

    description: ClassVar[str] = "CIFAR-10 as public scattering features: 60,000 rows of 256 numbers, 10 classes"
    images: ClassVar[type[ImageSet]] = Cifar10
    nulls: ClassVar[bool] = False

    name: Literal["cifar10-features"] = "cifar10-features"
    partition: PartitionSection = PARTITION
    size: Size = 256

    @property
    def spread(self) -> PartitionSection:
        """As stated."""
        return self.partition

    def depends_on(self, request: DataRequest) -> Hashable:
        """The root and the size."""
        return request.root, self.size

    def load(self, request: DataRequest) -> Pool:
        """Features of shape (n, size), rounded to 16 bits; computed once (two minutes), then read from the cache.

        Raises:
            UserError: as for the images.
        """
        pool = self.images.model_validate({}).load(request)
        pixels = pool.scaling
        train, test = (
            Records(features_of(part.x, pixels, self.size).astype(np.float32), part.y)
            for part in (pool.train, pool.test)
        )
        return Pool(train, test, pool.classes, Scaling())


def features_of(images: NDArray[np.uint8], pixels: Scaling, size: int) -> NDArray[np.float16]:
    """The features of images (n, channels, side, side), shape (n, size): from the user's cache, or computed and kept.

    Args:
        pixels: the published mean and deviation of the data set's pixels, which dead leaves have too.
    """
    key = blake2b(f"{_RECIPE}|{_LEAVES}|{size}|{pixels}|{images.shape}|".encode(), digest_size=16)
    key.update(np.ascontiguousarray(images).data)
    with contextlib.suppress(OSError, RuntimeError, ValueError, EOFError):
        kept: NDArray[Any] = np.load(_kept(key.hexdigest()), allow_pickle=False)
        if kept.shape == (len(images), size) and kept.dtype == np.float16:
            return kept
    white = _whitening(images.shape[1], images.shape[2], pixels, size)
    parts = (images[first : first + _AT_ONCE] for first in range(0, len(images), _AT_ONCE))
    found = np.concatenate([white(scattering(part)).astype(np.float16) for part in parts])
    with contextlib.suppress(OSError, RuntimeError):  # no home, or nowhere to write: the next process computes again
        _keep(found, _kept(key.hexdigest()))
    return found


@cache
def _whitening(channels: int, side: int, pixels: Scaling, size: int) -> Whitening:
    return Whitening.of(scattering(dead_leaves(_LEAVES, channels, side, pixels)), size)


def _kept(key: str) -> Path:
    return user_cache() / "features" / f"{key}.npy"


def _keep(features: NDArray[np.float16], path: Path) -> None:
    """Written beside its place, then renamed: a process that reads meanwhile finds all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, features)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
