"""A topology file, key by key, in the units that users write.

Defaults are those of the paper (H2FDP, Appendix D).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from h2fdp.config.fields import Count, Expect, Flag, Section
from h2fdp.topology.devices import Decibels
from h2fdp.topology.devices_section import Devices, Name
from h2fdp.topology.radio import RadioSection
from h2fdp.topology.trust import Trust, trust_of
from h2fdp.topology.trust_section import TrustLevel, TrustSection

UNLIMITED = "unlimited"


def _unlimited(value: Any) -> Any:
    return float("inf") if value == UNLIMITED else value


Rate = Annotated[
    float, Field(gt=0, allow_inf_nan=True), BeforeValidator(_unlimited), Expect(f"a number above 0, or `{UNLIMITED}`")
]


class LinkSection(Section):
    """The link from an edge server to the node above it.

    Attributes:
        rate_mbps: of the link.
        power_dbm: with which the edge server sends.
    """

    rate_mbps: Rate = 100.0
    power_dbm: Decibels = 38.0


class _ServerSection(Section):
    """What every edge server has, at any height.

    Attributes:
        name: of the edge server; {i} is the number of a repeated one, {parent} the name of the edge server above.
        repeat: how many of these there are.
        trusted: whether it may see raw updates: true or false is short for `trust`.
        trust: `trusted`, `secure-sum` or `untrusted`; where neither key is stated it is drawn.
        link: to the node above; null is `cloud.link`.
    """

    name: Name
    repeat: Count = 1
    trusted: Flag | None = None
    trust: TrustLevel | None = None
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

    {parent} in a name stands for the name of the edge server above.

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
