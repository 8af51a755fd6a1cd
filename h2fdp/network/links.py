"""Links from edge servers to the nodes above them: `link:` of a topology file names a kind, or a user's own.

A link is asked how long a message of so many bits takes that is ready at a moment of the simulated clock, and how many
joules its sender spends. Costs, stars and the event clock know no more of it. Of a wire the moment changes nothing; a
wire with windows, as a satellite's passes, carries bits within these alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from h2fdp.config.fields import BY_SHAPE, Expect, NonNegative, Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_answers import is_number
from h2fdp.config.own_parts import OwnKind, OwnPart, own_part
from h2fdp.config.parsing import plain_scalar, read_csv
from h2fdp.errors import NETWORK_REFUSALS, UserError, refused
from h2fdp.network.devices import Decibels
from h2fdp.network.radio import ratio
from h2fdp.wording import note

UNLIMITED = "unlimited"


def _unlimited(value: Any) -> Any:
    return float("inf") if value == UNLIMITED else value


Rate = Annotated[
    float, Field(gt=0, allow_inf_nan=True), BeforeValidator(_unlimited), Expect(f"a number above 0, or `{UNLIMITED}`")
]


class Link(ABC):
    """A link from an edge server to the node above it: the cloud, in a network of two tiers.

    Both answers follow from the arguments alone, so that a dry run, a run and its continuation see the same network.
    """

    @property
    def plain(self) -> bool:
        """Whether seconds are the bits over a rate, whatever the moment."""
        return False

    @abstractmethod
    def seconds(self, bits: float, at: float = 0.0) -> float:
        """Seconds until a message of so many bits has arrived, in either direction, waiting included.

        Args:
            at: seconds of the simulated clock, from the start of the run, when the message is ready to be sent.
        """

    @abstractmethod
    def joules(self, bits: float) -> float:
        """Joules that the edge server spends on a message of so many bits to the node above."""

    def down(self, bits: float, at: float = 0.0) -> float:
        """The `seconds` of a message from the node above."""
        return self.seconds(bits, at)


@dataclass(frozen=True)
class Wire(Link):
    """A link of one rate, perhaps with windows: what one of them cuts off goes on in the next.

    Attributes:
        rate_bps: bits a second; infinite for the cloud's own edge server, whose messages cost nothing.
        power_dbm: the edge server's transmit power.
        delay_s: seconds of propagation, after the last bit was sent.
        windows: start and end of each, in seconds from the start of the run, ascending; empty where it is always open.
    """

    rate_bps: float = 100e6
    power_dbm: float = 38.0
    delay_s: float = 0.0
    windows: tuple[tuple[float, float], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it has a rate alone."""
        return not (self.delay_s or self.windows)

    def joules(self, bits: float) -> float:
        """The power over the time of sending."""
        return float(ratio(self.power_dbm - 30.0)) * (bits / self.rate_bps)

    @cached_property
    def _opened(self) -> list[float]:
        """The seconds of all windows up to the end of each."""
        return list(accumulate(end - start for start, end in self.windows))

    def seconds(self, bits: float, at: float = 0.0) -> float:
        """Waiting, sending and propagation.

        Raises:
            UserError: the last window ends before the message does.
        """
        sending, windows, opened = bits / self.rate_bps, self.windows, self._opened
        if not windows:
            return sending + self.delay_s
        first = bisect_right(windows, at, key=itemgetter(1))
        if first < len(windows):
            sent = opened[first] - (windows[first][1] - max(at, windows[first][0])) + sending
            last = bisect_left(opened, sent, lo=first)
            if last < len(windows):
                return max(windows[last][1] - (opened[last] - sent) - at, sending) + self.delay_s
        text = f"a message of {bits:.6g} bits that is ready at {at:.6g} s has not ended when the last window does, at"
        raise UserError(f"{text} {windows[-1][1]:.6g} s; expected later windows, or a shorter run", key="link.windows")


