"""The schema of `data:` in an experiment file."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from h2fdp.config import NamedSection
from h2fdp.config.fields import Count, Expect, Flag, NonNegative, OpenProbability, Text
from h2fdp.config.own_parts import OwnKind, OwnPart, own_part
from h2fdp.data.partition_section import PartitionSection
from h2fdp.data.registry import DATA_SETS

Classes = Annotated[int, Field(ge=2, le=65_536), Expect("a whole number from 2 to 65536")]
LogSize = Annotated[float, Field(ge=0, le=20), Expect("a number from 0 to 20")]
HeldOut = Annotated[float, Field(ge=0, lt=1), Expect("a number of at least 0 and below 1")]
_OF_UNLIKE = ("alpha", "beta")  # how much devices differ; they do not with `iid: true`
DataName = Annotated[
    str, Field(json_schema_extra={"enum": sorted(DATA_SETS)}), Expect(f"one of {', '.join(sorted(DATA_SETS))}")
]


class DataSection(NamedSection):
    """Which data set, and who holds what; the word `fashion-mnist` alone is short for {name: fashion-mnist}.

    Keys without a value here get the data set's own default; keys that mean nothing to it are refused, None stands for
    them in a checked section.

    >>> DataSection.model_validate("fashion-mnist").partition.labels_per_device
    3
    """

    name: DataName
    validation: HeldOut = 0.0
    normalize: Literal["standard", "unit"] | None = None
    path: Text | None = None
    classes: Classes | None = None
    features: Count | None = None
    iid: Flag | None = None
    alpha: NonNegative | None = None
    beta: NonNegative | None = None
    log_size_mean: LogSize | None = None
    log_size_deviation: LogSize | None = None
    smallest_size: Count | None = None
    test_share: OpenProbability | None = None
    partition: PartitionSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        """A word becomes a name; missing keys get the data set's defaults."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in DATA_SETS:
            return value
        filled = dict(value)
        differ = filled.get("iid") in (None, False, "no", "off")
        for key, default in DATA_SETS[value["name"]].keys.items():
            if filled.get(key) is None and (key not in _OF_UNLIKE or differ):
                filled[key] = default
        return filled

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in DATA_SETS:
            close = difflib.get_close_matches(name, DATA_SETS, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise ValueError(f'expected one of {", ".join(sorted(DATA_SETS))}, found "{name[:40]}"{hint}')
        return name

    @field_validator("*", mode="before")
    @classmethod
    def _means_something(cls, value: Any, info: ValidationInfo) -> Any:
        name, key = info.data.get("name"), info.field_name
        if name is None or value is None or key in ("name", "validation"):
            return value
        if key not in DATA_SETS[name].keys:
            allowed = ", ".join(("name", "validation", *DATA_SETS[name].keys))
            raise ValueError(f"`{key}` means nothing for {name}; allowed here: {allowed}")
        if key in _OF_UNLIKE and info.data.get("iid"):
            raise ValueError(f"`{key}` means nothing with `iid: true`, where no device differs; leave it out")
        return value

    @model_validator(mode="after")
    def _path_of_npz(self) -> DataSection:
        if self.name == "npz" and self.path is None:
            raise ValueError("npz needs `path`, the archive with the arrays")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The keys that mean something to this data set, with their values."""
        return {key: getattr(self, key) for key in DATA_SETS[self.name].keys}


def _own(value: Any, info: ValidationInfo) -> Any:
    """`module:records` is a function from a device's name to its records."""
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(name, str) or ":" not in name:
        return value
    folder = (info.context or {}).get("folder") or Path.cwd()
    return own_part(value if isinstance(value, dict) else {"name": value}, folder, OwnKind("a function for records"))


DataChoice = Annotated[
    Annotated[DataSection, Tag("known")] | Annotated[OwnPart, Tag("own")],
    Discriminator(lambda value: "own" if isinstance(value, OwnPart) else "known"),
    BeforeValidator(_own),
]
