"""Records of a user's own: a function from devices' names to them, handed in from Python or named by a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from h2fdp.config.module_names import failure
from h2fdp.config.own_parts import OwnPart
from h2fdp.data import DeviceData, FederatedData, from_function
from h2fdp.errors import UserError
from h2fdp.streams import Streams
from h2fdp.topology import Topology

DataSource = Callable[[Topology, Streams, Path | None], DeviceData]
DeviceFunction = Callable[[str], tuple[Any, Any]]


def own_data(function: DeviceFunction, test: tuple[Any, Any]) -> DataSource:
    """The data of a user's function from devices' names to (inputs, labels), with the test data."""

    def source(network: Topology, streams: Streams, root: Path | None) -> FederatedData:
        names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
        return from_function(function, names, test)

    return source


def named_data(part: OwnPart) -> DataSource:
    """The data of a function that a file names: for a device's name its records, for None the test data.

    The source raises a `UserError` with the user's line where the function fails.
    """

    def called(device: str | None) -> tuple[Any, Any]:
        try:
            records: tuple[Any, Any] = part.function(device)
        except Exception as error:
            whose = "the test data (device None)" if device is None else f"device {device}"
            raise UserError(f"{part.name} fails for {whose}: {failure(error)}", key="data") from error
        return records

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        return own_data(called, called(None))(network, streams, root)

    return source
