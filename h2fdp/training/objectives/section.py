"""The schema of `method.objective`, and the registry of local objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from h2fdp.config.choice import Choice
from h2fdp.config.fields import Count, Expect, Magnitude
from h2fdp.training.objectives.feddyn import FedDyn
from h2fdp.training.objectives.objective import LocalObjective
from h2fdp.training.objectives.pfedme import PFedMe
from h2fdp.training.objectives.plain import Plain
from h2fdp.training.objectives.proximal import Proximal
from h2fdp.training.objectives.scaffold import Scaffold


@dataclass(frozen=True)
class _Entry:
    build: Callable[..., LocalObjective]
    options: Mapping[str, float] = field(default_factory=dict)


OBJECTIVES: dict[str, _Entry] = {
    "plain": _Entry(Plain),
    "proximal": _Entry(Proximal, {"mu": 0.1}),
    "scaffold": _Entry(Scaffold),
    "feddyn": _Entry(FedDyn, {"alpha": 0.1}),
    "pfedme": _Entry(PFedMe, {"penalty": 15.0, "inner_steps": 5, "inner_step_size": 0.05}),
}

Pull = Annotated[float, Field(ge=0, le=1e9), Expect("a number from 0 to 1e9")]


class ObjectiveSection(Choice):
    """A local objective with its parameters; the word `proximal` alone is short for {name: proximal}.

    Attributes:
        mu: of the proximal pull.
        alpha: of FedDyn's regulariser; its server has the same.
        penalty: pFedMe's lambda, which ties a device's own model to the shared one.
        inner_steps, inner_step_size: of the descent to that own model, for each local step.

    >>> ObjectiveSection.model_validate("proximal").options()
    {'mu': 0.1}
    """

    choices: ClassVar = {name: dict(entry.options) for name, entry in OBJECTIVES.items()}

    mu: Pull | None = None
    alpha: Magnitude | None = None
    penalty: Magnitude | None = None
    inner_steps: Count | None = None
    inner_step_size: Magnitude | None = None


def objective_of(section: ObjectiveSection) -> LocalObjective:
    """The objective that a section describes."""
    return OBJECTIVES[section.name].build(**section.options())
