"""Devices as columns of numbers: what models read of each device, and the table that holds it.

A column is declared once, by the model that reads it, as `columns = {"distance_m": Column(...)}`. Topology files, graph
formats, stars, summaries and pages follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, TypeAdapter, ValidationError

from h2fdp.config.fields import Expect, Magnitude, Positive
from h2fdp.errors import UserError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Wide bounds: beyond them lie slips of sign, unit or zeros, which are refused with line and key.
Cost = Annotated[float, Field(ge=0, le=1e9), Expect("a number from 0 to 1e9")]
Decibels = Annotated[float, Field(ge=-300, le=100), Expect("a number from -300 to 100")]


@dataclass(frozen=True)
class Column:
    """A number of each device, as the model declares it that reads it.

    Attributes:
        default: where a topology file states none.
        unit: as pages show it after the number.
        number: the type of the key in a file, as `Positive`; its bounds hold in arrays too.
        meaning: what the number is, for the list of keys.
        stream: the random stream that numbers are drawn from; empty for the column's own name.
        decimals: to which drawn numbers are rounded, so that files are short; None for all digits.
    """

    default: float
    unit: str
    number: Any
    meaning: str
    stream: str = ""
    decimals: int | None = 3

    @property
    def expected(self) -> str:
        """The values that would be right, for messages."""
        return next(each.text for each in get_args(self.number) if isinstance(each, Expect))

    @cached_property
    def _type(self) -> TypeAdapter[float]:
        return TypeAdapter(self.number)

    def allows(self, values: Floats) -> bool:
        """Whether all values are finite and within the bounds, by the lowest and the highest one."""
        try:
            for end in (values.min(initial=self.default), values.max(initial=self.default)):
                self._type.validate_python(float(end))
        except ValidationError:
            return False
        return bool(np.isfinite(values).all())

    def read_only(self, values: ArrayLike, key: str) -> Floats:
        """A read-only copy of (s,) values.

        Raises:
            UserError: under `key`, values that are no numbers of this column.
        """
        copy: Floats = np.array(values, dtype=np.float64)
        if copy.ndim != 1 or not self.allows(copy):
            raise UserError(f"expected for each device {self.expected}", key=key)
        copy.flags.writeable = False
        return copy


Cycles = Annotated[float, Field(ge=0, le=1e18), Expect("a number from 0 to 1e18")]
OF_STEPS: Mapping[str, Column] = {
    "seconds_per_step": Column(0.0, "s", Cost, "of a local step, whatever the batch.", decimals=None),
    "joules_per_step": Column(0.0, "J", Cost, "of a local step, whatever the batch.", decimals=None),
    "cycles_per_record": Column(0.0, "cycles", Cycles, "c, cycles of the processor for one record in one local step."),
    "cpu_ghz": Column(1.0, "GHz", Positive, "f, the frequency of the processor; needs `cycles_per_record`."),
    "capacitance": Column(
        2e-28,
        "",
        Positive,
        "alpha, the effective switched capacitance of the processor: joules are half of it times cycles times the "
        "square of the frequency in hertz; needs `cycles_per_record`.",
        decimals=None,
    ),
}
OF_BATTERIES: Mapping[str, Column] = {
    "battery_j": Column(
        1e9,
        "J",
        Cost,
        "of its battery: a device that cannot pay for a whole interval, as it is planned, takes no part from then on.",
        decimals=None,
    ),
    "harvest_w": Column(
        0.0,
        "W",
        Cost,
        "that fill its battery while the simulated clock runs, times the number of `harvest` at that hour if the file "
        "has one: a device that harvests is back once it can pay.",
        decimals=None,
    ),
    "idle_w": Column(
        0.0, "W", Cost, "of a device that takes part, from the start of an interval to its end.", decimals=None
    ),
}
OF_TARGETS: Mapping[str, Column] = {
    "epsilon": Column(1e9, "", Magnitude, "of its account, if below `privacy.epsilon`; it weighs less.", decimals=None),
}
NEAREST_M = 1.0  # a device is not inside its edge server's antenna: path loss is relative to 1 m


@dataclass(frozen=True, eq=False)
class DeviceTable:
    """All I devices of a network, as read-only columns in the order of the tree, which never changes.

    Attributes:
        home: (I,) number of each device's edge server.
        row: (I,) its place there, from 0.
        point: (I,) number of the access point that it sends to: the edge server or, in a star, a relay.
        columns: (I,) numbers by the names of the columns that the network's models declare.
    """

    home: NDArray[np.int32]
    row: NDArray[np.int32]
    point: NDArray[np.int32]
    columns: Mapping[str, Floats]

    def __post_init__(self) -> None:
        arrays: list[np.ndarray] = [self.home, self.row, self.point, *self.columns.values()]
        for array in arrays:
            array.flags.writeable = False
