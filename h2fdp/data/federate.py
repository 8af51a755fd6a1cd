"""All data sets by name; and from a `data:` section, a user's function, or arrays in Python to records on devices.

A new data set is a class with its loader and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from h2fdp.config.named_options import Choices
from h2fdp.config.own_answers import FAILURES, Words
from h2fdp.config.own_parts import OwnKind, OwnPart
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.files import HuggingFace, Npz
from h2fdp.data.folders import Images
from h2fdp.data.from_python import PythonData, from_python
from h2fdp.data.images import Cifar10, Cifar100, Digits, FashionMnist, Mnist
from h2fdp.data.partition import NO_DEVICE, Integers, choose, gather, natural, partition, sizes_of
from h2fdp.data.published_sets import Femnist, Leaf, Shakespeare, StackOverflow, TinyImageNet
from h2fdp.data.records import Records, Scaling, alike, as_records
from h2fdp.data.source import GIVEN, DataOptions, DataRequest, DataSet, Given, Pool, part_of, pool_of
from h2fdp.data.synthetic import LARGEST_HELD, DrawnData, Synthetic
from h2fdp.data.tables import Table
from h2fdp.errors import UserError
from h2fdp.streams import Streams

RECORDS = OwnKind("a function for records")
_FORMATS = {
    "images": "folder imagefolder imagedir jpeg jpg png pictures photos",
    "table": "csv tsv parquet excel pandas dataframe tabular",
    "npz": "npy numpy array arrays",
    "huggingface": "hf datasets arrow",
}
DATA_SETS: Choices[DataOptions] = Choices(
    RECORDS,
    instead={
        word: f"is `{{name: {name}, path: ...}}` here (docs/data.md)"
        for name, words in _FORMATS.items()
        for word in words.split()
    },
)
_ALL: tuple[type[DataOptions], ...] = (
    Digits, FashionMnist, Mnist, Cifar10, Cifar100, TinyImageNet, Femnist, Shakespeare, StackOverflow,
    Synthetic, Images, Npz, Table, HuggingFace, Leaf
)  # fmt: skip
for _options in _ALL:
    DATA_SETS.register(_options)
DATA_SETS.register(Given)

DataSection = Annotated[DataOptions | OwnPart, DATA_SETS]


def describe() -> list[dict[str, str]]:
    """A row for each data set, for `h2fdp data`; nothing is loaded.

    >>> describe()[0]["name"]
    'digits'
    """
    return [
        {
            "name": options.model_fields["name"].default,
            "description": options.description,
            "keys": ", ".join(sorted(set(options.model_fields) - {"name"}, key=list(options.model_fields).index)),
        }
        for options in _ALL
    ]


BLOCK = 100  # devices that share a stream of drawn data when no subnets are named


def load(
    section: DataOptions,
    devices: int,
    streams: Streams,
    root: Path | None = None,
    *,
    groups: Groups | None = None,
    names: Sequence[str] = (),
    pools: Callable[[DataRequest], Pool] = DataRequest.read,
) -> DeviceData:
    """Load a data set and spread it over devices.

    The public records are set aside first, then validation records from the rest (of data with a validation
    part of their own only where a share is stated), then the others are partitioned. Of data that come with their
    owners, each device gives up its share of both, rounded down. With `test` the test records count as training records
    until devices have theirs, and then each device gives up its share for tests.

    Args:
        section: the checked `data:` section.
        devices: number of devices I.
        streams: the run's streams; the same seed gives the same data on the same devices.
        root: folder of the downloaded data sets; None for H2FDP_DATA or the user's cache.
        groups: name and number of devices of each subnet, in the order of devices; drawn data have one stream for
            each. None for blocks of 100.
        names: of the devices; owners of these names are these devices. Empty where they have none.
        pools: where the records come from: their files, or what was read of these before.

    Raises:
        UserError: data that are not there, do not fit the number of devices, or cannot be partitioned so.

    >>> from h2fdp.data.images import Digits
    >>> data = load(Digits(), devices=50, streams=Streams(1))
    >>> data.shape, data.classes, int(data.sizes.sum())
    ((1, 8, 8), 10, 1438)
    """
    assert devices >= 1, "a topology has devices"
    named = list(groups) if groups is not None else _blocks(devices)
    assert sum(count for _, count in named) == devices, "the groups make up the devices"
    if isinstance(section, Synthetic) and section.validation == section.public == 0:
        drawn = DrawnData.of(section, named, streams)
        if drawn.values > LARGEST_HELD:
            return drawn
    pool = pools(DataRequest(section, named, streams, root))
    chosen = section.partition_of(pool)
    if chosen != "natural":
        pool = replace(pool, owners=None, test_owners=None, owner_names=())
    if section.tested_on_devices is not None:
        pool = pool.together()
    given, test_owners = np.zeros(len(pool.train), dtype=np.int64), pool.test_owners
    if pool.owners is not None:
        rng = streams.open("", "partition")
        given, test_owners = natural(pool.owners, pool.test_owners, devices, rng, pool.owner_names, names)
    public = _hold_out(given, section.public, streams.open("", "public split"), "data.public")
    aside = public.copy()
    aside[~public] = _hold_out(given[~public], section.validation, streams.open("", "validation split"))
    if pool.owners is not None:
        owners = np.where(aside, NO_DEVICE, given)
    else:
        owners = np.full(len(pool.train), NO_DEVICE, dtype=np.int64)
        owners[~aside] = partition(chosen, pool.train.y[~aside], devices, streams.open("", "partition"), named)
    validation, open_part = (
        pool.train.part(np.flatnonzero(each)) if each.any() else None for each in (aside & ~public, public)
    )
    if not section.validation:
        validation = pool.validation
    pool = replace(pool, test_owners=test_owners)
    if section.tested_on_devices is not None:
        tests = _hold_out(owners, section.tested_on_devices, streams.open("", "device test split"), "data.test")
        pool = replace(pool, test=pool.train.part(np.flatnonzero(tests)), test_owners=owners[tests])
        owners[tests] = NO_DEVICE
    pool = replace(pool, validation=validation, scaling=section.scaled(pool.scaling))
    return _spread(section.name, pool, owners, devices, public=open_part, holders=_holders(pool, given, devices))


def from_function(
    function: Callable[[str], tuple[Any, Any]],
    device_names: Sequence[str],
    test: tuple[Any, Any],
    *,
    classes: int | None = None,
) -> FederatedData:
    """A user's own data: a function from a device's name to its inputs and labels.

    Args:
        function: called once for each device; returns x of shape (n_i, *shape) and y of shape (n_i,).
        device_names: in the order of the topology.
        test: x and y of the test set, alike.
        classes: number of labels; None for as many as the test labels show, which are public.

    Raises:
        UserError: arrays that are no records, or that differ in shape or type from device to device.

    >>> data = from_function(lambda name: ([[len(name), 0.5]], [1]), ["ab", "c"], test=([[1.0, 2.0]], [0]))
    >>> data.device(0).x, data.classes
    (array([[2. , 0.5]]), 2)
    """
    assert device_names, "a topology has devices"
    parts = [_given(function(device), f"the data of device {device}") for device in device_names]
    for device, records in zip(device_names, parts, strict=True):
        if not alike(records, parts[0]):
            shapes = f"{records.x.shape[1:]} {records.x.dtype}, not {parts[0].x.shape[1:]} {parts[0].x.dtype}"
            raise UserError(f"the inputs of device {device} have shape and type {shapes}", key="data")
    train = Records.joined(parts)
    test_records = _given(test, "the test data")
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    pool = pool_of((train, None), (test_records, None), None, classes, "data", scaling=Scaling())
    return _spread("custom", pool, owners, len(parts))


def _given(pair: Any, what: str) -> Records:
    """A user's pair of inputs and labels."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise UserError(f"{what}: expected a pair of inputs and labels, found {type(pair).__name__}", key="data")
    if np.asarray(pair[1]).dtype.kind == "f":
        text = "labels of a function are classes; real values come in arrays or files, with task: regression"
        raise UserError(f"{what}: {text}", key="data")
    return as_records(pair[0], pair[1], what)


