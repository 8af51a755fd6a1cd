"""Algorithm 1: before each interval, the step size from beta, and tau and participation from problem P."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.costs import MessageCosts, NetworkCosts
from h2fdp.schedules.aggregation_times import AggregationTimes
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import ControlSection, Horizon
from h2fdp.schedules.loss_constants import LearnedConstants
from h2fdp.schedules.privacy_gap import PrivacyTerms, gap_scale, largest_first_step_size
from h2fdp.schedules.problem import ControlledNetwork, ControlProblem, Counts, prices
from h2fdp.schedules.schedule import Decision, IntervalObservation, Schedule
from h2fdp.schedules.solvers import BestSolutions, solve
from h2fdp.schedules.traits import Measured, ScheduleOptions
from h2fdp.schedules.turns_controller import TurnsController

_MOST_EDGES_NAMED = 1000  # in a row of control.jsonl; larger networks are summed up


class H2fdpController(Schedule):
    """The schedule `h2fdp`.

    For each interval:
    1. gamma = min{1/tau_{k-1}, 1/K_g} / beta, eta_k = gamma / sqrt(k + 1);
    2. tau_k and s_c^k minimise P, with the rates of the coming interval or their mean costs;
    3. afterwards beta and the other constants are estimated from what came up.
    """

    observes: ClassVar[bool] = True

    def __init__(
        self,
        section: ControlSection,
        horizon: Horizon,
        network: ControlledNetwork,
        aggregation_times: AggregationTimes,
        costs: NetworkCosts,
        terms: PrivacyTerms,
        step_joules: float,
        noise: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        self._section = section
        self._horizon = horizon
        self._network = network
        self._rhythm = aggregation_times
        self._costs = costs
        self._terms = terms
        self._step_joules = step_joules
        self._noise = None if noise is None else lru_cache(maxsize=None)(noise)
        self._constants = LearnedConstants()
        self._last_tau = horizon.local_steps
        self.phi = self._chosen_phi() if section.phi is None else section.phi

    @classmethod
    def of(cls, context: ScheduleContext) -> H2fdpController:
        """Algorithm 1 under the settings of the `control:` section."""
        network = ControlledNetwork(
            [subnet.name for subnet in context.topology.subnets],
            context.sizes,
            context.participation,
            context.one_noise.astype(np.float64),
            context.topology,
            context.exchanges,
        )
        joules = float(np.mean(context.costs.step.joules))  # P has one number for all devices
        return cls(
            context.control,
            context.horizon,
            network,
            context.aggregation_times,
            context.costs,
            context.privacy_terms,
            joules,
            context.noise if context.accounted else None,
        )

    def ends(self, slot: int) -> bool:
        """At slot T."""
        return slot >= self._horizon.slots

    def decide(self, interval: int, slot: int) -> Decision:
        costs = self._costs.drawn(interval) if self._section.channel == "known" else self._costs.expected()
        problem = self.problem(slot, costs)
        solutions = solve(problem, self._section.solver)
        step_size = self.first_step_size / math.sqrt(interval + 1)
        best = solutions.best
        reasons = self._reasons(interval, slot, step_size, solutions, costs)
        return Decision(best.tau, step_size, best.participation, reasons)

    def observe(self, seen: IntervalObservation) -> None:
        self._constants = self._constants.learned(seen)
        self.skipped(seen.interval, seen.local_steps, seen.spent)

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        self._last_tau = local_steps

    def state(self) -> dict[str, Any]:
        return {"last_tau": self._last_tau, "constants": self._constants.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._last_tau = state["last_tau"]
        self._constants = self._constants.loaded(state["constants"])

    @property
    def beta(self) -> float:
        """beta, not below what keeps the step size at the operator's, nor above what is believed."""
        return min(max(self._constants.beta.value or 0.0, self._horizon.least_beta), self._horizon.largest_beta)

    @property
    def first_step_size(self) -> float:
        """gamma_k."""
        return largest_first_step_size(self.beta, self._last_tau, self._horizon.intervals)

    def problem(self, slot: int, costs: MessageCosts) -> ControlProblem:
        """P at this slot, at these costs."""
        section = self._section
        return self._problem(slot, costs, section.alpha1, section.alpha2, section.alpha3, self.phi)

    def _problem(
        self, slot: int, costs: MessageCosts, alpha1: float, alpha2: float, alpha3: float, phi: float
    ) -> ControlProblem:
        remaining = self._horizon.slots - slot
        return ControlProblem(
            remaining=remaining,
            tau_max=min(self._section.tau_max, remaining),
            limits=self._network.limits,
            trusted=self._network.trusted,
            aggregations=lambda tau: len(self._rhythm.offsets(tau)),
            upper=self._upper_aggregations,
            prices=prices(self._network, costs, self._step_joules),
            gap_scale=partial(_scale, self._terms),
            edge_gap=self._terms.c2**2,
            device_gap=self._terms.v2**2,
            alpha1=alpha1,
            alpha2=alpha2,
            alpha3=alpha3,
            phi=phi,
            allow_idle=self._section.allow_idle,
            noise=self._noise,
        )

    def _upper_aggregations(self, tau: int) -> Counts:
        """(D - 1,) local aggregations of height 2 .. D in an interval."""
        depth = len(self._network.upper_tiers) + 1
        return np.bincount(self._rhythm.heights(tau, depth), minlength=depth + 2)[2 : depth + 1]

    def _chosen_phi(self) -> float:
        """The phi at which nu / phi is the geometric mean of energy and delay, at tau_0, all devices, mean costs.

        It does not depend on the alphas: a larger alpha3 is to weigh more.
        """
        problem = self._problem(0, self._costs.expected(), 1.0, 1.0, 1.0, 1.0)
        terms = problem.terms(min(self._horizon.local_steps, problem.tau_max), problem.limits)
        middle = math.sqrt(terms.energy * terms.delay)
        return terms.gap / middle if middle > 0 else terms.gap

    def constants(self, slot: int, tau: int) -> dict[str, float | None]:
        """Every number that P and the step size were computed from, by its letter."""
        horizon, terms, section = self._horizon, self._terms, self._section
        return {
            "T": horizon.slots,
            "t_k": slot,
            "K_g": horizon.intervals,
            "K_l": len(self._rhythm.offsets(tau)),
            "N": len(self._network.names),
            "M": terms.parameters,
            "q": terms.sampling_rate,
            "G": terms.clip_norm,
            "epsilon": terms.epsilon,
            "delta": terms.delta,
            "c2": terms.c2,
            "v2": terms.v2,
            "phi": self.phi,
            "alpha1": section.alpha1,
            "alpha2": section.alpha2,
            "alpha3": section.alpha3,
            "tau_max": section.tau_max,
            "step_joules": self._step_joules,
            "gamma": self.first_step_size,
            **self._constants.values(),
            "beta_estimate": self._constants.beta.value,
            "beta": self.beta,
        }

    def edges(self, costs: MessageCosts) -> dict[str, dict[str, float | bool]]:
        """For each edge server what a message costs on average, as P was given it."""
        network = self._network
        columns = {
            "device_joules": network.means(costs.joules),
            "device_seconds": network.means(costs.seconds),
            "link_joules": costs.link_joules,
            "link_seconds": costs.link_seconds,
            "relay_joules": network.means(costs.relay_joules),
            "relay_seconds": network.means(costs.relay_seconds),
        }
        return {
            name: {"one_noise": bool(network.trusted[row]), "devices": int(network.limits[row])}
            | {key: float(values[row]) for key, values in columns.items()}
            for row, name in enumerate(network.names)
        }

    def _reasons(
        self, interval: int, slot: int, step_size: float, solutions: BestSolutions, costs: MessageCosts
    ) -> dict[str, Any]:
        best, other = solutions.best, solutions.runner_up
        rates = self._costs.message_bits / self._network.means(costs.seconds) / 1e6
        return {
            "interval": interval + 1,
            "slot": slot,
            "tau": best.tau,
            "participation": _by_edge(self._network.names, best.participation),
            "step_size": step_size,
            "objective": best.objective,
            "terms": vars(best.terms),
            "runner_up": None if other is None else {"tau": other.tau, "objective": other.objective},
            "constants": self.constants(slot, best.tau),
            "swamped": list(self._constants.swamped),
            "rate_mbps": _by_edge(self._network.names, rates),
        }


