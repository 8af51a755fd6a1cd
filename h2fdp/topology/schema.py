"""A topology file, key by key, in the units that users write.

Defaults are those of the paper (H2FDP, Appendix D); it is silent on distances, where 50 m is ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from h2fdp.config.fields import (
    Count,
    Expect,
    Flag,
    Positive,
    Probability,
    Section,
    Whole,
    shape,
)
from h2fdp.topology.trust import TRUSTS, Trust, TrustProbabilities, TrustShares, trust_of
from h2fdp.wireless import RadioSection
from h2fdp.wireless.path_loss import Decibels

DEFAULT_DISTANCE_M = 50.0
DEFAULT_POWER_DBM = 24.0
DEFAULT_TRUST_PROBABILITY = 0.5
UNLIMITED = "unlimited"
LARGEST_NAME = 200


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("a name has printable characters only, and no blank at either end")
    return value


def _ordered(value: list[Any]) -> list[Any]:
    if value[0] > value[1]:
        raise ValueError(f"expected the lowest value first, found [{value[0]:g}, {value[1]:g}]")
    return value


def _unlimited(value: Any) -> Any:
    return float("inf") if value == UNLIMITED else value


Name = Annotated[
    str,
    Field(min_length=1, max_length=LARGEST_NAME),
    AfterValidator(_printable),
    Expect(f"a text of 1 to {LARGEST_NAME} characters"),
]
Rate = Annotated[
    float, Field(gt=0, allow_inf_nan=True), BeforeValidator(_unlimited), Expect(f"a number above 0, or `{UNLIMITED}`")
]
Scalar, Many, Mapping = Tag("scalar"), Tag("list"), Tag("mapping")


class UniformDistance(Section):
    """A distance drawn uniformly.

    Attributes:
        uniform: the smallest and the largest distance, m.
        seed: draw under this seed instead of the run's, so that all runs have the same distances.
    """

    uniform: Annotated[
        list[Positive], Field(min_length=2, max_length=2), AfterValidator(_ordered), Expect("[lowest, highest]")
    ]
    seed: Whole | None = None


class UniformCount(Section):
    """A number of devices drawn uniformly.

    Attributes:
        uniform: the smallest and the largest number, both included.
    """

    uniform: Annotated[
        list[Count], Field(min_length=2, max_length=2), AfterValidator(_ordered), Expect("[lowest, highest]")
    ]


_DRAWN = "{uniform: [lowest, highest]}"
Distance = Annotated[
    Annotated[Positive, Scalar] | Annotated[UniformDistance, Mapping],
    Discriminator(shape),
    Expect(f"a finite number above 0 or {_DRAWN}"),
]
Distances = Annotated[
    Annotated[Positive, Scalar] | Annotated[list[Positive], Many] | Annotated[UniformDistance, Mapping],
    Discriminator(shape),
    Expect(f"a finite number above 0, a list of them, or {_DRAWN}"),
]
Powers = Annotated[
    Annotated[Decibels, Scalar] | Annotated[list[Decibels], Many],
    Discriminator(shape),
    Expect("a number from -300 to 100 or a list of them"),
]
HowMany = Annotated[
    Annotated[Count, Scalar] | Annotated[UniformCount, Mapping],
    Discriminator(shape),
    Expect(f"a whole number of at least 1 or {_DRAWN}"),
]


class DeviceSection(Section):
    """One device.

    Attributes:
        name: of the device; null is the edge server's name and a number.
        distance_m: from the device to its edge server, m.
        power_dbm: with which the device sends.
    """

    name: Name | None = None
    distance_m: Distance = DEFAULT_DISTANCE_M
    power_dbm: Decibels = DEFAULT_POWER_DBM


class DevicesSection(Section):
    """All devices of an edge server at once.

    Attributes:
        count: how many, or `{uniform: [least, most]}`.
        distance_m: from each device to the edge server, m, or `{uniform: [least, most]}`.
        power_dbm: with which each device sends.
    """

    count: HowMany
    distance_m: Distances = DEFAULT_DISTANCE_M
    power_dbm: Powers = DEFAULT_POWER_DBM

    @model_validator(mode="after")
    def _one_value_for_each_device(self) -> Self:
        for key, values in (("distance_m", self.distance_m), ("power_dbm", self.power_dbm)):
            if isinstance(values, list) and len(values) != self.count:
                count = self.count if isinstance(self.count, int) else "a drawn number"
                raise ValueError(f"expected as many {key} as devices: found {len(values)} for a count of {count}")
        return self


class LinkSection(Section):
    """The link from an edge server to the node above it.

    Attributes:
        rate_mbps: of the link.
        power_dbm: with which the edge server sends.
    """

    rate_mbps: Rate = 100.0
    power_dbm: Decibels = 38.0


Devices = Annotated[
    Annotated[list[DeviceSection], Field(min_length=1), Many] | Annotated[DevicesSection, Mapping],
    Discriminator(shape),
    Expect("a list of at least one device or {count: ...}, or `edges:` in its place"),
]


TrustLevel = Annotated[Trust, Expect(f"one of {', '.join(TRUSTS)}")]


class _ServerSection(Section):
    """What every edge server has, at any height.

    Attributes:
        name: of the edge server; {i} is the number of a repeated one, {parent} the name of the edge server above.
        repeat: how many of these there are.
        trusted: whether it may see raw updates: true or false is short for `trust`.
        trust: `trusted`, `secure-sum` or `untrusted`; where neither key is stated it is drawn.
        host: the host of the subnet under `runtime.placement: labels`.
        link: to the node above; null is `cloud.link`.
    """

    name: Name
    repeat: Count = 1
    trusted: Flag | None = None
    trust: TrustLevel | None = None
    host: Name | None = None
    link: LinkSection | None = None

    @model_validator(mode="after")
    def _one_statement_of_trust(self) -> Self:
        if self.trusted is not None and self.trust is not None:
            raise ValueError("expected `trust:` or `trusted:`, found both")
        return self

    @property
    def stated_trust(self) -> Trust | None:
        """The trust that is stated; None where it is to be drawn."""
        return self.trust if self.trusted is None else trust_of(self.trusted, self.name)


class EdgeSection(_ServerSection):
    """One edge server with devices, or `repeat` of them with {i} in the name.

    {parent} in a name or a host stands for the name of the edge server above.

    Attributes:
        devices: one by one, or `{count: 5}` of a kind.
    """

    devices: Devices


class UpperEdgeSection(_ServerSection):
    """One edge server above other edge servers, or `repeat` of them, each with edge servers of its own.

    Attributes:
        edges: the edge servers below it.
    """

    edges: Edges

    @model_validator(mode="before")
    @classmethod
    def _devices_are_below(cls, values: Any) -> Any:
        if isinstance(values, dict) and "devices" in values:
            raise ValueError("expected `devices:` or `edges:`, found both")
        return values


def _tier(value: Any) -> str:
    """Which kind of edge server a value is; a misspelt `edges:` counts."""
    if not isinstance(value, dict):
        return "upper" if isinstance(value, UpperEdgeSection) else "lowest"
    words = [str(key) for key in value]
    upper = "edges" in words or ("devices" not in words and difflib.get_close_matches("edges", words, n=1, cutoff=0.75))
    return "upper" if upper else "lowest"


Edges = Annotated[
    list[
        Annotated[
            Annotated[EdgeSection, Tag("lowest")] | Annotated[UpperEdgeSection, Tag("upper")], Discriminator(_tier)
        ]
    ],
    Field(min_length=1),
    Expect("a list of at least one edge server"),
]
UpperEdgeSection.model_rebuild()


class CloudSection(Section):
    """The cloud.

    Attributes:
        link: the default for every edge server of every tier.
    """

    link: LinkSection = LinkSection()


PerStep = Annotated[float, Field(ge=0, le=1e9), Expect("a number from 0 to 1e9")]


class ComputeSection(Section):
    """The cost of one local step.

    Attributes:
        seconds_per_step: s of the simulated clock.
        joules_per_step: J of the device.
    """

    seconds_per_step: PerStep = 0.0
    joules_per_step: PerStep = 0.0


class SharesSection(Section):
    """Shares of the edge servers, of two levels of trust.

    Attributes:
        trusted: the share that is trusted.
        secure-sum: the share that learns sums alone.
    """

    trusted: Probability = 0.0
    secure_sum: Probability = Field(default=0.0, alias="secure-sum")


class TrustSection(Section):
    """How trust is drawn for an edge server that states none (H2FDP, Eq. 27).

    Attributes:
        probability: that an edge server is trusted.
        trusted: with three levels, the probability that an edge server is trusted.
        secure-sum: with three levels, the probability that an edge server learns sums alone.
        share: instead of probabilities: just this share of the edge servers is trusted; or `{trusted, secure-sum}`, the
            shares of these two.
    """

    probability: Probability | None = None
    trusted: Probability | None = None
    secure_sum: Probability | None = Field(default=None, alias="secure-sum")
    share: Probability | SharesSection | None = None

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        levels = self.trusted is not None or self.secure_sum is not None
        if levels + (self.probability is not None) + (self.share is not None) > 1:
            raise ValueError("expected `probability:`, `share:`, or `trusted:` and `secure-sum:`, found several")
        for what, drawn in (("probabilities", self.drawn), ("shares", self.shares)):
            if drawn is not None and drawn.trusted + drawn.secure_sum > 1:
                found = f"{drawn.trusted:g} and {drawn.secure_sum:g}"
                raise ValueError(f"expected {what} whose sum is at most 1, found {found}")
        return self

    @property
    def shares(self) -> TrustShares | None:
        """The exact shares, where these are asked for."""
        if isinstance(self.share, SharesSection):
            return TrustShares(self.share.trusted, self.share.secure_sum)
        return None if self.share is None else TrustShares(self.share)

    @property
    def drawn(self) -> TrustProbabilities:
        """The probabilities; trusted and secure-sum are 0 where only the other one is stated."""
        if self.trusted is None and self.secure_sum is None:
            return TrustProbabilities(DEFAULT_TRUST_PROBABILITY if self.probability is None else self.probability)
        return TrustProbabilities(self.trusted or 0.0, self.secure_sum or 0.0)


class TopologyFile(Section):
    """A whole topology file.

    Attributes:
        name: of the network.
        cloud: the root of the tree.
        radio: the wireless channel from devices to edge servers.
        compute: the cost of one local step.
        trust: how trust is drawn where an edge server states none; null is the probability 0.5.
        edges: the edge servers, with their devices or with edge servers below them.
    """

    other_names: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("servers", "edge_servers", "clusters"), "edges"),
        **dict.fromkeys(("clients", "num_clients", "users"), "devices"),
    }

    name: Name = "topology"
    cloud: CloudSection = CloudSection()
    radio: RadioSection = RadioSection()
    compute: ComputeSection = ComputeSection()
    trust: TrustSection | None = None
    edges: Edges

    def every_edge(self) -> Iterator[EdgeSection | UpperEdgeSection]:
        """The sections of all edge servers, each before those below it."""
        waiting = list(reversed(self.edges))
        while waiting:
            section = waiting.pop()
            yield section
            if isinstance(section, UpperEdgeSection):
                waiting += reversed(section.edges)
