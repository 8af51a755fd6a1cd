"""The schema of `data.partition` in an experiment file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from h2fdp.config import NamedSection, Section
from h2fdp.config.fields import Count, Expect, Flag

KINDS = ("labels_per_device", "dirichlet", "shards", "iid")

# Outside of these bounds the draws under- or overflow; a tenth of the lower one already puts a label on one device.
Concentration = Annotated[float, Field(ge=1e-4, le=1e6), Expect("a number from 0.0001 to 1000000")]
LogDeviation = Annotated[float, Field(ge=0, le=10), Expect("a number from 0 to 10")]


class SizesSection(Section):
    """How the sizes of devices differ: in proportion to exp(lognormal * z), z standard normal."""

    lognormal: LogDeviation


class PartitionSection(NamedSection):
    """One of the partitions, with its parameters; the word `iid` alone is short for {iid: true}."""

    labels_per_device: Count | None = None
    dirichlet: Concentration | None = None
    shards: Count | None = None
    per_device: Count | None = None
    iid: Flag = False
    sizes: SizesSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        if value == "iid":
            return {"iid": True}
        if isinstance(value, str):
            raise ValueError(f'expected iid or keys and values ({", ".join(KINDS[:-1])}), found "{value[:40]}"')
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> PartitionSection:
        stated = self._stated()
        if len(stated) != 1:
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}, found {', '.join(stated) or 'none'}")
        if (self.shards is None) != (self.per_device is None):
            raise ValueError("`shards` and `per_device` belong together, as {shards: 400, per_device: 40}")
        return self

    @property
    def kind(self) -> str:
        """Which of KINDS it is."""
        return self._stated()[0]

    def _stated(self) -> list[str]:
        return [kind for kind in KINDS if getattr(self, kind) not in (None, False)]
