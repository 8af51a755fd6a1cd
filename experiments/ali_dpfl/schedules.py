"""ALI-DPFL as schedules of one's own, in both versions: tau for each round when both rounds and privacy are limited.

Every local step spends privacy, and R_c steps are affordable; every round spends communication, and R_s rounds are.

    method: {extends: fedavg-dp, privacy: {name: dp-sgd, noise_multiplier: 1.1},
             schedule: {name: "experiments.ali_dpfl:AliDpfl", form: paper}}
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, get_args

from experiments.ali_dpfl.bounds import (
    CurvatureSource,
    DpSgdNoise,
    OptimumForm,
    ali_first_optimum,
    ali_optimum,
    iterations_in_reach,
    least_batch,
    mean_curvature,
    mean_loss_change,
)
from experiments.programs import require
from experiments.resource_budget.drift import (
    DeviceSecants,
    DriftConstants,
    drift_constants,
    measure_secants,
    stated_drift,
)
from h2fdp.errors import UserError
from h2fdp.schedules import Decision, Horizon, IntervalObservation, OwnSchedule, ScheduleContext
from h2fdp.schedules.measuring import Measure

LONGEST = 100  # tau is never above it


class BudgetProgress(NamedTuple):
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


class AliSchedule(OwnSchedule):
    """ALI-DPFL, with tau* by either version's rule.

    The first round has one local step. Where rounds abound (R_s >= R_c) all have (Lemma 1). Otherwise tau* follows from
    the constants as the last round's devices measured them; where they measured none, the ones before stay, and while
    there are none at all, tau is 1. Training ends at the first budget that is spent.

    Attributes:
        letters: of all constants that the rule needs.
        stated: by letter, the constants that the operator states; devices measure them if any is missing.
    """

    varies_tau: ClassVar[bool] = True
    fixed_step_size: ClassVar[bool] = True
    counts_iterations: ClassVar[bool] = True
    keeps_to_iterations: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = False
    observes: ClassVar[bool] = True
    letters: ClassVar[tuple[str, ...]]

    def __init__(self, stated: Mapping[str, float | None]) -> None:
        self.stated = _known(stated)
        self._learned: dict[str, float] = {}
        self._last_tau: int | None = None
        self._rounds_done = 0

    @abstractmethod
    def learned(self, seen: DeviceSecants) -> dict[str, float]:
        """The constants that follow from the devices' measurements, by letter."""

    @abstractmethod
    def optimum(self, constants: Mapping[str, float], stage: BudgetProgress) -> tuple[float, dict[str, float]]:
        """tau*, not yet rounded nor cut to `LONGEST`, and the numbers that it followed from by letter."""

    @property
    def measures(self) -> Measure | None:
        return measure_secants if len(self.stated) < len(self.letters) else None

    def measures_within(self, intervals: int, iterations: int | None) -> Measure | None:
        """Nothing where rounds are enough for all iterations: tau is 1 then, whatever the constants (Lemma 1)."""
        return None if iterations is not None and intervals >= iterations else self.measures

    def longest_interval(self, horizon: Horizon) -> int:
        return LONGEST

    def build(self, context: ScheduleContext) -> AliSchedule:
        """See `ScheduleTraits.build`.

        Raises:
            UserError: steps without noise, or noise that limits no number of them.
        """
        self.context = context
        if context.step_noise_multiplier is None or context.iterations is None:
            text = "ALI-DPFL weighs local steps against the noise of each; expected privacy dp-sgd, with its noise"
            raise UserError(text, key="method.schedule")
        assert context.clip_norm is not None, "noisy steps are clipped"
        batch = least_batch(context.sampling_rates, context.records)
        self.noise = DpSgdNoise(context.clip_norm, context.step_noise_multiplier, context.parameters, batch)
        self._rounds, self._iterations = context.intervals, context.iterations
        return self

    def ends(self, slot: int) -> bool:
        """When R_c iterations or R_s rounds are done."""
        return slot >= self._iterations or self._rounds_done >= self._rounds

    def choose(self, interval: int, slot: int) -> Decision:
        left = self._iterations - slot
        assert left >= 1, "the privacy budget is spent"
        optimum, numbers = self._optimum(interval, left)
        tau, step_size = min(_rounded(optimum), left), self.context.step_size
        reasons = {
            "interval": interval + 1,
            "slot": slot,
            "tau": tau,
            "step_size": step_size,
            "optimum": optimum if math.isfinite(optimum) else None,
            "constants": {"R_s": self._rounds, "R_c": self._iterations, "iterations_left": left, **numbers},
        }
        return Decision(tau, step_size, self.context.participation, reasons)

    def observe(self, seen: IntervalObservation) -> None:
        self.skipped(seen.interval, seen.local_steps, seen.spent)
        if seen.measured is not None:
            self._learned |= self.learned(DeviceSecants.of(seen.measured))

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        self._last_tau, self._rounds_done = local_steps, interval + 1

    def state(self) -> dict[str, Any]:
        return {"learned": dict(self._learned), "last_tau": self._last_tau, "rounds_done": self._rounds_done}

    def load(self, state: Mapping[str, Any]) -> None:
        self._learned, self._last_tau = dict(state["learned"]), state["last_tau"]
        self._rounds_done = state["rounds_done"]

    def _optimum(self, interval: int, left: int) -> tuple[float, dict[str, float]]:
        """tau* and what it followed from."""
        known = self._learned | self.stated
        plentiful = self._rounds >= self._iterations
        if plentiful or self._last_tau is None or any(letter not in known for letter in self.letters):
            return 1.0, known
        stage = BudgetProgress(self._rounds, self._iterations, self._rounds - interval, left, self._last_tau)
        optimum, numbers = self.optimum(known, stage)
        of_noise = {"C": self.noise.clip_norm, "sigma": self.noise.noise_multiplier}
        of_noise |= {"d": self.noise.parameters, "B": self.noise.batch}
        before = {"rounds_left": stage.rounds_left, "last_tau": stage.last_tau}
        return optimum, {**before, **known, **numbers, **of_noise}


