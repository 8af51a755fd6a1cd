"""The wireless channel of a network: `radio:` of a topology file in its users' units, and as the value `Radio`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from h2fdp.config import Section, check, empty_document
from h2fdp.config.fields import Expect, Options
from h2fdp.config.own_answers import Words
from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import NETWORK_REFUSALS, refused
from h2fdp.network.channel import (
    ACCESSES,
    FADINGS,
    PATH_LOSSES,
    Access,
    Fading,
    LogDistance,
    OverTheAir,
    PathLoss,
    Rayleigh,
    Tdma,
    gathered,
)
from h2fdp.network.devices import Column, Decibels, Floats, Integers

Model = Options | OwnPart

# Wide bounds: beyond them lie slips of sign, unit or zeros, reported here with line and key.
FadingFloor = Annotated[float, Field(ge=-100, le=20), Expect("a number from -100 to 20")]
Bandwidth = Annotated[float, Field(ge=1e-6, le=1e6), Expect("a number from 1e-6 to 1e6")]
Bits = Annotated[int, Field(ge=1, le=1024), Expect("a whole number from 1 to 1024")]


class _Models(Section):
    """The keys that name a model, its options, or a user's own.

    Attributes:
        access: how devices of a subnet share the channel: `tdma`, `ofdma` or `over-the-air`, or a model of your own.
        fading: fading, drawn for each interval: `rayleigh` or `none`, or a model of your own.
        pathloss: how the mean gain falls with the distance, or a model of your own.
    """

    access: Annotated[Model, ACCESSES] = Tdma()
    fading: Annotated[Model, FADINGS] = Rayleigh()
    pathloss: Annotated[Model, PATH_LOSSES] = LogDistance()


class RadioSection(_Models):
    """The wireless channel.

    Attributes:
        bandwidth_mhz: bandwidth of each subnet's channel.
        noise_dbm_per_hz: power of the thermal noise for each hertz.
        fading_floor_db: the worst fading that is drawn; deeper ones count as this one.
        bits_per_parameter: bits of a parameter in messages.
    """

    bandwidth_mhz: Bandwidth = 1.0
    noise_dbm_per_hz: Decibels = -173.0
    fading_floor_db: FadingFloor = -20.0
    bits_per_parameter: Bits = 32

    def radio(self) -> Radio:
        """The section as a value."""
        same = {key: getattr(self, key) for key in type(self).model_fields if key != "bandwidth_mhz"}
        return Radio(bandwidth_hz=self.bandwidth_mhz * 1e6, **same)


_POWERS = 10_000


@dataclass(frozen=True)
class Radio:
    """The wireless channel from devices to their edge server (H2FDP, Appendix D).

    `access`, `fading` and `pathloss` may be given as in a file (a word, or a mapping with options), or as a class or an
    object derived from `Access`, `Fading` or `PathLoss`.

    Raises:
        UserError: an unknown model, or wrong options.

    >>> Radio(fading="none").fading.name, Radio(pathloss={"exponent": 2.0}).pathloss.options()["exponent"]
    ('none', 2.0)
    """

    columns: ClassVar[Mapping[str, Column]] = {
        **PathLoss.columns,
        "power_dbm": Column(24.0, "dBm", Decibels, "transmit power of the device."),  # H2FDP, Appendix D
    }

    bandwidth_hz: float = 1e6
    noise_dbm_per_hz: float = -173.0
    access: Model = field(default_factory=Tdma)
    fading: Model = field(default_factory=Rayleigh)
    fading_floor_db: float = -20.0
    bits_per_parameter: int = 32
    pathloss: Model = field(default_factory=LogDistance)

    def __post_init__(self) -> None:
        given = {key: getattr(self, key) for key in _Models.model_fields}
        if not all(isinstance(model, (Options, OwnPart)) for model in given.values()):
            read = check(_Models, empty_document("Radio", Path.cwd(), given))
            for key in given:
                object.__setattr__(self, key, getattr(read, key))

    @property
    def own_parts(self) -> tuple[OwnPart, ...]:
        """The models that are a user's own."""
        return tuple(each for each in (self.access, self.fading, self.pathloss) if isinstance(each, OwnPart))

    @property
    def billed(self) -> bool:
        """Whether energy and delay of uploads are over each device's part of the channel; see `Access`."""
        return bool(getattr(self._made["access"], "billed", False))

    @property
    def truncation(self) -> float | None:
        """The least power |u|^2 with which a device takes part in sums over the air; None without such sums."""
        return float(ratio(self.access.truncate_db)) if isinstance(self.access, OverTheAir) else None

    @property
    def fading_floor(self) -> float:
        """The least power |u|^2 of the fading."""
        return float(ratio(self.fading_floor_db))

    def gain_db(self, distance_m: Floats, stream: np.random.Generator) -> Floats:
        """(s,) gains of the devices of one access point; see `PathLoss.gain_db`."""
        return self._asked("pathloss", "gain_db", len(distance_m), distance_m, stream, least=-np.inf)

    def least_fading(self) -> float:
        """The least |u|^2 that is drawn."""
        return float(self._asked("fading", "least", None, self.fading_floor))

    def fading_power(self, stream: np.random.Generator, size: int) -> Floats:
        """(size,) |u|^2 of the devices of one access point in one interval."""
        return self._asked("fading", "draw", size, stream, size, self.fading_floor)

    def mean_seconds(self, bits: int, snr: Floats) -> Floats:
        """(I,) the mean over fading of the seconds of a message; see `Fading.mean_seconds`."""
        return self._asked("fading", "mean_seconds", len(snr), bits, self.bandwidth_hz, snr, self.fading_floor)

    def quadrature(self, floor: float | None = None) -> tuple[list[float], list[float]]:
        """Powers |u|^2 and weights, which add up to 1, of a mean over the fading.

        Args:
            floor: the least power, by default `fading_floor`.

        Raises:
            UserError: a user's own fading that has none, as it is not derived from `Fading`, or that fails.
        """
        model: Fading = self._made["fading"]
        floor = self.fading_floor if floor is None else floor
        if not isinstance(self.fading, OwnPart):
            return model.quadrature(floor)
        origin = self.fading.origin
        if not hasattr(model, "quadrature"):
            words = Words("none; mean costs at powers that devices choose are averaged over it")
            raise origin.wrong("quadrature", "powers and weights, as those derived from Fading have them,", words)
        points: tuple[list[float], list[float]] = origin.call("quadrature", lambda: model.quadrature(floor))
        return points

    def uplink_seconds(
        self, seconds: Floats, snr: Floats, points: Integers, count: int, lead: Floats | None = None
    ) -> Floats:
        """(count,) until all messages have arrived at each access point; see `Access.uplink_seconds`.

        Args:
            lead: (K,) seconds by which a device is ready before the slowest; None where all are ready at once. Under a
                user's own access all wait for the slowest.
        """
        model: Access = self._made["access"]
        if lead is not None and lead.any() and not isinstance(self.access, OwnPart):
            return gathered(np.maximum, model.waits(seconds, snr, points, lead) - lead, points, count)
        return self._asked("access", "uplink_seconds", count, seconds, snr, points, count)

    def waits(self, seconds: Floats, snr: Floats, points: Integers, count: int, lead: Floats) -> Floats:
        """(K,) seconds from a device's last step until what it holds up has arrived; see `Access.waits`."""
        if isinstance(self.access, OwnPart) and not self.billed:  # all wait for all
            return self.uplink_seconds(seconds, snr, points, count)[points]
        return self._asked("access", "waits", len(seconds), seconds, snr, points, lead)

    @property
    def queues(self) -> bool:
        """Whether an access point's channel carries one message at a time, see `Access`."""
        model: Access = self._made["access"]
        return model.queues

    def part_seconds(self, seconds: Floats, snr: Floats, sharing: Integers) -> Floats:
        """(K,) of each device's message over its part of the channel; see `Access.part_seconds`."""
        return self._asked("access", "part_seconds", len(seconds), seconds, snr, sharing)

    def check_fading(self) -> None:
        """Ask a user's own fading for powers: their mean is 1. Beyond a factor of 2 it is a mistake, no rounding.

        Raises:
            UserError: they are no powers, or their mean is another one.
        """
        if not isinstance(self.fading, OwnPart):
            return
        if hasattr(self._made["fading"], "quantile"):
            method, middles = "quantile", (np.arange(_POWERS) + 0.5) / _POWERS
            powers = self._asked("fading", method, _POWERS, middles)
        else:
            method, powers = "draw", self.fading_power(np.random.default_rng(0), _POWERS)
        if not 0.5 <= float(powers.mean()) <= 2.0:
            raise self.fading.origin.wrong(method, "powers of mean 1", Words(f"powers of mean {powers.mean():.3g}"))

    @cached_property
    def _made(self) -> dict[str, Any]:
        """The models themselves; a user's own are made once."""
        return {
            key: model.make() if isinstance(model := getattr(self, key), OwnPart) else model
            for key in _Models.model_fields
        }

    def _asked(self, key: str, method: str, size: int | None, *given: Any, least: float = 0.0) -> Floats:
        """(size,), or one number, that a model answers; from a user's own, none below `least`."""
        model, made = getattr(self, key), self._made[key]
        if not isinstance(model, OwnPart):
            values: Floats = np.asarray(getattr(made, method)(*given))
            return values
        origin, shape = model.origin, () if size is None else (size,)
        value = origin.call(method, lambda: getattr(made, method)(*given))
        try:
            values = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise origin.wrong(method, f"numbers of shape {shape}", value) from None
        if values.shape != shape:
            raise origin.wrong(method, f"numbers of shape {shape}", Words(f"shape {values.shape}"))
        wrong = values[~(np.isfinite(values) & (values >= least))]
        if len(wrong):
            words = "finite numbers" if least == -np.inf else f"finite numbers of at least {least:g}"
            raise origin.wrong(method, words, float(wrong[0]))
        return values