def _scale(terms: PrivacyTerms, tau: int, local: int, active: int) -> float:
    return float(gap_scale(terms, tau, local, active))


def _by_edge(names: list[str], values: np.ndarray) -> Mapping[str, float]:
    """Each edge server's value; of a large network the smallest, the median and the largest."""
    if len(names) <= _MOST_EDGES_NAMED:
        return dict(zip(names, values.tolist(), strict=True))
    return {"smallest": float(values.min()), "median": float(np.median(values)), "largest": float(values.max())}


class H2fdpOptions(ScheduleOptions):
    """`h2fdp`, Algorithm 1, whose options are the `control:` section."""

    name: Literal["h2fdp"] = "h2fdp"
    varies_tau: ClassVar[bool] = True
    controlled: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = False

    @property
    def measures(self) -> Measured:
        return "gradients"

    def longest_interval(self, horizon: Horizon) -> int:
        """tau_max, or the whole run where that is shorter."""
        return horizon.longest

    def largest_step_size(self, step_size: float, local_steps: int | None, intervals: int) -> float:
        """gamma grows as intervals become shorter."""
        return step_size if local_steps is None else step_size * max(local_steps, intervals) / intervals

    def build(self, context: ScheduleContext) -> Schedule:
        """Algorithm 1, or the controller of budgets and targets."""
        return H2fdpController.of(context) if context.control.is_algorithm_1 else TurnsController(context)
