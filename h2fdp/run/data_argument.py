"""What a user hands in as `data`: a data set's name, records, or records by device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from h2fdp.data import GIVEN, PythonData, from_python
from h2fdp.errors import UserError
from h2fdp.run.prepare import DeviceFunction


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
