"""Where the records of a run come from: a data set, records of Python's, or a user's own function of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.config.own_answers import FAILURES, Words
from h2fdp.config.own_parts import OwnPart
from h2fdp.data import GIVEN, DataRequest, DeviceData, Pool, PythonData, from_function, from_python, load
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.streams import Streams
from h2fdp.topology import Topology

DataSource = Callable[[Topology, Streams, Path | None], DeviceData]
DeviceFunction = Callable[[str], tuple[Any, Any]]


def configured_data(config: ExperimentFile, pools: Callable[[DataRequest], Pool] = DataRequest.read) -> DataSource:
    """The data of a configuration; `pools` see `load`."""
    section = config.data
    if isinstance(section, OwnPart):
        return own_data(section)

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        groups = [(subnet.name, subnet.size) for subnet in network.subnets]
        return load(section, network.devices, streams, root, groups=groups, pools=pools)

    return source


def own_data(part: OwnPart, test: tuple[Any, Any] | None = None) -> DataSource:
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

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
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


def by_device(data: Any) -> DeviceFunction | None:
    """Data by device as a function of its name; None where `data` is something else."""
    if isinstance(data, Mapping) and data and all(isinstance(each, (tuple, list)) for each in data.values()):
        held = dict(data)

        def of_device(name: str) -> Any:
            if name not in held:
                shown = ", ".join(sorted(held)[:5])
                raise UserError(f"there are no records of device {name}; found those of {shown}, ...", key="data")
            return held[name]

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


def data_section(data: Any, given: PythonData | None, partition: Any) -> Any:
    section = {"name": GIVEN, **given.options} if given is not None else data
    if partition is None:
        return section
    mapping = {"name": section} if isinstance(section, str) else dict(section)
    if "partition" in mapping:
        raise UserError("stated in data too; state it once", "Experiment", "partition")
    return {**mapping, "partition": partition}


def is_given(section: Any) -> bool:
    return isinstance(section, dict) and section.get("name") == GIVEN
