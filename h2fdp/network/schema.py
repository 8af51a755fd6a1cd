"""A topology file, key by key, in the units that users write.

Defaults are those of the paper (H2FDP, Appendix D).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    create_model,
    model_validator,
)

from h2fdp.config.fields import BY_SHAPE, Count, Expect, Number, Section, Whole, ascending, extended
from h2fdp.network import traces  # noqa: F401 - registers itself
from h2fdp.network.devices import KINDS, Column
from h2fdp.network.links import LinkChoice, WireSection
from h2fdp.network.network import COLUMNS, CloudTrust, TrustLevel, TrustSection
from h2fdp.network.parts import PartSection
from h2fdp.network.radio import Radio, RadioSection

LARGEST_NAME = 200


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("a name has printable characters only, and no blank at either end")
    return value


Name = Annotated[
    str,
    Field(min_length=1, max_length=LARGEST_NAME),
    AfterValidator(_printable),
    Expect(f"a text of 1 to {LARGEST_NAME} characters"),
]


class Uniform(Section):
    """Numbers drawn uniformly.

    Attributes:
        uniform: the lowest and the highest number, both included.
        seed: draw under this seed instead of the run's; large networks are written with it.
    """

    uniform: Annotated[
        list[Number], Field(min_length=2, max_length=2), AfterValidator(ascending), Expect("[lowest, highest]")
    ]
    seed: Whole | None = None


_DRAWN = "{uniform: [lowest, highest]}"


def _within(column: Column) -> Callable[[Uniform], Uniform]:
    def checked(rule: Uniform) -> Uniform:
        if not column.allows(np.array(rule.uniform)):
            raise ValueError(f"expected twice {column.expected}, found {rule.uniform}")
        return rule

    return checked


def _whole(rule: Uniform) -> Uniform:
    if rule.uniform[0] < 1 or any(end % 1 for end in rule.uniform):
        raise ValueError(f"expected whole numbers of at least 1, found {rule.uniform}")
    return rule


HowMany = Annotated[
    Count | Annotated[Uniform, AfterValidator(_whole)],
    BY_SHAPE,
    Expect(f"a whole number of at least 1 or {_DRAWN}"),
]


def _key(column: Column) -> tuple[Any, float]:
    """The type and the default of a column's key: a number, one for each device, or drawn."""
    number: Any = column.number
    kinds: Any = number | list[number] | Annotated[Uniform, AfterValidator(_within(column))]
    words = f"{column.expected}, a list of them, or {_DRAWN}"
    return Annotated[kinds, BY_SHAPE, Expect(words)], column.default


if TYPE_CHECKING:

    class _Columns(Section):
        kind: str | None = None
else:
    _meanings = "\n".join(f"    {name}: {column.meaning}" for name, column in COLUMNS.items())
    _kind = f"    kind: hardware of the catalogue, {', '.join(KINDS)}: its numbers stand where the file states none."
    _Columns = create_model(
        "Columns",
        __base__=Section,
        __doc__=f"What every device has.\n\nAttributes:\n{_meanings}\n{_kind}",
        kind=(Literal[tuple(KINDS)] | None, None),
        **{name: _key(column) for name, column in COLUMNS.items()},
    )


def _one_number(section: _Columns) -> _Columns:
    for key in COLUMNS:
        if isinstance(getattr(section, key), list):
            raise ValueError(f"expected one number or {_DRAWN} as {key} of a device, found a list")
    return section


EveryDevice = Annotated[_Columns, AfterValidator(_one_number)]


class DeviceSection(_Columns):
    """One device.

    Attributes:
        name: name of the device; null: the edge server's name and a number.
    """

    name: Name | None = None

    @model_validator(mode="after")
    def _has_one_number(self) -> Self:
        _one_number(self)
        return self


class DevicesSection(_Columns):
    """All devices of an edge server at once.

    Attributes:
        count: number of devices, or `{uniform: [least, most]}`.
    """

    count: HowMany

    @model_validator(mode="after")
    def _one_value_for_each_device(self) -> Self:
        for key in COLUMNS:
            values = getattr(self, key)
            if isinstance(values, list) and len(values) != self.count:
                count = self.count if isinstance(self.count, int) else "a drawn number"
                raise ValueError(f"expected as many {key} as devices: found {len(values)} for a count of {count}")
        return self


Devices = Annotated[
    Annotated[list[DeviceSection], Field(min_length=1)] | DevicesSection,
    BY_SHAPE,
    Expect("a list of at least one device or {count: ...}, or `edges:` in its place"),
]


