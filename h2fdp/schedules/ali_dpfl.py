"""The schedules `ali-dpfl` and `ali-dpfl-v1`: choose tau for each round when both rounds and privacy are limited."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from h2fdp.config.fields import Count, Magnitude, NonNegative, Positive
from h2fdp.errors import UserError
from h2fdp.schedules.ali_bounds import DpSgdNoise, OptimumForm, ali_first_optimum, ali_optimum, iterations_in_reach
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import Horizon
from h2fdp.schedules.drift import DriftConstants
from h2fdp.schedules.feedback import DeviceSecants, IntervalObservation
from h2fdp.schedules.loss_probes import CurvatureSource, drift_constants, mean_curvature, mean_loss_change
from h2fdp.schedules.ranges import require, require_count
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import DriftOptions, Measured, ScheduleOptions, ScheduleTraits

LONGEST = 100  # tau is never above it


@dataclass(frozen=True)
class BudgetProgress:
    """Where a run with two budgets stands.

    Attributes:
        rounds: R_s, all of them.
        iterations: R_c, all of them.
        rounds_left: of R_s.
        iterations_left: of R_c.
        last_tau: the local steps of the round before.
    """

    rounds: int
    iterations: int
    rounds_left: int
    iterations_left: int
    last_tau: int


class AliRule(Protocol):
    """How tau* follows from constants of the losses."""

    @property
    def measures(self) -> bool:
        """Whether devices have to measure any of the constants."""
        ...

    @property
    def stated(self) -> Mapping[str, float]:
        """The constants that the operator states, by letter."""
        ...

    @property
    def letters(self) -> tuple[str, ...]:
        """All that the rule needs."""
        ...

    def learned(self, seen: DeviceSecants) -> Mapping[str, float]:
        """The constants that follow from the devices' measurements, by letter."""
        ...

    def optimum(self, constants: Mapping[str, float], stage: BudgetProgress) -> tuple[float, Mapping[str, float]]:
        """tau*, not yet rounded nor cut to `LONGEST`, and the numbers that it followed from by letter."""
        ...


@dataclass(frozen=True)
class ClosedFormRule:
    """The second version: (9), with T = min{R_s tau, R_c} and the tau of the round before.

    Attributes:
        curvature: the operator's mu; None has devices measure it, as `curvature_from` says.
        heterogeneity: the operator's Gamma; None has devices measure it, as the authors' program.
        form: 2 + 1/T as in the paper, or 2 + 2/T as in the program.
    """

    noise: DpSgdNoise
    curvature: float | None = None
    heterogeneity: float | None = None
    curvature_from: CurvatureSource = "parameters"
    form: OptimumForm = "program"

    @property
    def letters(self) -> tuple[str, ...]:
        return ("mu", "Gamma")

    @property
    def measures(self) -> bool:
        return len(self.stated) < len(self.letters)

    @property
    def stated(self) -> Mapping[str, float]:
        return _known({"mu": self.curvature, "Gamma": self.heterogeneity})

    def learned(self, seen: DeviceSecants) -> Mapping[str, float]:
        return _known({"mu": mean_curvature(seen, self.curvature_from), "Gamma": mean_loss_change(seen)})

    def optimum(self, constants: Mapping[str, float], stage: BudgetProgress) -> tuple[float, Mapping[str, float]]:
        total = iterations_in_reach(stage.rounds, stage.iterations, stage.last_tau)
        best = ali_optimum(total, constants["mu"], constants["Gamma"], self.noise, self.form)
        return float(best), {"T": total, **_letters_of(self.noise)}


