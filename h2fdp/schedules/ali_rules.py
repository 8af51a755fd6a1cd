"""The two rules by which ALI-DPFL chooses tau: in closed form (second version) and by search (first version)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from h2fdp.estimation.feedback import DeviceSecants
from h2fdp.estimation.loss_probes import CurvatureSource, drift_constants, mean_curvature, mean_loss_change
from h2fdp.theory import DpSgdNoise, DriftConstants, OptimumForm, ali_first_optimum, ali_optimum, iterations_in_reach

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