class EdgeSection(Section):
    """One edge server with devices, or with other edge servers below it; or `repeat` of them with {i} in the name.

    {parent} in a name stands for the name of the edge server above.

    Attributes:
        name: name of the edge server; {i} is the number of a repeated one, {parent} the name of the edge server above.
        repeat: number of copies.
        trust: `trusted`, `secure-sum`, `relay` or `untrusted`; drawn where it is not stated. `trusted: true` and
            `trusted: false` are short for the first and the last.
        link: link to the node above, a wire, perhaps with windows, or a link of your own; null: `cloud.link`.
        devices: one by one, or `{count: 5}` of a kind, with the keys of `devices` above.
        edges: instead of devices: the edge servers below it.
    """

    name: Name
    repeat: Count = 1
    trust: TrustLevel | None = Field(default=None, validation_alias=AliasChoices("trust", "trusted"))
    link: LinkChoice | None = None
    devices: Devices | None = None
    edges: Edges | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if (self.devices is None) == (self.edges is None):
            raise ValueError(f"expected `devices:` or `edges:`, found {'neither' if self.edges is None else 'both'}")
        return self


Edges = Annotated[list[EdgeSection], Field(min_length=1), Expect("a list of at least one edge server")]
EdgeSection.model_rebuild()


class CloudSection(Section):
    """The cloud.

    Attributes:
        link: default link of every edge server.
        trust: `secure-sum`: the cloud learns only the sum of its children's messages; `untrusted`: each of them.
    """

    link: LinkChoice = WireSection()
    trust: CloudTrust = "untrusted"


@extended
class TopologyFile(Section):
    """A whole topology file.

    Attributes:
        name: name of the network.
        cloud: the root of the tree.
        radio: the wireless channel from devices to edge servers.
        devices: defaults of all devices.
        trust: how trust is drawn where an edge server states none; null is the probability 0.5.
        edges: the edge servers, with their devices or with edge servers below them.
    """

    other_names: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("servers", "edge_servers", "clusters"), "edges"),
        **dict.fromkeys(("clients", "num_clients", "users", "compute"), "devices"),
        "share": "exact",
    }

    gone: ClassVar[Mapping[str, str]] = {
        "association": "python -m experiments.parts.association in a clone writes the network after devices have joined"
    }

    name: Name = "topology"
    cloud: CloudSection = CloudSection()
    radio: RadioSection = RadioSection()
    devices: EveryDevice = _Columns()
    trust: TrustSection | None = None
    edges: Edges

    @model_validator(mode="before")
    @classmethod
    def _of_the_sun(cls, values: Any) -> Any:
        """`devices: {harvest_w: sun.csv}` is short for a `harvest` by which one watt of every device is multiplied."""
        devices = values.get("devices") if isinstance(values, dict) else None
        if not isinstance(devices, dict) or not isinstance(devices.get("harvest_w"), str) or values.get("harvest"):
            return values
        return {**values, "harvest": {"trace": devices["harvest_w"]}, "devices": {**devices, "harvest_w": 1.0}}

    @model_validator(mode="after")
    def _columns_are_read(self) -> Self:
        if "cycles_per_record" not in self.columns:
            for name in ("cpu_ghz", "capacitance"):
                if name in self._stated:
                    raise ValueError(f"expected cycles_per_record too, without which {name} means nothing")
        for name, read in (("harvest_w", "battery_j"), ("harvest", "harvest_w")):
            if (name in self._stated or getattr(self, name, None)) and read not in self.columns:
                raise ValueError(f"expected {read} too, without which {name} means nothing")
        return self

    @property
    def _stated(self) -> set[str]:
        return set().union(*(each.model_fields_set for each in self._of_devices()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of devices: those of the radio, and those that this file states anywhere, or a kind of device."""
        stated = self._stated.union(*(KINDS[each.kind] for each in self._of_devices() if each.kind))
        cycles = "cycles_per_record" in stated
        read = stated if cycles else stated - {"cpu_ghz", "capacitance"} | (stated & self._stated)
        return tuple(name for name in COLUMNS if name in Radio.columns or name in read)

    def _of_devices(self) -> Iterator[_Columns]:
        """The sections that state numbers of devices, that of all devices first."""
        yield self.devices
        for edge in self.every_edge():
            if edge.devices is not None:
                yield from edge.devices if isinstance(edge.devices, list) else [edge.devices]

    def every_edge(self) -> Iterator[EdgeSection]:
        """The sections of all edge servers, each before those below it."""
        waiting = list(reversed(self.edges))
        while waiting:
            section = waiting.pop()
            yield section
            waiting += reversed(section.edges or ())


# The sections of optional parts by key: `Topology` has a field for each.
PARTS: dict[str, type[PartSection]] = {
    key: each
    for key, field in TopologyFile.model_fields.items()
    for each in get_args(field.annotation)
    if issubclass(each, PartSection)
}
