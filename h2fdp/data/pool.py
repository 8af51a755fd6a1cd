"""What a loader is asked for and what it hands over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.records import Records
from h2fdp.data.scaling import Scaling
from h2fdp.streams import Streams


@dataclass(frozen=True)
class DataRequest:
    """A data set wanted.

    Attributes:
        name: of the data set.
        options: the keys of the checked `data:` section that mean something to it, with their values.
        groups: name and number of devices of each subnet, in the order of the devices.
        streams: where drawn data come from.
        root: folder of downloaded data sets, or None for the default.
    """

    name: str
    options: Mapping[str, Any]
    groups: Sequence[tuple[str, int]]
    streams: Streams
    root: Path | None

    @property
    def devices(self) -> int:
        """Number of devices over all groups."""
        return sum(count for _, count in self.groups)


@dataclass(frozen=True, eq=False)
class Pool:
    """All records of a data set, and who holds them if that is already decided.

    Attributes:
        owners: the device of each training record, shape (n,), int64; None when a partitioner is to decide.
        test_owners: the device of each test record, shape (n',), int64; None where they are nobody's.
    """

    train: Records
    test: Records
    classes: int
    scaling: Scaling
    owners: NDArray[np.int64] | None = None
    test_owners: NDArray[np.int64] | None = None


def _on_files(request: DataRequest) -> Hashable:
    return request.root


@dataclass(frozen=True)
class DataSet:
    """A registry line.

    Attributes:
        description: one line for `h2fdp datasets`.
        load: makes the pool.
        keys: the keys of the section that mean something to it, beside `name` and `validation`, with their defaults
            (None: no default).
        depends_on: of a request, what the pool depends on beside the data set's name.
    """

    description: str
    load: Callable[[DataRequest], Pool]
    keys: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    depends_on: Callable[[DataRequest], Hashable] = _on_files
