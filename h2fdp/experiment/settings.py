"""Keyword settings of the Python interface: `epsilon=1.0` finds its section by itself."""

from __future__ import annotations

from typing import Any

from h2fdp.config import Section
from h2fdp.config.check import key_meant
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import ExperimentFile, FaultsSection, PrivacySection, TrackingSection
from h2fdp.experiment.training_section import TrainingSection
from h2fdp.runtime.section import RuntimeSection
from h2fdp.schedules import ControlSection

_SECTIONS: dict[str, type[Section]] = {
    "training": TrainingSection,
    "privacy": PrivacySection,
    "control": ControlSection,
    "runtime": RuntimeSection,
    "faults": FaultsSection,
    "tracking": TrackingSection,
}
# Of sections with the same key the first one has it: `budget` is that of privacy, not of control.
_OWNER = {key: section for section, schema in reversed(_SECTIONS.items()) for key in schema.model_fields}


def place_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as the sections of an experiment file.

    A keyword is a section with a mapping (`training={"intervals": 5}`) or a key of a section (`intervals=5`).

    Raises:
        UserError: a keyword that is neither, or a key that is stated twice.

    >>> place_settings({"epsilon": 2.0, "training": {"intervals": 5}, "local_steps": 10})
    {'training': {'intervals': 5, 'local_steps': 10}, 'privacy': {'epsilon': 2.0}}
    """
    whole = {key: value for key, value in settings.items() if key in ExperimentFile.model_fields}
    placed: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in whole.items()}
    if isinstance(placed.get("training"), str):
        placed["training"] = {"extends": placed["training"]}
    problems = []
    for key, value in settings.items():
        if key in whole:
            continue
        if key in _OWNER:
            section = placed.setdefault(_OWNER[key], {})
            if isinstance(section, dict) and key in section:
                problems.append(Problem(f"stated in {_OWNER[key]} too; state it once", "Experiment", key))
            elif isinstance(section, dict):
                section[key] = value
            else:
                problems.append(Problem(f"{_OWNER[key]} is given too and is not a mapping", "Experiment", key))
        else:
            meant = key_meant(key, [*_OWNER, *ExperimentFile.model_fields], ExperimentFile)
            hint = "" if meant is None else f"; did you mean `{meant}`?"
            problems.append(Problem(f"unknown setting{hint}", "Experiment", key))
    if problems:
        raise UserError(problems)
    return placed
