"""Data sets: their options in an experiment file, their loaders, and the records that they give."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from h2fdp.config.fields import BY_SHAPE, Expect, FilePath, Options, Text
from h2fdp.data.augmentation import AugmentKey
from h2fdp.data.columns import Columns
from h2fdp.data.partition import Partition, PartitionKey, PartitionSection
from h2fdp.data.records import Records, Scaling, class_count
from h2fdp.data.statistics import StatisticSection
from h2fdp.data.targets import CLASS, Target, Task
from h2fdp.errors import UserError
from h2fdp.streams import Streams

LABELS_3 = PartitionSection(labels_per_device=3)  # the paper's, Sec. 6.1
TEST_SHARE = 0.2  # of records that come without test records
VALIDATION = ("validation", "valid", "val", "dev")  # what files call that part
_PARTS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_PARTS |= dict.fromkeys(VALIDATION, VALIDATION[0])
Classes = Annotated[int, Field(ge=2, le=65_536), Expect("a whole number from 2 to 65536")]
HeldOut = Annotated[float, Field(ge=0, lt=1), Expect("a number of at least 0 and below 1")]
Share = Annotated[float, Field(gt=0, lt=1), Expect("a number between 0 and 1")]
PreludeKey = Annotated[
    Literal["auto"] | list[StatisticSection],
    BY_SHAPE,
    Expect("auto, or a list of statistics, as [bounds, moments]"),
]


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
        description: one line for `h2fdp data`.
        on_disk: its records are read from files, which may be missing or wrong.
        spread: the partition of records without owners, where none is stated.
        suits: the model that `auto` takes of texts.
        validation: the share of the training records that is held out; 0: the validation part of the data, if any.
        public: the share of the training records that is set aside before, and counts as public: no account covers it.
        test: the share of each device's records that become its test records, after training and test records were put
            together; null: the test records of the data, which no device has, or a fifth of all records.
        partition: who holds which records; null: each owner is a device where the data name owners, else `iid`, or
            `{labels_per_device: 3}` for `npz` and the data sets that have names. `synthetic` has tasks that differ,
            and takes `iid` alone, by which all devices share one task and one distribution of inputs.
        prelude: statistics of inputs that are released, with noise, before training, and by which they are scaled:
            `auto`, where a model standardises and no public record says how large they are; or a list of `bounds`,
            `moments` and parts of your own, as `[bounds, moments]`; `[]` for none.
        augment: how images are flipped and moved in each step; `[flip, crop]` is `{flip: true, crop: 4, times: 4}`.
    """

    description: ClassVar[str]
    on_disk: ClassVar[bool] = True
    nulls: ClassVar[bool] = False
    spread: ClassVar[Partition] = "iid"
    suits: ClassVar[str | None] = None

    validation: HeldOut = 0.0
    public: HeldOut = 0.0
    test: Share | None = None
    partition: PartitionKey = None
    prelude: PreludeKey = "auto"
    augment: AugmentKey = None

    @property
    def stated_task(self) -> Task:
        """The task as far as the file says; sequences show themselves."""
        task: Task | None = getattr(self, "task", None)
        return task or CLASS.task

    @abstractmethod
    def load(self, request: DataRequest) -> Pool:
        """All records of the data set."""

    def partition_of(self, pool: Pool) -> Partition:
        """The partition as stated, else by owner where there are owners."""
        if self.partition is not None:
            by_label = isinstance(self.partition, PartitionSection) and self.partition.by_label
            if by_label and pool.target.task != CLASS.task:
                text = f"spreads records by their classes, and {pool.target.task} has none"
                raise UserError(f"{text}; expected iid, natural (with data.by), or sizes alone", key="data.partition")
            return self.partition
        if pool.owners is not None:
            return "natural"
        return self.spread if pool.target.task == CLASS.task else "iid"

    def scaled(self, scaling: Scaling) -> Scaling:
        """The constants between stored and model inputs, from those of the pool."""
        return scaling

    @property
    def tested_on_devices(self) -> float | None:
        """The share of each device's records that become test records; None where there are test records."""
        return self.test

    def depends_on(self, request: DataRequest) -> Hashable:
        """The settings other than the data set's name on which the pool depends."""
        return request.root