class AliDpfl(AliSchedule):
    """The second version: (9), with T = min{R_s tau, R_c} and the tau of the round before.

    Args:
        curvature: mu, of the strong convexity of the loss; None has devices measure it.
        heterogeneity: Gamma, how far the devices' optima lie apart; None has devices measure it.
        curvature_from: measure mu by `gradients`, as the paper, or by `parameters`, as its program.
        form: 2 + 1/T as in the `paper`, or 2 + 2/T as in the `program`.

    Raises:
        UserError: a number out of its range, a word that means nothing.
    """

    letters: ClassVar[tuple[str, ...]] = ("mu", "Gamma")

    def __init__(
        self,
        curvature: float | None = None,
        heterogeneity: float | None = None,
        curvature_from: CurvatureSource = "parameters",
        form: OptimumForm = "program",
    ) -> None:
        require(curvature is None or 0 < curvature < math.inf, "curvature", curvature, "a number above 0")
        known = heterogeneity is None or 0 <= heterogeneity < math.inf
        require(known, "heterogeneity", heterogeneity, "a number of at least 0")
        require(
            curvature_from in get_args(CurvatureSource), "curvature_from", curvature_from, "gradients or parameters"
        )
        require(form in get_args(OptimumForm), "form", form, "paper or program")
        super().__init__({"mu": curvature, "Gamma": heterogeneity})
        self._curvature_from, self._form = curvature_from, form

    def learned(self, seen: DeviceSecants) -> dict[str, float]:
        return _known({"mu": mean_curvature(seen, self._curvature_from), "Gamma": mean_loss_change(seen)})

    def optimum(self, constants: Mapping[str, float], stage: BudgetProgress) -> tuple[float, dict[str, float]]:
        total = iterations_in_reach(stage.rounds, stage.iterations, stage.last_tau)
        return float(ali_optimum(total, constants["mu"], constants["Gamma"], self.noise, self._form)), {"T": total}


class AliDpflFirst(AliSchedule):
    """The first version: the least G over 1 .. min{2 tau, 100}, T being what is left of both budgets.

    Args:
        lipschitz, smoothness, divergence: the operator's rho, beta and xi; None has devices measure them.
        nearness: omega of the bound.
        least_gap: lambda of the bound.

    Raises:
        UserError: a number out of its range, some of the constants without the others.
    """

    letters: ClassVar[tuple[str, ...]] = ("rho", "beta", "xi")

    def __init__(
        self,
        lipschitz: float | None = None,
        smoothness: float | None = None,
        divergence: float | None = None,
        nearness: float = 1.0,
        least_gap: float = 1.0,
    ) -> None:
        for name, value in (("nearness", nearness), ("least_gap", least_gap)):
            require(0 < value < math.inf, name, value, "a finite number above 0")
        super().__init__(_by_letter(stated_drift(lipschitz, smoothness, divergence)))
        self._nearness, self._least_gap = nearness, least_gap

    def learned(self, seen: DeviceSecants) -> dict[str, float]:
        return _by_letter(drift_constants(seen))

    def optimum(self, constants: Mapping[str, float], stage: BudgetProgress) -> tuple[float, dict[str, float]]:
        """See `AliSchedule.optimum`; 1 where the bound says nothing of any tau."""
        longest = min(2 * stage.last_tau, LONGEST)
        best = ali_first_optimum(
            longest,
            stage.rounds_left,
            stage.iterations_left,
            self.context.step_size,
            DriftConstants(*(constants[letter] for letter in self.letters)),
            self.noise,
            self._nearness,
            self._least_gap,
        )
        return float(best or 1), {"tau_m": longest, "omega": self._nearness, "lambda": self._least_gap}


def _by_letter(constants: DriftConstants | None) -> dict[str, float]:
    if constants is None:
        return {}
    return {"rho": constants.lipschitz, "beta": constants.smoothness, "xi": constants.divergence}


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {letter: value for letter, value in values.items() if value is not None}


def _rounded(optimum: float) -> int:
    """The nearest whole number within 1 .. `LONGEST`."""
    return round(min(max(optimum, 1.0), LONGEST))
