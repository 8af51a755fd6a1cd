"""Algorithm 1: before each interval, the step size from beta, and tau and participation from problem P."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.costs.messages import MessageCosts
from h2fdp.schedules.control_section import Horizon
from h2fdp.schedules.loss_constants import LearnedConstants
from h2fdp.schedules.prices import prices
from h2fdp.schedules.problem import (
    BestSolutions,
    ControlProblem,
    PrivacyTerms,
    gap_scale,
    largest_first_step_size,
    solve,
)
from h2fdp.schedules.schedule import Decision, IntervalObservation, Schedule
from h2fdp.schedules.traits import SCHEDULES, ScheduleContext, ScheduleOptions
from h2fdp.schedules.turns_controller import TurnsController

_MOST_EDGES_NAMED = 1000  # in a row of control.jsonl; larger networks are summed up


class H2fdpController(Schedule):
    """The schedule `h2fdp`.

    For each interval:
    1. gamma = min{1/tau_{k-1}, 1/K_g} / beta, eta_k = gamma / sqrt(k + 1);
    2. tau_k and s_c^k minimise P, with the rates of the coming interval or their mean costs;
    3. afterwards beta is estimated from what came up.
    """

    observes: ClassVar[bool] = True

    def __init__(self, context: ScheduleContext) -> None:
        """Algorithm 1 under the settings of the `control:` section."""
        self._section, self._horizon, self._terms = context.control, context.horizon, context.privacy_terms
        self._network = context.network(context.participation)
        self._rhythm, self._costs = context.aggregation_times, context.costs
        self._step_joules = float(np.mean(context.costs.step.joules))  # P has one number for all devices
        noise = context.noise if context.accounted else None
        self._noise = None if noise is None else lru_cache(maxsize=None)(noise)
        self._constants = LearnedConstants()
        self._last_tau = self._horizon.local_steps
        self.phi = self._section.phi or 1.0
        if self._section.phi is None:
            self.phi = self._chosen_phi()

    def ends(self, slot: int) -> bool:
        """Whether slot T is reached."""
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
        return min(max(self._constants.beta or 0.0, self._horizon.least_beta), self._horizon.largest_beta)

    @property
    def first_step_size(self) -> float:
        """gamma_k."""
        return largest_first_step_size(self.beta, self._last_tau, self._horizon.intervals)

    def problem(self, slot: int, costs: MessageCosts) -> ControlProblem:
        """P at this slot, at these costs."""
        section, remaining = self._section, self._horizon.slots - slot
        return ControlProblem(
            remaining=remaining,
            tau_max=min(section.tau_max, remaining),
            limits=self._network.limits,
            trusted=self._network.trusted,
            aggregations=lambda tau: len(self._rhythm.offsets(tau)),
            upper=lambda tau: self._rhythm.upper_counts(tau, self._network.topology.depth),
            prices=prices(self._network, costs, self._step_joules),
            gap_scale=partial(_scale, self._terms),
            edge_gap=self._terms.c2**2,
            device_gap=self._terms.v2**2,
            alpha1=section.alpha1,
            alpha2=section.alpha2,
            alpha3=section.alpha3,
            phi=self.phi,
            noise=self._noise,
        )

    def _chosen_phi(self) -> float:
        """The phi at which nu / phi is the geometric mean of energy and delay, at tau_0, all devices, mean costs.

        It does not depend on the alphas: a larger alpha3 is to weigh more.
        """
        problem = replace(self.problem(0, self._costs.expected()), alpha1=1.0, alpha2=1.0, alpha3=1.0)
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
            "beta_estimate": self._constants.beta,
            "beta": self.beta,
        }

    def edges(self, costs: MessageCosts) -> dict[str, dict[str, float | bool]]:
        """The mean cost of a message for each edge server, as problem P has it."""
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


@SCHEDULES.register
class H2fdpOptions(ScheduleOptions):
    """`h2fdp`, Algorithm 1, whose options are the `control:` section."""

    name: Literal["h2fdp"] = "h2fdp"
    varies_tau: ClassVar[bool] = True
    controlled: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = False

    def longest_interval(self, horizon: Horizon) -> int:
        """tau_max, or the whole run where that is shorter."""
        return horizon.longest

    def largest_step_size(self, step_size: float, local_steps: int | None, intervals: int) -> float:
        """gamma grows as intervals become shorter."""
        return step_size if local_steps is None else step_size * max(local_steps, intervals) / intervals

    def build(self, context: ScheduleContext) -> Schedule:
        """Algorithm 1, or the controller of budgets and targets."""
        return H2fdpController(context) if context.control.is_algorithm_1 else TurnsController(context)
