"""Where an experiment's records come from: what its `data:` section names, a user's own function, arrays in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from h2fdp.config.own_answers import FAILURES, Words
from h2fdp.config.own_parts import OwnKind, OwnPart
from h2fdp.data.federate import DataSection, from_function, load
from h2fdp.data.federated import DeviceData
from h2fdp.data.from_python import PythonData, from_python
from h2fdp.data.source import GIVEN, DataRequest, Pool
from h2fdp.errors import UserError
from h2fdp.streams import Streams


class Subnet(Protocol):
    """An edge server and its devices."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def device_name(self, row: int) -> str: ...


class Network(Protocol):
    """Over which records are spread: the subnets of a topology."""

    @property
    def subnets(self) -> Sequence[Subnet]: ...


DataSource = Callable[[Network, Streams, Path | None], DeviceData]
DeviceFunction = Callable[[str], tuple[Any, Any]]
_FUNCTION = OwnKind("a function for records", reserved=("test",))  # from Python, with its test data


def configured_data(
    section: DataSection | OwnPart, pools: Callable[[DataRequest], Pool] = DataRequest.read
) -> DataSource:
    """The data of a `data:` section; `pools` see `load`."""
    if isinstance(section, OwnPart):
        return _by_function(section, section.given["test"] if section.from_python else None)

    def source(network: Network, streams: Streams, root: Path | None) -> DeviceData:
        groups = [(subnet.name, subnet.size) for subnet in network.subnets]
        return load(section, sum(size for _, size in groups), streams, root, groups=groups, pools=pools)

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

    def source(network: Network, streams: Streams, root: Path | None) -> DeviceData:
        names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
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
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
    return OwnPart(name, function, _FUNCTION, {"test": test_data}, from_python=True, where="Experiment", key="data")


def _by_device(data: Any) -> DeviceFunction | None:
    """Data by device as a function of its name; None where `data` is something else."""
    if isinstance(data, Mapping) and data and all(isinstance(each, (tuple, list)) for each in data.values()):
        records = dict(data)

        def of_device(name: str) -> Any:
            if name not in records:
                shown = ", ".join(sorted(records)[:5])
                raise UserError(f"there are no records of device {name}; found those of {shown}, ...", key="data")
            return records[name]

        return of_device
    is_function = callable(data) and not hasattr(data, "__getitem__")  # data sets of some libraries can be called
    return data if is_function and not isinstance(data, (str, PythonData)) else None


def given_records(data: Any, test_data: Any) -> PythonData | None:
    """Records from Python; None where `data` names a data set.

    Raises:
        UserError: see `from_python`; test data without records of one's own.
    """
    if isinstance(data, PythonData):
        return data
    named = isinstance(data, str) or (isinstance(data, Mapping) and "train" not in data)
    if not named:
        return from_python(data, test_data)
    if test_data is not None:
        raise UserError(f"the data set {data} has test records; leave it out", "Experiment", "test_data")
    return None
