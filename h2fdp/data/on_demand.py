"""Synthetic data of networks too large to hold: each subnet's records are drawn when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.records import Records, Scaling
from h2fdp.data.synthetic import SubnetRecords, Synthetic, draw_sizes, draw_subnet
from h2fdp.streams import Streams

LARGEST_HELD = 100_000_000  # input values, 400 MB; larger data sets are drawn again at each use
_TEST_RECORDS = 50_000  # the test records of the first subnets, so many and the rest of the last one


@dataclass(frozen=True, eq=False)
class DrawnData:
    """A `DeviceData` that holds sizes and test records only; the same records as if all were held.

    Attributes:
        groups: name and number of devices of each subnet.
        sizes: (I,) number of records of each device.
    """

    recipe: Synthetic
    groups: Sequence[tuple[str, int]]
    streams: Streams
    sizes: NDArray[np.int64]
    name: str = "synthetic"
    validation: Records | None = None
    public: Records | None = None
    scaling: Scaling = field(default_factory=Scaling)
    class_names: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()

    @classmethod
    def of(cls, recipe: Synthetic, groups: Sequence[tuple[str, int]], streams: Streams) -> DrawnData:
        """The data of these subnets; only sizes are drawn."""
        sizes = [draw_sizes(recipe, name, devices, streams) for name, devices in groups]
        return cls(recipe, groups, streams, np.concatenate(sizes))

    @property
    def test_owners(self) -> None:
        """The test records are nobody's."""
        return None

    @property
    def classes(self) -> int:
        """Number of labels."""
        return self.recipe.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record."""
        return (self.recipe.features,)

    @property
    def values(self) -> int:
        """Input values over all devices."""
        return int(self.sizes.sum()) * self.recipe.features

    @cached_property
    def test(self) -> Records:
        """Test records of the first subnets."""
        parts: list[Records] = []
        for name, devices in self.groups:
            parts.append(self._draw(name, devices).test)
            if sum(map(len, parts)) >= _TEST_RECORDS:
                break
        return Records.joined(parts)

    def subnet(self, first: int, count: int) -> tuple[Records, NDArray[np.int64]]:
        """See `FederatedData.subnet`; draws the subnets that these devices are of."""
        starts = self._starts
        numbers = range(int(np.searchsorted(starts, first, "right")) - 1, int(np.searchsorted(starts, first + count)))
        drawn = Records.joined([self._draw(*self.groups[number]).train for number in numbers])
        begin = int(starts[numbers.start])
        offsets = np.concatenate([[0], np.cumsum(self.sizes[begin : int(starts[numbers.stop])])])
        wanted = offsets[first - begin : first - begin + count + 1]
        part = slice(int(wanted[0]), int(wanted[-1]))
        return Records(drawn.x[part], drawn.y[part]), wanted - wanted[0]

    def fingerprint(self) -> str:
        """A digest of the recipe, every device's size and the first subnet's records; the rest follows from them."""
        first = self._draw(*self.groups[0]).train
        digest = blake2b(repr((self.recipe, self.streams.seed, list(self.groups))).encode(), digest_size=16)
        for array in (self.sizes, first.x, first.y):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def _draw(self, name: str, devices: int) -> SubnetRecords:
        return draw_subnet(self.recipe, name, devices, self.streams)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """(N + 1,) number of the first device of each subnet."""
        return np.concatenate([[0], np.cumsum([devices for _, devices in self.groups])])