@dataclass(frozen=True)
class SearchRule:
    """The first version: the least G over 1 .. min{2 tau, 100}, T being what is left of both budgets.

    Attributes:
        step_size: eta.
        nearness: omega.
        least_gap: lambda.
        constants: the operator's rho, beta and xi; None has devices measure them.
    """

    noise: DpSgdNoise
    step_size: float
    nearness: float = 1.0
    least_gap: float = 1.0
    constants: DriftConstants | None = None

    @property
    def letters(self) -> tuple[str, ...]:
        return ("rho", "beta", "xi")

    @property
    def measures(self) -> bool:
        return self.constants is None

    @property
    def stated(self) -> Mapping[str, float]:
        return _by_letter(self.constants)

    def learned(self, seen: DeviceSecants) -> Mapping[str, float]:
        return _by_letter(drift_constants(seen))

    def optimum(self, constants: Mapping[str, float], stage: BudgetProgress) -> tuple[float, Mapping[str, float]]:
        """See `AliRule`; 1 where the bound says nothing of any tau."""
        longest = min(2 * stage.last_tau, LONGEST)
        drift = DriftConstants(*(constants[letter] for letter in self.letters))
        best = ali_first_optimum(
            longest,
            stage.rounds_left,
            stage.iterations_left,
            self.step_size,
            drift,
            self.noise,
            self.nearness,
            self.least_gap,
        )
        numbers = {"tau_m": longest, "omega": self.nearness, "lambda": self.least_gap, **_letters_of(self.noise)}
        return float(best or 1), numbers


def _letters_of(noise: DpSgdNoise) -> Mapping[str, float]:
    return {"C": noise.clip_norm, "sigma": noise.noise_multiplier, "d": noise.parameters, "B": noise.batch}


def _by_letter(constants: DriftConstants | None) -> Mapping[str, float]:
    if constants is None:
        return {}
    return {"rho": constants.lipschitz, "beta": constants.smoothness, "xi": constants.divergence}


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {letter: value for letter, value in values.items() if value is not None}


class AliSchedule(Schedule):
    """ALI-DPFL, with tau* by either version's rule.

    The first round has one local step. Where rounds abound (R_s >= R_c) all have (Lemma 1). Otherwise tau* follows from
    the constants as the last round's devices measured them; where they measured none, the ones before stay, and while
    there are none at all, tau is 1. Training ends at the first budget that is spent.

    Args:
        rule: `ClosedFormRule` for the second version, `SearchRule` for the first.
        rounds: R_s.
        iterations: R_c, of each device.
        step_size: eta, the same in all rounds.
        participation: (N,) how many devices of each subnet take part.

    Raises:
        UserError: a budget of nothing, a step size that is none.
    """

    observes: ClassVar[bool] = True

    def __init__(
        self, rule: AliRule, rounds: int, iterations: int, step_size: float, participation: np.ndarray
    ) -> None:
        require_count(rounds, 1, "rounds")
        require_count(iterations, 1, "iterations")
        require(0 < step_size < math.inf, "step_size", step_size, "a finite number above 0")
        self._rule = rule
        self._rounds = rounds
        self._iterations = iterations
        self._step_size = step_size
        self._participation = participation
        self._learned: dict[str, float] = {}
        self._last_tau: int | None = None
        self._rounds_done = 0

    @property
    def measures_secants(self) -> bool:
        """Whether the operator left a constant to be measured, and tau depends on it."""
        return self._rule.measures and self._rounds < self._iterations

    def ends(self, slot: int) -> bool:
        """When R_c iterations or R_s rounds are done."""
        return slot >= self._iterations or self._rounds_done >= self._rounds

    def decide(self, interval: int, slot: int) -> Decision:
        left = self._iterations - slot
        assert left >= 1, "the privacy budget is spent"
        optimum, numbers = self._optimum(interval, left)
        tau = min(_rounded(optimum), left)
        reasons = {
            "interval": interval + 1,
            "slot": slot,
            "tau": tau,
            "step_size": self._step_size,
            "optimum": optimum if math.isfinite(optimum) else None,
            "constants": {"R_s": self._rounds, "R_c": self._iterations, "iterations_left": left, **numbers},
        }
        return Decision(tau, self._step_size, self._participation, reasons)

    def observe(self, seen: IntervalObservation) -> None:
        self.skipped(seen.interval, seen.local_steps, seen.spent)
        if seen.secants is not None:
            self._learned |= self._rule.learned(seen.secants)

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        self._last_tau, self._rounds_done = local_steps, interval + 1

    def state(self) -> dict[str, Any]:
        return {"learned": dict(self._learned), "last_tau": self._last_tau, "rounds_done": self._rounds_done}

    def load(self, state: Mapping[str, Any]) -> None:
        self._learned, self._last_tau = dict(state["learned"]), state["last_tau"]
        self._rounds_done = state["rounds_done"]

    def _optimum(self, interval: int, left: int) -> tuple[float, Mapping[str, float]]:
        """tau* and what it followed from."""
        known = self._learned | dict(self._rule.stated)
        plentiful = self._rounds >= self._iterations
        if plentiful or self._last_tau is None or any(letter not in known for letter in self._rule.letters):
            return 1.0, known
        stage = BudgetProgress(self._rounds, self._iterations, self._rounds - interval, left, self._last_tau)
        optimum, numbers = self._rule.optimum(known, stage)
        return optimum, {"rounds_left": stage.rounds_left, "last_tau": stage.last_tau, **known, **numbers}