class Pooled(DataOptions):
    """A data set of one pool of records, which a partitioner spreads over devices, with public scaling constants.

    Attributes:
        normalize: `standard` subtracts and divides by public constants of the data set, which `images` of your own
            have none of; `unit` maps pixels to 0..1, `symmetric` to -1..1.
    """

    spread: ClassVar[Partition] = LABELS_3

    normalize: Literal["standard", "unit", "symmetric"] = "standard"

    def scaled(self, scaling: Scaling) -> Scaling:
        """The constants, the division alone, or the division to numbers from -1 to 1."""
        divisor = scaling.divisor
        choices = {"standard": scaling, "unit": Scaling(divisor), "symmetric": Scaling(divisor, (0.5,), (0.5,))}
        return choices[self.normalize]


class FromFiles(DataOptions):
    """A data set in files of the user.

    Attributes:
        path: path of the file or folder; the page on data describes its contents.
    """

    path: FilePath

    def depends_on(self, request: DataRequest) -> Hashable:
        """The files, and how they are read."""
        return repr(self.model_dump(exclude={"partition", "validation", "public", "test", "augment"}))


class WithOwners(FromFiles):
    """Records in files that say who holds them.

    Attributes:
        by: the column with the owner of each record (`images`: of metadata.csv); null for none.
    """

    by: Text | None = None


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
    def origin(self) -> Hashable:
        """Requests of equal origins are answered by equal pools, as long as no file changes."""
        return self.options.name, self.options.depends_on(self)

    def read(self) -> Pool:
        """All records of the data set."""
        return self.options.load(self)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Records and their description.

    Attributes:
        train, test: training records, and records to measure accuracy on.
        classes: number of scores of a record, or of a position: see `Target`.
        scaling: the public constants between stored and model inputs.
        validation: records to choose by; None where there are none.
        test_owners: a number for who holds each test record, shape (n',); None where no device owns them.
        class_names: the names of the labels, in order; empty where they are numbers alone.
        columns: of a table; None where inputs are no columns.
        target: the kind of labels, and the public scale of real values.
    """

    train: Records
    test: Records
    classes: int
    scaling: Scaling
    validation: Records | None = None
    test_owners: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    columns: Columns | None = None
    target: Target = CLASS

    @property
    def shape(self) -> tuple[int, ...]:
        """One record's shape; images are channels first."""
        return self.train.x.shape[1:]


@dataclass(frozen=True, eq=False)
class Pool(DataSet):
    """All records of a data set, and who holds them if that is already decided.

    Attributes:
        owners: a number for who holds each training record, shape (n,); None when a partitioner is to decide.
        owner_names: the names of the owners, in order; empty where they are numbers alone.
    """

    owners: NDArray[np.int64] | None = None
    owner_names: tuple[str, ...] = ()

    def together(self) -> Pool:
        """A copy with the test records among the training records, and none apart.

        Raises:
            UserError: the training records have owners, and the test records none.
        """
        train = Records.joined([self.train, self.test])
        if self.owners is None:
            return replace(self, train=train, test=self.test.part(slice(0)))
        if self.test_owners is None:
            raise UserError("no device has the test records of these data; leave it out", key="data.test")
        owners = np.concatenate([self.owners, self.test_owners])
        return replace(self, train=train, test=self.test.part(slice(0)), owners=owners, test_owners=None)


Owned = tuple[Records, NDArray[Any] | None]  # records, and the name of who holds each


def pool_of(
    train: Owned,
    test: Owned | float,
    validation: Records | None,
    classes: int | Sequence[Any] | None,
    what: str,
    task: Task | None = None,
    bounds: tuple[str, Sequence[float] | None] = ("y", None),
    scaling: Scaling | None = None,
) -> Pool:
    """Records whose owners have names.

    Args:
        test: the test records, or the share of the training records that becomes these.
        classes: their number, or what they are called in order; None for as many as the test labels show.
        task, bounds: see `Target.of`: where and how real values are bounded.
        scaling: null: 8-bit inputs are divided by 255, others taken as they are.

    Raises:
        UserError: see `split_off`, `class_count` and `Target.of`.
    """
    records, owners = train
    if isinstance(test, float):
        kept, rest = split_off(len(records), test)
        test = records.part(rest), None if owners is None else owners[rest]
        records, owners = records.part(kept), None if owners is None else owners[kept]
    count = classes if isinstance(classes, int) or classes is None else max(2, len(classes))
    target = Target.of(task, records.y, bounds[1], bounds[0])
    number = class_count(records, test[0], count, what, validation, target)
    called = () if isinstance(classes, int) or classes is None else tuple(map(str, classes))
    if owners is not None and owners.dtype.kind == "f" and (owners == np.floor(owners)).all():
        owners = owners.astype(np.int64)  # their names are 1, 2, ... as those of devices, and not 1.0
    try:
        names, numbers = () if owners is None else tuple(map(str, np.unique(owners))), numbered(owners, test[1])
    except TypeError:  # texts and numbers have no order
        kinds = sorted({type(each).__name__ for of in (owners, test[1]) if of is not None for each in of.tolist()})
        raise UserError(f"{what}: owners are of the types {' and '.join(kinds)}; expected one", key="data.by") from None
    stored = scaling or Scaling(255.0 if records.x.dtype == np.uint8 else 1.0)
    pool = Pool(records, test[0], number, stored, validation, numbers[1], called, target=target)
    return replace(pool, owners=numbers[0], owner_names=names)


def split_off(records: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The records that stay, and those that become test records, equal in every run: by a hash of their numbers.

    Raises:
        UserError: a share that leaves nothing on one side.

    >>> [part.tolist() for part in split_off(5, 0.4)]
    [[0, 1, 2], [3, 4]]
    """
    if not 0 < share < 1 or not 0 < int(share * records) < records:
        text = f"expected a share that leaves records on both sides, found {share:g} of {records}"
        raise UserError(text, key="data")
    order = sorted(range(records), key=lambda place: blake2b(place.to_bytes(8, "little")).digest())
    count = int(share * records)
    return np.sort(np.array(order[count:])), np.sort(np.array(order[:count]))


def numbered(
    owners: NDArray[Any] | None, test_owners: NDArray[Any] | None
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Owners by any name as numbers, in the order of the names; test owners only where all hold training records."""
    if owners is None:
        return None, None
    names, numbers = np.unique(owners, return_inverse=True)
    if test_owners is None or not np.isin(test_owners, names).all():
        return numbers.astype(np.int64), None
    return numbers.astype(np.int64), np.searchsorted(names, test_owners).astype(np.int64)


def part_of(name: str) -> str | None:
    """The part (train, test, validation) that a file, a folder or a split of this name is; None for none of them.

    >>> part_of("Training"), part_of("dev"), part_of("cat")
    ('train', 'validation', None)
    """
    return _PARTS.get(name.lower())


def splits_of(source: Any) -> tuple[Any, Any, Any]:
    """The training, test and validation part of a mapping of splits; else the source, and None twice.

    Where there is no test part, the validation part is it.

    >>> splits_of({"train": 1, "dev": 2})
    (1, 2, None)
    """
    if not isinstance(source, Mapping):
        return source, None, None
    named = {str(name).lower(): name for name in source}
    parts: dict[str, Any] = {}
    for name in filter(named.__contains__, _PARTS):  # the usual names come first
        parts.setdefault(_PARTS[name], source[named[name]])
    if "train" not in parts:
        return source, None, None
    train, test, validation = (parts.get(part) for part in ("train", "test", VALIDATION[0]))
    return (train, validation, None) if test is None else (train, test, validation)


GIVEN = "given"


class Given(DataOptions):
    """Records that Python handed over; a configuration only says that it did.

    Attributes:
        task: what a label is, see `npz`.
    """

    description: ClassVar[str] = "records handed over in Python"
    on_disk: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    name: Literal["given"] = "given"
    task: Task | None = None
    _pool: Pool | None = PrivateAttr(None)

    def holding(self, pool: Pool) -> Given:
        """A copy of the options with records."""
        options = self.model_copy()
        options._pool = pool
        return options

    def depends_on(self, request: DataRequest) -> Hashable:
        """The records themselves."""
        return id(self._pool)

    def load(self, request: DataRequest | None = None) -> Pool:
        """The records as they were handed over.

        Raises:
            UserError: a file names them; only Python has them.
        """
        if self._pool is None:
            text = "records of this kind are handed over in Python: Experiment(data=(x, y), test_data=(x, y))"
            raise UserError(text, key="data")
        return self._pool
