"""What would pay most: what `auto` would choose in place of what a file states, at the same epsilon.

Compared is how far the noise in the last model moves its scores, which needs no accuracy: where it is far above 1,
noise decides what the model says; where it is far below, a longer way would learn more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.training_section import TrainingSection
from h2fdp.models.registry import Auto
from h2fdp.run.noise_on_model import joules_of, noise_on_model
from h2fdp.run.prepare import prepare
from h2fdp.run.recipe import Probe, has_rule
from h2fdp.run.setup import RunSetup

_NEARER = 0.2  # in logarithms, to a noise that moves scores by 1


@dataclass(frozen=True)
class Change:
    """Sections that are left to `auto`.

    Attributes:
        sections: their names.
        scores: by how much the noise in the last model would move its scores.
        energy_j: of all messages, of a first interval times the intervals.
        chosen: what these sections would become, in words.
    """

    sections: tuple[str, ...]
    scores: float
    energy_j: float
    chosen: tuple[str, ...]


def noise_in_scores(setup: RunSetup) -> float:
    """By how much the noise in the last model moves its scores: a standard deviation, to first order."""
    probe = Probe.of(setup.blueprint.module(), setup.data, setup.config)
    return noise_on_model(setup).noise_std * probe.reach


def comparable(setup: RunSetup) -> bool:
    """Whether the noise of other settings can be calibrated before the run, by an account."""
    if setup.noise is None or setup.leaks or not setup.placement.accounted:
        return False
    return setup.traits.foreseen and not setup.traits.controlled and not setup.traits.varies_tau


def changes(setup: RunSetup) -> list[Change]:
    """Training alone, and training with the model, left to `auto`, where that pays: noise is nearer to what it should
    be, or messages cost less, or the model is another. Empty where there is no rule for the method."""
    if not comparable(setup) or not has_rule(_open(setup.config, ("training",))):
        return []
    now, joules, found = noise_in_scores(setup), joules_of(setup), []
    for sections in (("training",), ("training", "model")):
        asked = _open(setup.config, sections)
        if "model" in sections and (setup.image_shape is not None or setup.standardizing is not None):
            continue
        try:
            other = prepare(asked, setup.drawn, data_source=lambda *_: setup.data, own=setup.own)
        except UserError:  # outside what the method is made for
            continue
        change = Change(sections, noise_in_scores(other), joules_of(other), other.chosen)
        nearer = abs(math.log(change.scores)) < abs(math.log(now)) - _NEARER
        if nearer or change.energy_j < 0.9 * joules or other.config.model != setup.config.model:
            found.append(change)
    return found


def _open(config: ExperimentFile, sections: tuple[str, ...]) -> ExperimentFile:
    update: dict[str, object] = {"training": TrainingSection.model_validate({"extends": "auto"})}
    if "model" in sections:
        update["model"] = Auto.model_validate({})
    return config.model_copy(update=update)
