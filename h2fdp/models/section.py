"""The schema of `model:` in an experiment file. Imports no torch."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from h2fdp.config import NamedSection
from h2fdp.config.fields import Count, Expect
from h2fdp.models.registry import MODELS

ModelName = Annotated[
    str, Field(json_schema_extra={"enum": sorted(MODELS)}), Expect(f"one of {', '.join(sorted(MODELS))}")
]


class ModelSection(NamedSection):
    """Which model, with its options; the word `mlp` alone is short for {name: mlp}.

    >>> ModelSection.model_validate("mlp").options()
    {'hidden': 196}
    """

    name: ModelName
    hidden: Count | None = None

    def options(self) -> dict[str, Any]:
        """The options that the model takes, all of them."""
        return {key: getattr(self, key) for key in MODELS[self.name].options}

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        """A word becomes a name; missing options get the model's defaults."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in MODELS:
            return value
        stated = {key: option for key, option in value.items() if option is not None}
        return {**MODELS[value["name"]].options, **stated}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in MODELS:
            close = difflib.get_close_matches(name, MODELS, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise ValueError(f'expected one of {", ".join(sorted(MODELS))}, found "{name[:40]}"{hint}')
        return name

    @field_validator("hidden", mode="before")
    @classmethod
    def _means_something(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.data.get("name")
        if name is not None and value is not None and info.field_name not in MODELS[name].options:
            allowed = ", ".join(("name", *MODELS[name].options))
            raise ValueError(f"`{info.field_name}` means nothing for {name}; allowed here: {allowed}")
        return value
