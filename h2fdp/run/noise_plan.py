"""The noise of each way that training may go, planned once.

An account knows the ratio of each noise to the sensitivity of its release. Both grow with the clip norm and with the
step size alike, so that noise can be calibrated before these are chosen: at a clip norm and a step size of 1. Their
choice reads how far that noise moves the model, and the run has the same multiple of its own uncalibrated noise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy.vectors import GAUSSIAN
from h2fdp.protocol.planned_releases import NoiseOnModel
from h2fdp.run.calibration import calibrate, met, uncalibrated
from h2fdp.run.forecast import ModelNoise, noise_on_model
from h2fdp.run.setup import Noise, RunInputs, RunSetup
from h2fdp.training.local_steps import pull_of

_LESS = 0.95  # of the noise in the last model: a quieter way leaves no more


@dataclass(frozen=True)
class Way:
    """All of an experiment that the account of given devices depends on: no model, data, clip norm or step size.

    Attributes:
        experiment: at a clip norm and a step size of 1, without its model and its data.
        released: what these release before the first interval.
    """

    experiment: ExperimentFile
    released: Hashable = ()

    @classmethod
    def of(cls, config: ExperimentFile) -> Self | None:
        """The way of a complete experiment; None where its account may depend on more.

        Integers of secure sums are on a grid, noise on steps does not grow with their size, sensitivities in another
        norm than L2 depend on the number of parameters, and a pull depends on the step size. A schedule that is not
        known before the run, or is a user's own, may decide by any number, and what has arrived at a buffer hangs on
        the length of messages.
        """
        placement, traits, method = config.method.privacy, config.method.traits, config.method
        own = isinstance(method.schedule, OwnPart) or isinstance(method.objective, OwnPart)
        decides = own or traits.controlled or traits.buffers or not traits.foreseen
        scales = placement.clips in ("gradient", "update") and placement.input_norm is None
        scales &= placement.noise_law is GAUSSIAN and placement.rounding is None
        if decides or not scales or pull_of(method.local_objective) or config.training.clip_norm is None:
            return None
        model = config.model
        scaled = getattr(model, "standardize", False), getattr(model, "head", "") == "centred"
        return cls(
            at_one(config).model_copy(update={"model": None, "data": None}),
            (repr(getattr(config.data, "prelude", "")), scaled),
        )


def at_one(config: ExperimentFile) -> ExperimentFile:
    """A complete experiment at a clip norm and a step size of 1."""
    norm = config.training.clip_norm if config.training.gamma is not None else 1.0
    return config.model_copy(update={"training": config.training.complete({"clip_norm": norm, "step_size": 1.0})})


@dataclass(frozen=True)
class NoisePlan:
    """The noise of a way, scaled until its account meets the target.

    Attributes:
        way: None where the account is that of `setup` alone.
        setup: the run whose noise was calibrated: at a clip norm and a step size of 1, or else at its own.
        model: the noise on the last model and the length of the way, at a clip norm and a step size of 1.
    """

    way: Way | None
    setup: RunSetup
    model: NoiseOnModel

    def at(self, inputs: RunInputs) -> Noise:
        """The noise of a run that goes the same way; only its first interval is planned, to see that float32 can hold
        it."""
        return replace(calibrate(inputs, self.setup), on_model=self.model.scaled(*_sizes(inputs.config)))


def _sizes(config: ExperimentFile) -> tuple[float, float]:
    """The factors by which noise on the last model and length of the way grow from a clip norm and a step size of 1."""
    training, norm = config.training, config.training.largest_norm
    assert norm is not None, "what gets noise is clipped"
    return norm * (1.0 if config.method.privacy.clips == "update" else training.step_size), training.step_size


def _planned(way: Way | None, inputs: RunInputs) -> NoisePlan:
    """The plan of a way, from one plan of each interval where nothing fails and all take part, and noise is no grid."""
    noise, training = uncalibrated(inputs), inputs.config.training
    draws = inputs.faults.possible or training.public_share < 1 or not inputs.traits.foreseen
    draws = draws or inputs.targets.own is not None  # weights follow from a first account
    alike = inputs.target is not None and inputs.placement.rounding is None and not draws
    model = ModelNoise(RunSetup.of(inputs, noise)) if alike else None
    setup = RunSetup.of(inputs, noise if inputs.target is None else met(inputs, noise, model))
    left = noise_on_model(setup) if model is None else model.sum.scaled(setup.factor)
    noise_grows, way_grows = _sizes(inputs.config)
    return NoisePlan(way, setup, left.scaled(1 / noise_grows, 1 / way_grows))


class NoisePlans:
    """The plans of the ways of one network of devices, each made once.

    Args:
        inputs_of: what an experiment is run with, on these devices.
        by_length: who takes part hangs on the length of messages, and so on the model: no way has one plan for all.
    """

    def __init__(self, inputs_of: Callable[[ExperimentFile], RunInputs], by_length: bool = False) -> None:
        self._inputs_of, self._by_length = inputs_of, by_length
        self._plans: list[NoisePlan] = []

    def of(self, config: ExperimentFile) -> NoisePlan:
        """The plan of a complete experiment's way.

        Raises:
            UserError: see `calibrate`.
        """
        way = self._way(config)
        if (plan := self._remembered(way)) is None:
            plan = _planned(way, self._inputs_of(config if way is None else at_one(config)))
            self._plans.append(plan)
        return plan

    def quieter(self, first: NoisePlan, others: Iterable[ExperimentFile]) -> NoisePlan:
        """The last of these ways in a row of which each leaves less noise in the model than the one before."""
        for config in others:
            try:
                plan = self.of(config)
            except UserError:  # not for these devices or this trust
                break
            if plan.model.noise_std > _LESS * first.model.noise_std:
                break
            first = plan
        return first

    def noise(self, inputs: RunInputs) -> Noise:
        """The noise of a run: of the plan of its way where there is one, or else calibrated at its own numbers."""
        plan = self._remembered(self._way(inputs.config)) if inputs.placement.private else None
        return calibrate(inputs) if plan is None else plan.at(inputs)

    def _way(self, config: ExperimentFile) -> Way | None:
        return None if self._by_length else Way.of(config)

    def _remembered(self, way: Way | None) -> NoisePlan | None:
        return None if way is None else next((each for each in self._plans if each.way == way), None)
