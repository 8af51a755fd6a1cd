"""The devices of an edge server in a topology file: each by itself, or all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, Tag, create_model, model_validator

from h2fdp.config.fields import Count, Expect, Number, Section, Whole, shape
from h2fdp.topology.devices import Column
from h2fdp.topology.network import COLUMNS

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


class Uniform(Section):
    """Numbers drawn uniformly.

    Attributes:
        uniform: the lowest and the highest number, both included.
        seed: draw under this seed instead of the run's; large networks are written with it.
    """

    uniform: Annotated[
        list[Number], Field(min_length=2, max_length=2), AfterValidator(_ordered), Expect("[lowest, highest]")
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
    Annotated[Count, Scalar] | Annotated[Uniform, AfterValidator(_whole), Mapping],
    Discriminator(shape),
    Expect(f"a whole number of at least 1 or {_DRAWN}"),
]


def _key(column: Column) -> tuple[Any, float]:
    """The type and the default of a column's key: a number, one for each device, or drawn."""
    number: Any = column.number
    kinds: Any = (
        Annotated[number, Scalar]
        | Annotated[list[number], Many]
        | Annotated[Uniform, AfterValidator(_within(column)), Mapping]
    )
    words = f"{column.expected}, a list of them, or {_DRAWN}"
    return Annotated[kinds, Discriminator(shape), Expect(words)], column.default


if TYPE_CHECKING:
    _Columns = Section
else:
    _meanings = "\n".join(f"    {name}: {column.meaning}" for name, column in COLUMNS.items())
    _Columns = create_model(
        "Columns",
        __base__=Section,
        __doc__=f"What each device has.\n\nAttributes:\n{_meanings}",
        **{name: _key(column) for name, column in COLUMNS.items()},
    )


class DeviceSection(_Columns):
    """One device.

    Attributes:
        name: of the device; null is the edge server's name and a number.
    """

    name: Name | None = None

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        for key in COLUMNS:
            if isinstance(getattr(self, key), list):
                raise ValueError(f"expected one number or {_DRAWN} as {key} of one device, found a list")
        return self


class DevicesSection(_Columns):
    """All devices of an edge server at once.

    Attributes:
        count: how many, or `{uniform: [least, most]}`.
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
    Annotated[list[DeviceSection], Field(min_length=1), Many] | Annotated[DevicesSection, Mapping],
    Discriminator(shape),
    Expect("a list of at least one device or {count: ...}, or `edges:` in its place"),
]
