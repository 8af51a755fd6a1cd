"""The parts of a network as values: edge servers, devices, links, and the trust in each: what a topology file says of
it, and how it is drawn where that is open. Arrays, not objects, checked once and read-only.

A million devices as networkx nodes cost 6 s and 0.9 GB; as two arrays for each subnet 0.02 s and 16 MB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from h2fdp.config.fields import Expect, NonNegative, Probability, Section, word_to_bool
from h2fdp.errors import UserError, hint
from h2fdp.network.devices import OF_BATTERIES, OF_STEPS, OF_TARGETS, Column, Floats
from h2fdp.network.links import Link, Wire, in_series, link_of
from h2fdp.network.radio import Radio
from h2fdp.streams import Streams

CLOUD = "cloud"
_WIRE = Wire()
FREE = Wire(rate_bps=float("inf"), power_dbm=0.0)  # of the cloud's own edge server
MOST_TIERS = 20  # of edge servers
COLUMNS: Mapping[str, Column] = {**Radio.columns, **OF_STEPS, **OF_BATTERIES, **OF_TARGETS}  # of all models

Trust = Literal["untrusted", "relay", "secure-sum", "trusted"]
TRUSTS: tuple[Trust, ...] = get_args(Trust)


def trust_of(value: Trust | bool, key: str) -> Trust:
    """A level of trust; `True` is trusted and `False` untrusted, as in a file's `trusted:`.

    Raises:
        UserError: under `key`, anything else.

    >>> trust_of(True, "edge-1"), trust_of("secure-sum", "edge-1")
    ('trusted', 'secure-sum')
    """
    if isinstance(value, bool):
        return "trusted" if value else "untrusted"
    if value not in TRUSTS:
        near = hint(value, TRUSTS)
        raise UserError(
            f"expected one of {', '.join(TRUSTS)}, true or false, found {value!r}{near}", key=f"{key}.trust"
        )
    return value


def _word(value: Any) -> Any:
    """`true` and `false` are short for the highest level and the lowest; yes, no, on and off are booleans too."""
    value = word_to_bool(value)
    return trust_of(value, "") if isinstance(value, bool) else value


TrustLevel = Annotated[Trust, BeforeValidator(_word), Expect(f"one of {', '.join(TRUSTS)}, true or false")]
CloudTrust = Annotated[Literal["untrusted", "secure-sum"], Expect("one of untrusted, secure-sum")]


_DRAWN: tuple[Trust, ...] = ("trusted", "secure-sum", "relay", "untrusted")  # by a number, see `TrustSection.draw`


class TrustSection(Section):
    """The rule by which trust is drawn for an edge server that states none (H2FDP, Eq. 27).

    Attributes:
        trusted: p_c, the probability that an edge server is trusted, also called `probability`; null is 0.5, or 0 where
            one of the next two is stated.
        secure-sum: the probability that an edge server is not trusted, but learns sums alone.
        relay: the probability of a relay of masked vectors; all edge servers must be relays: `{relay: 1}`.
        exact: the numbers above are exact shares of the edge servers (of those with devices, and of those above them),
            rounded; the seed decides only which servers they are.
        prices: what it costs to trust an edge server, by its name, `default` for all others, for `h2fdp plan --choose
            trust`. Next to prices `secure-sum` and `relay` are prices, too: of the secure sums of one edge server, and
            of relays for the whole network. Null: 1 each.
    """

    trusted: Probability | None = Field(default=None, validation_alias=AliasChoices("trusted", "probability"))
    secure_sum: Probability | None = Field(default=None, alias="secure-sum")
    relay: Probability | None = None
    exact: Annotated[bool, Expect("true or false")] = False
    prices: Annotated[dict[str, NonNegative] | None, Expect("names with numbers, as {default: 1, edge-3: 5}")] = None

    @model_validator(mode="before")
    @classmethod
    def _all_are_prices(cls, values: Any) -> Any:
        if not (isinstance(values, dict) and isinstance(values.get("prices"), dict)):
            return values
        priced = {key: values[key] for key in ("secure-sum", "relay") if values.get(key) is not None}
        return {key: each for key, each in values.items() if key not in priced} | {"prices": values["prices"] | priced}

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        if self.bounds[-1] > 1:
            what = "shares" if self.exact else "probabilities"
            stated = [f"{each:g}" for each in (self.bounds[0], self.secure_sum, self.relay) if each is not None]
            raise ValueError(f"expected {what} whose sum is at most 1, found {' and '.join(stated)}")
        return self

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Between 0 and 1, below which numbers mean trusted, below which trusted or secure sums, or these or relays."""
        alone = self.secure_sum is None and self.relay is None
        trusted = self.trusted if self.trusted is not None else 0.5 if alone else 0.0
        bound = trusted + (self.secure_sum or 0.0)
        return trusted, bound, bound + (self.relay or 0.0)

    def draw(self, names: Iterable[str], streams: Streams) -> dict[str, Trust]:
        """The trust in each edge server of these names, from a number between 0 and 1 that no probability moves.

        It is trusted if the number is below `trusted`, holds secure sums if it is below the sum of both, and relays
        if it is below that of all three. So raising `trusted` takes no trust away, and raising `secure-sum` moves
        untrusted edge servers and relays only. Exact shares go by the order of the same numbers.

        >>> TrustSection(trusted=0.5, exact=True).draw(["edge-1", "edge-2", "edge-3"], Streams(1))
        {'edge-3': 'trusted', 'edge-1': 'trusted', 'edge-2': 'untrusted'}
        """
        numbers: dict[str, float] = {name: float(streams.open(name, "trust").random()) for name in names}
        bounds: Sequence[float] = self.bounds
        if self.exact:
            ordered = sorted(numbers, key=lambda name: (numbers[name], name))
            numbers = {name: place for place, name in enumerate(ordered)}
            bounds = [int(share * len(ordered) + 0.5) for share in bounds]
        return {name: _DRAWN[bisect_right(bounds, number)] for name, number in numbers.items()}