def lines_of(value: str | list[Any], info: ValidationInfo, most: int) -> tuple[str, list[tuple[int, Any]]]:
    """The lines of a CSV file, its columns first, or of a list, each with its number; and what is before a number.

    Raises:
        ValueError: the file cannot be read, or has more than `most` lines.
    """
    if isinstance(value, list):
        return "line ", list(enumerate(value, 1))
    path = ((info.context or {}).get("folder") or Path.cwd()) / value
    try:
        header, cells = read_csv(path, most, note)
    except UserError as error:
        raise ValueError(str(error)) from None
    return f"{path}:", [(1, header), *((number, [*map(plain_scalar, row)]) for number, row in cells)]


_COLUMNS, _MOST_WINDOWS = ["start_s", "end_s"], 20_000


def _windows(value: Any, info: ValidationInfo) -> tuple[tuple[float, float], ...]:
    """The windows of a CSV file, or of a list.

    Raises:
        ValueError: it cannot be read, or they are not what `Wire` needs; with the file's line.
    """
    (where, lines), before = lines_of(value or [], info, _MOST_WINDOWS), 0.0
    if isinstance(value, str):
        (_, header), *lines = lines
        if header != _COLUMNS:
            found = ", ".join(header) or "none"
            raise ValueError(f"{where}1: expected the columns {', '.join(_COLUMNS)}, found {found}")
    if not lines:
        raise ValueError("expected at least one window, found none")
    for number, row in lines:
        if not (isinstance(row, list) and len(row) == 2 and all(map(is_number, row)) and before <= row[0] < row[1]):
            text = f"expected start_s from {before:g} on, where the window before ends, and a later end_s"
            raise ValueError(f"{where}{number}: {text}; found {row}")
        before = row[1]
    return tuple((float(start), float(end)) for _, (start, end) in lines)


Lines = Annotated[str | list[Any], BY_SHAPE]  # or a path
LINKS: Choices[Options] = Choices(
    OwnKind("a link, derived from `h2fdp.network.Link`", ("seconds", "joules")), unnamed="wire"
)


@LINKS.register
class WireSection(Options):
    """A wire.

    Attributes:
        rate_mbps: rate of the link.
        power_dbm: transmit power of the edge server.
        delay_s: seconds of propagation.
        windows: a CSV file with the columns start_s and end_s, or a list of such lines: bits move within these windows
            of the simulated clock alone, as over a satellite's passes; null for always.
    """

    name: Literal["wire"] = "wire"
    rate_mbps: Rate = 100.0
    power_dbm: Decibels = 38.0
    delay_s: NonNegative = 0.0
    windows: Annotated[
        Lines | None, AfterValidator(_windows), Expect("the path of a CSV file, or a list of [start_s, end_s]")
    ] = None

    def wire(self) -> Wire:
        """The section as a value."""
        return Wire(self.rate_mbps * 1e6, self.power_dbm, self.delay_s, cast(Any, self.windows or ()))  # were read


LinkChoice = Annotated[WireSection | OwnPart, LINKS]


@dataclass(frozen=True)
class OwnLink(Link):
    """A user's own link, whose answers are checked."""

    part: OwnPart

    def __hash__(self) -> int:
        return hash(self.part.name)

    @cached_property
    def _made(self) -> Any:
        return self.part.make()

    def seconds(self, bits: float, at: float = 0.0) -> float:
        """The user's answer."""
        return self._asked("seconds", bits, at)

    def joules(self, bits: float) -> float:
        """The user's answer."""
        return self._asked("joules", bits)

    def _asked(self, method: str, *given: float) -> float:
        value = self.part.origin.call(method, getattr(self._made, method), *given)
        if not (is_number(value) and value >= 0):
            raise self.part.origin.wrong(method, "a finite number of at least 0", value)
        return float(value)


