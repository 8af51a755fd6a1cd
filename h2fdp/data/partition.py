"""`data.partition` of an experiment file: who holds what, by a partitioner or as in life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from h2fdp.config import NamedSection, Section
from h2fdp.config.fields import Count, Expect, Flag
from h2fdp.data.partitioners import Integers, at_random, by_dirichlet, by_labels, by_shards
from h2fdp.errors import UserError

_KEY = "data.partition"
KINDS = ("labels_per_device", "dirichlet", "shards", "iid", "natural")
_WORDS = ("iid", "natural")

# Outside of these bounds the draws under- or overflow; a tenth of the lower one already puts a label on one device.
Concentration = Annotated[float, Field(ge=1e-4, le=1e6), Expect("a number from 0.0001 to 1000000")]
LogDeviation = Annotated[float, Field(ge=0, le=10), Expect("a number from 0 to 10")]


class SizesSection(Section):
    """How the sizes of devices differ: in proportion to exp(lognormal * z), z standard normal.

    Attributes:
        lognormal: the standard deviation of the logarithm; 0 makes devices alike.
    """

    lognormal: LogDeviation


class PartitionSection(NamedSection):
    """One of the partitions, with its parameters; the words `iid` and `natural` are short for {iid: true}, ...

    Attributes:
        labels_per_device: each device has records of so many labels.
        dirichlet: each label is spread by shares from a Dirichlet distribution: the smaller, the more uneven.
        shards: records sorted by label are cut into so many, with `per_device`.
        per_device: how many `shards` each device is dealt.
        iid: records are spread at random.
        natural: each owner of records is a device; with more owners than devices, a device gets several.
        sizes: how the sizes of devices differ; null for alike, as far as the partition allows.
    """

    labels_per_device: Count | None = None
    dirichlet: Concentration | None = None
    shards: Count | None = None
    per_device: Count | None = None
    iid: Flag = False
    natural: Flag = False
    sizes: SizesSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        if isinstance(value, str) and value in _WORDS:
            return {value: True}
        if isinstance(value, str):
            kinds = ", ".join(kind for kind in KINDS if kind not in _WORDS)
            raise ValueError(f'expected iid, natural or keys and values ({kinds}), found "{value[:40]}"')
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> PartitionSection:
        stated = self._stated()
        if len(stated) != 1:
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}, found {', '.join(stated) or 'none'}")
        if (self.shards is None) != (self.per_device is None):
            raise ValueError("`shards` and `per_device` belong together, as {shards: 400, per_device: 40}")
        if self.natural and self.sizes is not None:
            raise ValueError("`sizes` means nothing with `natural`, where records stay with their owners")
        return self

    @property
    def kind(self) -> str:
        """Which of KINDS it is."""
        return self._stated()[0]

    def _stated(self) -> list[str]:
        return [kind for kind in KINDS if getattr(self, kind) not in (None, False)]


class Partitioner(NamedTuple):
    """A registry line: what it does, the function, and the section's keys that the function takes."""

    description: str
    cut: Callable[..., Integers]
    parameters: tuple[str, ...]


PARTITIONERS: Mapping[str, Partitioner] = MappingProxyType(
    {
        "labels_per_device": Partitioner(
            "a fixed number of labels on each device, balanced", by_labels, ("labels_per_device",)
        ),
        "dirichlet": Partitioner("labels spread by Dirichlet proportions", by_dirichlet, ("dirichlet",)),
        "shards": Partitioner("random shards of label-sorted records", by_shards, ("shards", "per_device")),
        "iid": Partitioner("records at random", at_random, ()),
    }
)


def partition(section: PartitionSection, labels: Integers, devices: int, rng: np.random.Generator) -> Integers:
    """The owners that a `partition:` section asks for.

    Raises:
        UserError: fewer records than devices, or a partition that these labels do not allow.
    """
    if len(labels) < devices:
        raise UserError(f"{len(labels)} training records are too few for {devices} devices", key=_KEY)
    spread = 0.0 if section.sizes is None else section.sizes.lognormal
    weights = np.exp(spread * rng.standard_normal(devices))
    if section.natural:
        raise UserError("these data do not say who holds their records; expected another partition", key=_KEY)
    chosen = PARTITIONERS[section.kind]
    return chosen.cut(labels, weights, rng, *(getattr(section, name) for name in chosen.parameters))


def natural(
    owners: Integers, test_owners: Integers | None, devices: int, rng: np.random.Generator | None
) -> tuple[Integers, Integers | None]:
    """Owners of records as devices: each is one device, in the order of the owners' numbers, where there are as many.

    Args:
        owners: (records,) any number that stands for who holds each record.
        test_owners: (test records,) the same, of these owners, or None.
        rng: deals a larger number of owners out to the devices, whole and equally many to each, +-1; None where there
            should be as many as devices.

    Raises:
        UserError: too few owners, or too many.

    >>> natural(np.array([7, 3, 3]), np.array([7]), 2, None)
    (array([1, 0, 0]), array([1]))
    """
    numbers = np.unique(owners)
    if len(numbers) < devices or (len(numbers) > devices and rng is None):
        hint = "" if len(numbers) < devices else "; `partition: natural` deals owners out to devices"
        text = f"the records have {len(numbers)} owners, but the topology has {devices} devices{hint}"
        raise UserError(text, key=_KEY)
    of_number = np.arange(devices)
    if len(numbers) > devices and rng is not None:
        of_number = rng.permutation(np.arange(len(numbers)) % devices)
    tested = None if test_owners is None else of_number[np.searchsorted(numbers, test_owners)]
    return of_number[np.searchsorted(numbers, owners)], tested