@dataclass(frozen=True)
class Relays:
    """The access points of a star, in the order of its devices: first all devices of the first one, and so on.

    They are the edge servers of the tree that the star was made of. They pass messages on and are no parties, but the
    air and the wires are as they were: their names key the fading, devices of one share a channel, and each message
    takes the link from there to the cloud. A few values for each access point, so a million devices cost next to
    nothing.

    Attributes:
        names: (A,) of the access points.
        sizes: (A,) the number of devices of each.
        links: of each to the cloud.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    links: tuple[Link, ...]

    def of_devices(self, values: Floats) -> Floats:
        """(s,) for each device the value of its access point, from (A,) values."""
        return np.repeat(values, self.sizes)


@dataclass(frozen=True, eq=False)
class Subnet:
    """A lowest edge server and its s devices.

    Attributes:
        name: the edge server's name, unique among all nodes.
        trust: in the edge server: trusted ones add the noise, untrusted ones receive noisy updates, and one that holds
            secure sums sees nothing but the sum of its devices' uploads. `True` and `False` stand for the first two. A
            relay passes on masked vectors of one sum over the whole network; a star of relays is that of the sum.
        columns: (s,) numbers of the devices by the names of columns; read-only. A column that is not there has its
            default.
        link: the edge server's link to the node above it.
        names: the devices' names; None when they are ``<edge>/1`` to ``<edge>/s``.
        rules: how the numbers of a column were drawn, in the words of a file, so that large networks are written in few
            bytes; no part of equality.
        relays: in a star, the access points that pass the devices' messages on to the cloud; None where the edge server
            is the access point itself. Only the cloud's own edge server has them, in a network without others; they
            are not written to topology files.
        parent: the name of the aggregator above the edge server; None for the cloud.
    """

    name: str
    trust: Trust
    columns: Mapping[str, Floats]
    link: Link = _WIRE
    names: tuple[str, ...] | None = None
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    relays: Relays | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "trust", trust_of(self.trust, self.name))
        object.__setattr__(self, "link", link_of(self.link, f"{self.name}.link"))
        columns = {
            name: COLUMNS[name].read_only(values, f"{self.name}.{name}") for name, values in self.columns.items()
        }
        object.__setattr__(self, "columns", columns)
        size = self.size
        if size == 0:
            raise UserError("an edge server without devices", key=self.name)
        for name, values in columns.items():
            if len(values) != size:
                raise UserError(f"expected {size} values, found {len(values)}", key=f"{self.name}.{name}")
        if self.names is not None and len(self.names) != size:
            raise UserError(f"expected {size} values, found {len(self.names)}", key=f"{self.name}.names")
        if self.relays is not None and (found := sum(self.relays.sizes)) != size:
            raise UserError(f"expected {size} devices, found {found}", key=f"{self.name}.relays")
        if self.relays is not None and self.link != FREE:
            raise UserError("expected an infinite link.rate_bps beside relays", key=self.name)

    @property
    def trusted(self) -> bool:
        """Whether the edge server may see raw updates."""
        return self.trust == "trusted"

    @property
    def size(self) -> int:
        """The number of devices s."""
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Floats:
        """(s,) the numbers of a column, its default where there are none."""
        values = self.columns.get(name)
        return np.full(self.size, COLUMNS[name].default) if values is None else values

    def device_name(self, index: int) -> str:
        """The name of the device at an index from 0."""
        return f"{self.name}/{index + 1}" if self.names is None else self.names[index]

    def device_names(self) -> list[str]:
        """The names of all devices, in order."""
        return [self.device_name(index) for index in range(self.size)]

    def rows_of(self, names: Collection[str]) -> tuple[int, ...]:
        """The rows of the devices with these names."""
        return tuple(row for row, name in enumerate(self.device_names()) if name in names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subnet):
            return NotImplemented
        plain = ("name", "trust", "link", "names", "relays", "parent")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            np.array_equal(self.column(name), other.column(name)) for name in {*self.columns, *other.columns}
        )

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash


@dataclass(frozen=True)
class Aggregator:
    """An edge server above other edge servers.

    Attributes:
        name: unique among all nodes.
        trust: in it; what a trusted one holds is shown to no other node. `True` and `False` as for a `Subnet`.
        link: its link to the node above it.
        parent: the name of the aggregator above it; None for the cloud.
    """

    name: str
    trust: Trust
    link: Link = _WIRE
    parent: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "trust", trust_of(self.trust, self.name))
        object.__setattr__(self, "link", link_of(self.link, f"{self.name}.link"))

    @property
    def trusted(self) -> bool:
        """Whether it may see raw updates."""
        return self.trust == "trusted"


def star_of(
    subnets: Sequence[Subnet], wires: Sequence[Sequence[Link]], columns: Mapping[str, Floats], trust: Trust
) -> Subnet:
    """A star of the same devices under one edge server, the cloud's own, whose link costs nothing.

    Every device keeps its name and its numbers; the edge servers stay as relays. The star of a star is
    itself.

    Args:
        subnets: of the network.
        wires: for each of them the links from its edge server up to the cloud.
        columns: (I,) numbers of all their devices.
        trust: in the cloud's own edge server.
    """
    return Subnet(
        name=CLOUD,
        trust=trust,
        columns=columns,
        link=FREE,
        names=tuple(name for subnet in subnets for name in subnet.device_names()),
        relays=subnets[0].relays
        or Relays(
            names=tuple(subnet.name for subnet in subnets),
            sizes=tuple(subnet.size for subnet in subnets),
            links=tuple(in_series(links) for links in wires),
        ),
    )


def repeated_names(subnets: Sequence[Subnet], others: Sequence[str] = ()) -> list[str]:
    """Names that two nodes of the network would have; default names are not written out, so millions cost nothing.

    Args:
        subnets: the lowest edge servers with their devices.
        others: the names of all other nodes.
    """
    counts = Counter(subnet.name for subnet in subnets)
    counts.update(others)
    for subnet in subnets:
        counts.update(subnet.names or ())
    defaults = {subnet.name: subnet.size for subnet in subnets if subnet.names is None}
    with_default = {name for name in counts if 1 <= (of := default_of(name))[1] <= defaults.get(of[0], 0)}
    return sorted(with_default | {name for name, count in counts.items() if count > 1})


def default_of(name: str) -> tuple[str, int]:
    """The edge server of whose devices this would be a default name, and the device's number; else 0.

    >>> default_of("north/hall/12"), default_of("hall/012")
    (('north/hall', 12), ('hall', 0))
    """
    edge, _, number = name.rpartition("/")
    plain = number.isascii() and number.isdigit() and number[0] != "0" and len(number) < 10
    return edge, int(number) if plain else 0
