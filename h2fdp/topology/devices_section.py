"""The devices of an edge server in a topology file: each by itself, or all at once.

Defaults are those of the paper (H2FDP, Appendix D); it is silent on distances, where 50 m is ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from h2fdp.config.fields import Count, Expect, Positive, Section, Whole, shape
from h2fdp.topology.path_loss import Decibels

DEFAULT_DISTANCE_M = 50.0
DEFAULT_POWER_DBM = 24.0
LARGEST_NAME = 200


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("a name has printable characters only, and no blank at either end")
    return value


def _ordered(value: list[Any]) -> list[Any]:
    if value[0] > value[1]:
        raise ValueError(f"expected the lowest value first, found [{value[0]:g}, {value[1]:g}]")
    return value


Name = Annotated[
    str,
    Field(min_length=1, max_length=LARGEST_NAME),
    AfterValidator(_printable),
    Expect(f"a text of 1 to {LARGEST_NAME} characters"),
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


Devices = Annotated[
    Annotated[list[DeviceSection], Field(min_length=1), Many] | Annotated[DevicesSection, Mapping],
    Discriminator(shape),
    Expect("a list of at least one device or {count: ...}, or `edges:` in its place"),
]
