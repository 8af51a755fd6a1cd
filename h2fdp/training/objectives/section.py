"""The schema of `method.objective`, and the registry of local objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from h2fdp.config import NamedSection
from h2fdp.config.fields import Expect
from h2fdp.training.objectives.objective import LocalObjective
from h2fdp.training.objectives.plain import Plain
from h2fdp.training.objectives.proximal import Proximal


@dataclass(frozen=True)
class _Entry:
    build: Callable[..., LocalObjective]
    options: Mapping[str, float] = field(default_factory=dict)


OBJECTIVES: dict[str, _Entry] = {"plain": _Entry(Plain), "proximal": _Entry(Proximal, {"mu": 0.1})}

Pull = Annotated[float, Field(ge=0, le=1e9), Expect("a number from 0 to 1e9")]


class ObjectiveSection(NamedSection):
    """A local objective with its parameters; the word `proximal` alone is short for {name: proximal}.

    >>> ObjectiveSection.model_validate("proximal").options()
    {'mu': 0.1}
    """

    name: Annotated[str, Field(json_schema_extra={"enum": list(OBJECTIVES)}), Expect(f"one of {', '.join(OBJECTIVES)}")]
    mu: Pull | None = None

    def options(self) -> dict[str, Any]:
        """The parameters that the objective takes, all of them."""
        return {key: getattr(self, key) for key in OBJECTIVES[self.name].options}

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        """A word becomes a name; missing parameters get the objective's defaults."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or value.get("name") not in OBJECTIVES:
            return value
        stated = {key: option for key, option in value.items() if option is not None}
        return {**OBJECTIVES[value["name"]].options, **stated}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in OBJECTIVES:
            raise ValueError(f'expected one of {", ".join(OBJECTIVES)}, found "{name[:40]}"')
        return name

    @field_validator("mu", mode="before")
    @classmethod
    def _means_something(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.data.get("name")
        if name is not None and value is not None and info.field_name not in OBJECTIVES[name].options:
            raise ValueError(f"`{info.field_name}` means nothing for the objective {name}")
        return value


def objective_of(section: ObjectiveSection) -> LocalObjective:
    """The objective that a section describes."""
    return OBJECTIVES[section.name].build(**section.options())