def _blocks(devices: int) -> list[tuple[str, int]]:
    starts = range(0, devices, BLOCK)
    return [(f"block {start // BLOCK}", min(BLOCK, devices - start)) for start in starts]


def _holders(pool: Pool, given: Integers, devices: int) -> tuple[str, ...]:
    """The names of the owners whose records each device has."""
    if pool.owners is None or not pool.owner_names:
        return ()
    named: list[list[str]] = [[] for _ in range(devices)]
    for device, owner in np.unique(np.stack([given, pool.owners]), axis=1).T.tolist():
        named[device].append(pool.owner_names[owner])
    return tuple(map(", ".join, named))


def _hold_out(
    owners: Integers, share: float, rng: np.random.Generator, key: str = "data.validation"
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The records to hold out, a mask of shape (n,); each owner keeps at least one record."""
    if share == 0:
        return np.zeros(len(owners), dtype=np.bool_)
    sizes = sizes_of(owners, int(owners.max()) + 1)
    counts = np.minimum(np.floor(share * sizes).astype(np.int64), sizes - 1)
    if not counts.any():
        raise UserError(f"a share of {share} of these data does not hold out a single record", key=key)
    return choose(owners, counts, rng)


def _spread(name: str, pool: Pool, owners: Integers, devices: int, **others: Any) -> FederatedData:
    """The records of a pool on the devices that own them."""
    order, offsets = gather(owners, devices)
    assert (np.diff(offsets) > 0).all(), "every device holds a record"
    common = {each.name: getattr(pool, each.name) for each in fields(DataSet)}
    whole = pool.train.whole and pool.test.whole
    return FederatedData(**common, name=name, order=order, offsets=offsets, whole=whole, **others)


Groups = Sequence[tuple[str, int]]  # name and number of devices of each subnet, in the order of devices
DataSource = Callable[[Groups, Sequence[str], Streams, Path | None], DeviceData]  # of devices of these names
DeviceFunction = Callable[[str], tuple[Any, Any]]
_FUNCTION = OwnKind("a function for records", reserved=("test",))  # from Python, with its test data


def configured_data(
    section: DataSection | OwnPart, pools: Callable[[DataRequest], Pool] = DataRequest.read
) -> DataSource:
    """The data of a `data:` section; `pools` see `load`."""
    if isinstance(section, OwnPart):
        return _by_function(section, section.given["test"] if section.from_python else None)

    def source(groups: Groups, names: Sequence[str], streams: Streams, root: Path | None) -> DeviceData:
        return load(section, len(names), streams, root, groups=groups, names=names, pools=pools)

    return source


def _by_function(part: OwnPart, test: tuple[Any, Any] | None) -> DataSource:
    """The data of a user's own function: for a device's name its inputs and labels.

    The source raises a `UserError` where the function fails, with the user's line, or gives no records.

    Args:
        test: the test data; None where the function gives them too, for None in place of a name.
    """

    def called(device: str | None) -> tuple[Any, Any]:
        try:
            records: tuple[Any, Any] = part.function(device)
        except FAILURES as error:
            whose = "the test data (device None)" if device is None else f"device {device}"
            raise part.origin.failed("", error, f"fails for {whose}") from error
        return records

    def source(groups: Groups, names: Sequence[str], streams: Streams, root: Path | None) -> DeviceData:
        if isinstance(part.function, RecordsByName):
            part.function.check(names)
        try:
            tested = called(None) if test is None else test
            data = from_function(called, names, tested)
            first, again = data.device(0), from_function(called, names[:1], tested, classes=data.classes).device(0)
        except UserError as error:  # of the form of its records
            raise part.origin.located(error) from error.__cause__
        if not (np.array_equal(first.x, again.x) and np.array_equal(first.y, again.y)):
            raise part.origin.wrong("", f"the same records of device {names[0]} at each call", Words("other ones"))
        return data

    return source


def from_arguments(data: Any, test_data: Any, partition: Any) -> tuple[Any, PythonData | None]:
    """The `data:` section of what `h2fdp.Experiment` is given, and the records where these are arrays in Python.

    Raises:
        UserError: a partition that is stated twice, or of data that are spread already; test data of a data set that
            has some; see `from_python`.
    """
    if (function := _by_device(data)) is not None:
        if partition is not None:
            raise UserError("data by device are spread already; leave it out", "Experiment", "partition")
        return own_records(function, test_data), None
    given = given_records(data, test_data)
    section = data if given is None else {"name": GIVEN, **given.options}
    if partition is None:
        return section, given
    mapping = {"name": section} if isinstance(section, str) else dict(section)
    if "partition" in mapping:
        raise UserError("stated in data too; state it once", "Experiment", "partition")
    return {**mapping, "partition": partition}, given


def own_records(data: Any, test_data: Any) -> OwnPart:
    """The `data:` section of data by device from Python, and its test data.

    Raises:
        UserError: test data that are no pair.
    """
    function = _by_device(data) or data
    if not isinstance(test_data, tuple):
        raise UserError("a function for the devices' data needs test_data=(inputs, labels)", "Experiment", "data")
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    return OwnPart(name, function, _FUNCTION, {"test": test_data}, from_python=True, where="Experiment", key="data")


class RecordsByName:
    """Data by device, as a function of its name: a mapping from names to (inputs, labels)."""

    def __init__(self, records: Mapping[str, tuple[Any, Any]]) -> None:
        self._records = dict(records)

    def __call__(self, name: str) -> tuple[Any, Any]:
        """The records of a device."""
        return self._records[name]

    def check(self, names: Sequence[str]) -> None:
        """Refuse names that are not those of the devices.

        Raises:
            UserError: a device without records, or records of no device.
        """
        for text, some, others in (
            ("no records of device {}, found those of {}", names, self._records),
            ("records of {}, which is no device; the devices are {}", self._records, names),
        ):
            if strangers := [each for each in some if each not in others]:
                shown = ", ".join(list(map(str, others))[:5]) + (", ..." if len(others) > 5 else "")
                raise UserError(text.format(strangers[0], shown), key="data")


def _by_device(data: Any) -> DeviceFunction | None:
    """Data by device as a function of its name; None where `data` is something else."""
    if isinstance(data, Mapping) and data and all(isinstance(each, (tuple, list)) for each in data.values()):
        return RecordsByName(data)
    is_function = callable(data) and not hasattr(data, "__getitem__")  # data sets of some libraries can be called
    return data if is_function and not isinstance(data, (str, PythonData)) else None


def given_records(data: Any, test_data: Any) -> PythonData | None:
    """Records from Python; None where `data` names a data set.

    Raises:
        UserError: see `from_python`; test data without records of one's own.
    """
    if isinstance(data, PythonData):
        return data
    named = isinstance(data, str) or (isinstance(data, Mapping) and "train" not in map(part_of, data))
    if not named:
        return from_python(data, test_data)
    if test_data is not None:
        raise UserError(f"the data set {data} has test records; leave it out", "Experiment", "test_data")
    return None
