"""Devices as columns of numbers: what models read of each device, the table that holds it, and a catalogue of hardware.

A column is declared once, by the model that reads it, as `columns = {"distance_m": Column(...)}`. Topology files, graph
formats, stars, summaries and pages follow from the declaration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
class Membership(ABC):
    """The edge server of each device as a column of a round: a device has a row for each place where it ever is, and of
    all its rows at most one takes part in an interval. (Where all devices stay, a row is a device, and there is none.)

    Attributes:
        device: (rows,) number of the device of each row, in the order of the topology file.
        home: (I,) row of each device at the edge server that the file has it at.
    """

    device: Integers
    home: Integers

    @abstractmethod
    def there(self, interval: int) -> NDArray[np.bool_]:
        """(rows,) whether the row is its device's in this interval, counted from 0. No device has two, which is what
        makes one account of all its rows sound."""

    @abstractmethod
    def costs(self, interval: int, edges: NDArray[Any], bits: float) -> dict[str, float]:
        """Columns of the costs of edge servers before an interval for messages about devices that leave them; empty
        without any.

        Args:
            edges: (rows,) number of each row's edge server.
            bits: of a model.
        """


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


def _capacitance(watts: float, ghz: float) -> float:
    """alpha, at which a processor spends so many watts at this frequency."""
    return 2 * watts / (ghz * 1e9) ** 3


# A catalogue of hardware: published numbers, which fill columns where a topology file states none. A processor's
# capacitance follows from the watts that it draws at full load above idling, P = alpha f^3 / 2, with all its cores at
# work: `cycles_per_record` are then those of one core where the work is divided among all. What has no source is left
# out, and has the column's default. Joules of a message are those that are radiated (`power_dbm`), as everywhere; a
# radio draws more from its supply.
KINDS: Mapping[str, Mapping[str, float]] = {
    "raspberry-pi-4": {
        "cpu_ghz": 1.8,  # four Cortex-A72 (github.com/geerlingguy/sbc-reviews/issues/4)
        "idle_w": 1.6,  # at the wall, the same
        "capacitance": _capacitance(5.0 - 1.6, 1.8),  # 5.0 W under `stress-ng --matrix 0`, the same
    },
    "jetson-orin-nano": {
        "cpu_ghz": 1.5104,  # six Cortex-A78AE, mode of 15 W (NVIDIA's nvpmodel file of the 8 GB module)
        "idle_w": 2.6,  # the whole board, tuned to idle (forums.developer.nvidia.com/t/348662)
        "capacitance": _capacitance(15.0 - 2.6, 1.5104),  # at most: all that this mode lets the module draw
    },
    "phone-mid": {  # a Fairphone 4, Snapdragon 750G
        "cpu_ghz": 2.2,  # its two fast cores (github.com/LineageOS/android_device_fairphone_FP4)
        "battery_j": 3.905 * 3.7 * 3600,  # 3905 mAh, the same; at the 3.7 V of a lithium-ion cell
        "power_dbm": 23.0,  # handheld terminals, power class 3 (3GPP TS 36.101, Table 6.2.2-1)
    },
    "esp32": {  # Espressif's data sheet, at 3.3 V (docs.deneyapkart.org, power consumption of ESP32)
        "cpu_ghz": 0.24,
        "idle_w": 0.099,  # 30 mA at 240 MHz, radio asleep
        "capacitance": _capacitance((0.068 - 0.030) * 3.3, 0.24),  # up to 68 mA at work
        "power_dbm": 19.5,  # 802.11b, 1 Mbps, for which it draws 240 mA
    },
}