def _rounded(optimum: float) -> int:
    """The nearest whole number within 1 .. `LONGEST`."""
    return round(min(max(optimum, 1.0), LONGEST))


class _AliTraits(ScheduleTraits):
    """What both versions have in common."""

    varies_tau: ClassVar[bool] = True
    fixed_step_size: ClassVar[bool] = True
    weighs_step_noise: ClassVar[bool] = True
    counts_iterations: ClassVar[bool] = True
    keeps_to_iterations: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = False

    def measures_within(self, intervals: int, iterations: int | None) -> Measured:
        """Nothing where rounds are enough for all iterations: tau is 1 then, whatever the constants (Lemma 1)."""
        return "nothing" if iterations is not None and intervals >= iterations else self.measures

    def longest_interval(self, horizon: Horizon) -> int:
        return LONGEST

    def _schedule(self, rule: AliRule, context: ScheduleContext) -> AliSchedule:
        iterations = self.most_iterations(context.iterations)
        if iterations is None:
            text = "expected a number of local iterations, because no privacy budget limits it"
            raise UserError(text, key="method.schedule.iterations")
        return AliSchedule(rule, context.intervals, iterations, context.step_size, context.participation)


class AliOptions(_AliTraits, ScheduleOptions):
    """`ali-dpfl`, the second version.

    Attributes:
        curvature: mu, of the strong convexity of the loss; null has devices measure it.
        heterogeneity: Gamma, how far the devices' optima lie apart; null has devices measure it.
        curvature_from: measure mu by `gradients`, as the paper, or by `parameters`, as its program.
        form: 2 + 1/T as in the `paper`, or 2 + 2/T as in the `program`.
        iterations: R_c; null is what the privacy budget allows.
    """

    name: Literal["ali-dpfl"] = "ali-dpfl"

    curvature: Positive | None = None
    heterogeneity: NonNegative | None = None
    curvature_from: CurvatureSource = "parameters"
    form: OptimumForm = "program"
    iterations: Count | None = None

    @property
    def measures(self) -> Measured:
        return "secants" if self.curvature is None or self.heterogeneity is None else "nothing"

    @property
    def stated_iterations(self) -> int | None:
        return self.iterations

    def build(self, context: ScheduleContext) -> AliSchedule:
        rule = ClosedFormRule(context.step_noise, self.curvature, self.heterogeneity, self.curvature_from, self.form)
        return self._schedule(rule, context)


class AliFirstOptions(_AliTraits, DriftOptions):
    """`ali-dpfl-v1`, the first version.

    Attributes:
        nearness: omega of its bound.
        least_gap: lambda of its bound.
        iterations: R_c; null is what the privacy budget allows.
    """

    name: Literal["ali-dpfl-v1"] = "ali-dpfl-v1"

    nearness: Magnitude = 1.0
    least_gap: Magnitude = 1.0
    iterations: Count | None = None

    @property
    def stated_iterations(self) -> int | None:
        return self.iterations

    def build(self, context: ScheduleContext) -> AliSchedule:
        rule = SearchRule(context.step_noise, context.step_size, self.nearness, self.least_gap, self.drift)
        return self._schedule(rule, context)
