"""The schema of an experiment file as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from h2fdp.config import Section
from h2fdp.config.fields import Expect, Text
from h2fdp.data import DataChoice
from h2fdp.experiment.sections import FaultsSection, PrivacySection, Seed, TrackingSection, TrainingSection
from h2fdp.methods import METHODS, MethodSection
from h2fdp.models import ModelSection
from h2fdp.models.registry import SoftmaxOptions
from h2fdp.runtime.section import RuntimeSection
from h2fdp.schedules import ControlSection, Horizon


class ExperimentFile(Section):
    """One experiment: what the user wrote, checked, every default filled in."""

    name: Annotated[
        str, Field(pattern=r"^[\w.\-]{1,100}$"), Expect("a name of letters, digits, dots, dashes and underscores")
    ] = "experiment"
    topology: Annotated[str | dict[str, Any], Expect("a topology file's path or an inline topology")]
    data: DataChoice
    model: ModelSection = SoftmaxOptions()
    method: MethodSection = MethodSection.model_validate(METHODS["h2fdp"].model_dump())
    training: TrainingSection = TrainingSection.model_validate({})
    privacy: PrivacySection = PrivacySection()
    control: ControlSection = ControlSection()
    runtime: RuntimeSection = RuntimeSection()
    faults: FaultsSection = FaultsSection()
    tracking: TrackingSection = TrackingSection()
    seed: Seed = 1
    sweep: dict[Text, Annotated[list[Any], Expect("a list of values")]] = Field(default_factory=dict)


def horizon(experiment: ExperimentFile) -> Horizon:
    """K_g, T and where the controller starts; its run is counted in steps."""
    training = experiment.training
    assert training.local_steps is not None, "a controller counts in steps"
    return Horizon.planned(training.intervals, training.local_steps, training.step_size, experiment.control)