@dataclass(frozen=True)
class Series(Link):
    """Links from an edge server up to the cloud, one after another."""

    links: tuple[Link, ...]

    def seconds(self, bits: float, at: float = 0.0) -> float:
        """The sum of their times, each from the moment at which the one before has ended."""
        elapsed = 0.0
        for link in self.links:
            elapsed += link.seconds(bits, at + elapsed)
        return elapsed

    def down(self, bits: float, at: float = 0.0) -> float:
        """The link from the cloud down."""
        return Series(self.links[::-1]).seconds(bits, at)

    def joules(self, bits: float) -> float:
        """The sum."""
        return sum(link.joules(bits) for link in self.links)


def in_series(links: Sequence[Link]) -> Link:
    """Links one after another as one link.

    Wires in a row take the sum of their times and of their energies for each message: as one they have
    1 / rate = sum 1 / rate_i and power / rate = sum power_i / rate_i, whatever the message's size.
    """
    wires = [link for link in links if isinstance(link, Wire) and link.plain]
    if len(links) == 1 or len(wires) < len(links):
        return links[0] if len(links) == 1 else Series(tuple(links))
    rates = np.array([wire.rate_bps for wire in wires])
    seconds_per_bit = float(np.sum(1 / rates))
    if seconds_per_bit == 0:  # messages cost nothing on any of them
        return wires[0]
    with np.errstate(all="ignore"):  # costs refuse what is not finite
        joules_per_bit = np.sum(10 ** (np.array([wire.power_dbm for wire in wires]) / 10) / rates)
        return Wire(1 / seconds_per_bit, float(10 * np.log10(joules_per_bit / seconds_per_bit)))


def link_of(given: Any, key: str = "link") -> Link:
    """The link that a file's section or a user's object describes.

    Raises:
        UserError: an object that is no link, under `key`.
    """
    if isinstance(given, WireSection):
        return given.wire()
    if isinstance(given, (Wire, OwnLink, Series)):
        return given
    assert LINKS.own is not None, "users may bring links"
    try:
        return OwnLink(given if isinstance(given, OwnPart) else own_part(given, Path.cwd(), LINKS.own))
    except ValueError as error:
        raise UserError(str(error), key=key) from None


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Any, network: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that count messages over wires, and know no link whose seconds depend on the moment."""
    own = next((server.name for server in topology.servers() if not server.link.plain), None)
    if own is None:
        return
    star, right = network.subnets[0].relays is not None, "rate_mbps and power_dbm alone, or no"
    upper = {each.name: each.trust for each in (network.subnets if star else network.aggregators)}
    upper |= {} if star else {"cloud": network.cloud_trust}
    summing = next((name for name, trust in upper.items() if experiment.method.privacy.sees(trust) == "sum"), None)
    yield from refused(
        f"{own} has a link that is no plain wire, and messages are counted by their bits",
        ("topology", experiment.method.traits.controlled, f"{right} controller, which prices them", "control"),
        ("topology", summing is not None, f"{right} secure sums above edge servers", f"that of {summing}"),
    )


def link_values(link: Link) -> Any:
    """A link in the file's keys and units."""
    if isinstance(link, OwnLink):
        return link.part.written()
    assert isinstance(link, Wire), "only relays have links in series, and they are not written"
    rate = UNLIMITED if math.isinf(link.rate_bps) else mega(link.rate_bps)
    windows = {"delay_s": link.delay_s, "windows": [*map(list, link.windows)]}
    return {"rate_mbps": rate, "power_dbm": link.power_dbm} | {key: each for key, each in windows.items() if each}


def mega(value: float) -> float:
    """A value in millions, such that a million times it is the value to the last bit where a float can do that."""
    quotient = value / 1e6
    near = (quotient, math.nextafter(quotient, math.inf), math.nextafter(quotient, 0.0))
    return min(
        (candidate for candidate in near if candidate * 1e6 == value),
        key=lambda candidate: len(repr(candidate)),
        default=quotient,
    )
