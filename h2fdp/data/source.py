"""What a data set is: its options in an experiment file, how its records are read, and what they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect, Options
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Records, Scaling
from h2fdp.errors import UserError
from h2fdp.streams import Streams

PARTITION = PartitionSection(labels_per_device=3)  # the paper's, Sec. 6.1
Classes = Annotated[int, Field(ge=2, le=65_536), Expect("a whole number from 2 to 65536")]
HeldOut = Annotated[float, Field(ge=0, lt=1), Expect("a number of at least 0 and below 1")]


DEVICES_TEST = (
    "data: accuracy and loss are measured, without noise, on records that belong to the devices; no account covers "
    "these records"
)
PUBLIC_RECORDS = (
    "data.public: the first model is trained on a share of the training records that counts as public; no account "
    "covers these records"
)


class DataOptions(Options):
    """The options of a data set under `data:`, with its loader.

    Attributes:
        description: one line for `h2fdp datasets`.
        on_disk: its records are read from files, which may be missing or wrong.
        validation: the share of the training records that is held out.
        public: the share of the training records that is set aside before, and counts as public: no account covers it.
    """

    description: ClassVar[str]
    on_disk: ClassVar[bool] = True

    validation: HeldOut = 0.0
    public: HeldOut = 0.0

    @abstractmethod
    def load(self, request: DataRequest) -> Pool:
        """All records of the data set."""

    @property
    def spread(self) -> PartitionSection:
        """How records that come without owners are spread over devices."""
        return PARTITION

    def scaled(self, scaling: Scaling) -> Scaling:
        """The constants between stored and model inputs, from those of the pool."""
        return scaling

    @property
    def tested_on_devices(self) -> float:
        """The share of each device's records that become test records; 0 where the data set has its own."""
        return 0.0

    def depends_on(self, request: DataRequest) -> Hashable:
        """What the pool depends on beside the data set's name."""
        return request.root


class Pooled(DataOptions):
    """A data set of one pool of records, which a partitioner spreads over devices, with public scaling constants.

    Attributes:
        partition: how records are spread over devices.
        normalize: `standard` subtracts and divides by public constants of the data set; `unit` maps pixels to 0..1.
        device_test_share: the share of each device's records that become its test records, training and test records
            having been put together before; 0 for the test records of the data set, which are nobody's.
    """

    partition: PartitionSection = PARTITION
    normalize: Literal["standard", "unit", "symmetric"] = "standard"
    device_test_share: HeldOut = 0.0

    @property
    def spread(self) -> PartitionSection:
        """As stated."""
        return self.partition

    def scaled(self, scaling: Scaling) -> Scaling:
        """The constants, the division alone, or the division to numbers from -1 to 1."""
        return {"standard": scaling, "unit": scaling.unit(), "symmetric": scaling.symmetric()}[self.normalize]

    @property
    def tested_on_devices(self) -> float:
        """`device_test_share`."""
        return self.device_test_share


def split_off(records: int, share: float, key: str = "data") -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of so many records stay, and which become test records: the same in every run, by a hash of their numbers.

    Raises:
        UserError: a share that leaves nothing on one side.

    >>> [part.tolist() for part in split_off(5, 0.4)]
    [[0, 1, 2], [3, 4]]
    """
    if not 0 < share < 1 or not 0 < int(share * records) < records:
        raise UserError(f"expected a share that leaves records on both sides, found {share:g} of {records}", key=key)
    order = sorted(range(records), key=lambda place: blake2b(place.to_bytes(8, "little")).digest())
    count = int(share * records)
    return np.sort(np.array(order[count:])), np.sort(np.array(order[:count]))


@dataclass(frozen=True)
class DataRequest:
    """A data set wanted.

    Attributes:
        options: which one, and its options.
        groups: name and number of devices of each subnet, in the order of the devices.
        streams: where drawn data come from.
        root: folder of downloaded data sets, or None for the default.
    """

    options: DataOptions
    groups: Sequence[tuple[str, int]]
    streams: Streams
    root: Path | None

    @property
    def devices(self) -> int:
        """Number of devices over all groups."""
        return sum(count for _, count in self.groups)

    @property
    def origin(self) -> Hashable:
        """Requests of equal origins are answered by equal pools, as long as no file changes."""
        return self.options.name, self.options.depends_on(self)

    def read(self) -> Pool:
        """All records of the data set."""
        return self.options.load(self)


@dataclass(frozen=True, eq=False)
class Pool:
    """All records of a data set, and who holds them if that is already decided.

    Attributes:
        owners: a number for who holds each training record, shape (n,); None when a partitioner is to decide.
        test_owners: the same of each test record, shape (n',); None where they are nobody's.
        validation: the data set's own validation records; None where it has none.
        class_names: what the labels are called, in order; empty where they are numbers alone.
        owner_names: the same of `owners`.
    """

    train: Records
    test: Records
    classes: int
    scaling: Scaling
    owners: NDArray[np.int64] | None = None
    test_owners: NDArray[np.int64] | None = None
    validation: Records | None = None
    class_names: tuple[str, ...] = ()
    owner_names: tuple[str, ...] = ()

    def together(self) -> Pool:
        """The same with the test records among the training records; there are none beside.

        Raises:
            UserError: it is known who holds the training records, not who holds the test records.
        """
        train = Records.joined([self.train, self.test])
        if self.owners is None:
            return replace(self, train=train, test=self.test.part(slice(0)))
        if self.test_owners is None:
            raise UserError("nobody holds the test records of these data; expected 0", key="data.device_test_share")
        owners = np.concatenate([self.owners, self.test_owners])
        return replace(self, train=train, test=self.test.part(slice(0)), owners=owners, test_owners=None)
