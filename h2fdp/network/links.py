"""Links from edge servers to the nodes above them: `link:` of a topology file names a kind, or a user's own.

A link is asked how long a message of so many bits takes that is ready at a moment of the simulated clock, and how many
joules its sender spends. Costs, stars and the event clock know no more of it. Of a wire the moment changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from h2fdp.config.fields import Expect, Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_answers import is_number
from h2fdp.config.own_parts import OwnKind, OwnPart, own_part
from h2fdp.errors import UserError
from h2fdp.network.devices import Decibels
from h2fdp.network.radio import ratio

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
    """A link of one rate.

    Attributes:
        rate_bps: bits a second; infinite for the cloud's own edge server, whose messages cost nothing.
        power_dbm: the edge server's transmit power.
    """

    rate_bps: float = 100e6
    power_dbm: float = 38.0

    def seconds(self, bits: float, at: float = 0.0) -> float:
        """The bits over the rate."""
        return bits / self.rate_bps

    def joules(self, bits: float) -> float:
        """The power over the time of sending."""
        return float(ratio(self.power_dbm - 30.0)) * (bits / self.rate_bps)


LINKS: Choices[Options] = Choices(
    OwnKind("a link, derived from `h2fdp.network.Link`", ("seconds", "joules")), unnamed="wire"
)


@LINKS.register
class WireSection(Options):
    """A wire.

    Attributes:
        rate_mbps: rate of the link.
        power_dbm: transmit power of the edge server.
    """

    name: Literal["wire"] = "wire"
    rate_mbps: Rate = 100.0
    power_dbm: Decibels = 38.0

    def wire(self) -> Wire:
        """The section as a value."""
        return Wire(rate_bps=self.rate_mbps * 1e6, power_dbm=self.power_dbm)


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
        """The same from the cloud down."""
        return Series(self.links[::-1]).seconds(bits, at)

    def joules(self, bits: float) -> float:
        """The sum."""
        return sum(link.joules(bits) for link in self.links)


def in_series(links: Sequence[Link]) -> Link:
    """Links one after another as one link.

    Wires in a row take the sum of their times and of their energies for each message: as one they have
    1 / rate = sum 1 / rate_i and power / rate = sum power_i / rate_i, whatever the message's size.
    """
    wires = [link for link in links if isinstance(link, Wire)]
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