def ratio(decibels: Floats | float) -> Floats:
    """10^(x/10); 0 or infinite beyond what a float holds.

    >>> ratio(np.array([-30.0, 0.0, 20.0])).tolist()
    [0.001, 1.0, 100.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.power(10.0, np.asarray(decibels, dtype=np.float64) / 10)


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Any, network: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that exclude shares of the channel that costs follow, or sums over the air."""
    radio, method, key = topology.radio, experiment.method, "topology.radio.access"
    if not radio.billed and radio.truncation is None:
        return
    in_air, schedule, sees = radio.truncation is not None, method.traits, method.privacy.sees
    name, found = method.schedule.name, f"{radio.access.name}{'' if in_air else ' with shares'}"
    waits = f"tdma, or ofdma without shares: under {name} aggregators do not wait for all"
    priced = f"tdma, or ofdma without shares: {name} prices each message by itself"
    compared, star = method.combination.visible == "each", network.subnets[0].relays is not None
    passing = "relay masked vectors" if network.relayed else "pass on what each device of a star sends"
    bits, summing = method.privacy.rounding, [each.name for each in topology.subnets if sees(each.trust) == "sum"]
    failing = bool(summing) and experiment.faults.faults().of_devices
    yield from refused(
        "devices share the channel",
        (key, schedule.buffers, waits, found),
        (key, schedule.controlled and not schedule.buffers, priced, found),
    )
    others, rounding = "tdma or ofdma", "method.privacy.secure_sum.rounding"
    yield from refused(
        "signals add up in the air as they are",
        (key, in_air and compared, f"{others}, as the aggregation compares single uploads", found),
        (key, in_air and star, f"{others}, as access points {passing}", found),
        (rounding, in_air and summing and bits is not None, "null", bits),
        ("faults", in_air and failing, f"none of devices, or {others}: shares of noise would lack in the sum", "some"),
    )
