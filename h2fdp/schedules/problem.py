"""Problem P (H2FDP, Sec. 5): interval length and participation that balance energy, delay and the privacy gap; solvers.

Given tau, every term is a sum of functions of one s_c, each of the form `a s + k + b1 / s + b2 / s^2 + d s^2`, because
devices are drawn at random and s of them cost s times their subnet's mean; in a secure sum (ours; the paper has none)
each of them exchanges keys and shares with all others.

The privacy gap nu is part (b) of Theorem 4.3, what noise alone keeps between training and a stationary point: given
tau, nu = scale(tau) sum_c w_c(s_c).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from h2fdp.network.devices import Floats, Integers
from h2fdp.schedules.prices import Prices


@dataclass(frozen=True)
class PrivacyTerms:
    """The terms that the noise follows from (Prop. 3.1), the same in all subnets.

    Attributes:
        parameters: M, the coordinates of the model.
        sampling_rate: q, the largest share of its records that a device draws for a step.
        clip_norm: G, the bound on each gradient's norm (20).
        epsilon: the target; infinity means no noise.
        delta: the target.
        c2: the paper's unnamed constant in (15), for noise at a trusted edge server.
        v2: its twin for noise at the devices.
    """

    parameters: int
    sampling_rate: float
    clip_norm: float
    epsilon: float
    delta: float
    c2: float = math.sqrt(2)
    v2: float = math.sqrt(2)

    @property
    def noise_energy(self) -> float:
        """M q^2 G^2 log(1/delta) / epsilon^2: what all noise energies are multiples of, a squared gradient.

        >>> round(PrivacyTerms(100, 0.1, 2.0, epsilon=2.0, delta=math.exp(-9)).noise_energy, 9)
        9.0
        """
        relative = self.sampling_rate * self.clip_norm / self.epsilon
        return self.parameters * relative**2 * math.log(1 / self.delta)


def gap_scale(
    terms: PrivacyTerms,
    local_steps: np.ndarray | float,
    local_aggregations: np.ndarray | float,
    active_subnets: np.ndarray | int,
) -> np.ndarray:
    """4 tau (K_l^3 + 1) M q^2 G^2 log(1/delta) / (N^2 epsilon^2) (H2FDP, Eq. 33), a squared gradient.

    Args:
        local_steps: tau, any shape; shapes broadcast.
        local_aggregations: K_l in each interval; an array where it follows from tau.
        active_subnets: N, the subnets that take part.

    >>> terms = PrivacyTerms(100, 0.1, 2.0, epsilon=2.0, delta=math.exp(-9))
    >>> gap_scale(terms, local_steps=np.array([1, 5]), local_aggregations=np.array([0, 2]), active_subnets=3)
    array([  4., 180.])
    """
    growth = np.asarray(local_steps, float) * (np.asarray(local_aggregations, float) ** 3 + 1)
    return np.asarray(4 * terms.noise_energy * growth / np.asarray(active_subnets, float) ** 2)


def largest_first_step_size(smoothness: float, local_steps: int, intervals: int) -> float:
    """gamma = min{1/tau, 1/K_g} / beta, the largest that Theorem 4.3 allows.

    >>> largest_first_step_size(smoothness=2.0, local_steps=20, intervals=200)
    0.0025
    """
    return 1.0 / (smoothness * max(local_steps, intervals))


@dataclass(frozen=True)
class ObjectiveTerms:
    """The three terms of the objective, unweighted or weighted alike; `total` is their sum."""

    energy: float
    delay: float
    gap: float

    @property
    def total(self) -> float:
        """The objective."""
        return self.energy + self.delay + self.gap


@dataclass(frozen=True)
class ControlProblem:
    """One instance of P.

    Attributes:
        remaining: T - t_k slots.
        tau_max: the longest interval considered, at most `remaining`.
        limits: (N,) s_c, the most devices that may take part.
        trusted: (N,) 1 where one noise covers the sum, 0 where each upload has its own.
        aggregations: tau -> K_l(tau), the local aggregations that really happen in an interval of that length.
        upper: tau -> (D - 1,) how many of these are of height 2 .. D.
        prices: of messages.
        gap_scale: (tau, K_l, active subnets) -> the factor of nu before its sum over subnets.
        edge_gap, device_gap: c2^2 and v2^2, the gap's weights of subnets with and without trust.
        alpha1, alpha2, alpha3: weights of energy, delay and gap; `alpha3` multiplies nu / phi.
        noise: tau -> (N,) each subnet's part, with `limits` devices, of the noise variance that an interval really
            adds; over the rest of the run it is the gap. None for nu, which the formula's constants make.
    """

    remaining: int
    tau_max: int
    limits: Integers
    trusted: Floats
    aggregations: Callable[[int], int]
    upper: Callable[[int], Integers]
    prices: Prices
    gap_scale: Callable[[int, int, int], float]
    edge_gap: float
    device_gap: float
    alpha1: float
    alpha2: float
    alpha3: float
    phi: float
    noise: Callable[[int], Floats] | None = None

    def coefficients(self, tau: int) -> Coefficients:
        """Each subnet's share of the objective as a function of its s, for one tau."""
        local, rest = self.aggregations(tau), self.remaining / tau
        prices, upper = self.prices, self.upper(tau)
        energy = rest * (prices.global_joules + local * prices.local_joules) + self.remaining * prices.step_joules
        delay = rest * prices.seconds(local, upper)
        over_s, over_s2 = self._gaps(tau)
        return Coefficients(
            self.alpha1 * energy + self.alpha2 * delay,
            self.alpha1 * rest * prices.wired_joules(upper),
            self.alpha3 / self.phi * over_s,
            self.alpha3 / self.phi * over_s2,
            rest * (local + 1) * prices.pairs(self.alpha1, self.alpha2),
        )

    def _gaps(self, tau: int) -> tuple[Floats, Floats]:
        """(N,) each subnet's part of the gap times s, of noise on each upload, and times s^2, of one noise on a sum."""
        if self.noise is None:
            scale = self.gap_scale(tau, self.aggregations(tau), len(self.limits))
            return scale * (1 - self.trusted) * self.device_gap, scale * self.trusted * self.edge_gap
        added = self.remaining / tau * self.noise(tau)
        return added * (1 - self.trusted) * self.limits, added * self.trusted * self.limits**2

    def terms(self, tau: int, participation: Integers) -> ObjectiveTerms:
        """The weighted terms at one point, with `participation` (N,) devices, at least 1 of each subnet."""
        local, rest = self.aggregations(tau), self.remaining / tau
        prices, upper = self.prices, self.upper(tau)
        joules = prices.global_joules + local * prices.local_joules
        energy = rest * float((participation * joules + prices.wired_joules(upper)).sum())
        energy += self.remaining * prices.step_joules * float(participation.sum())
        delay = rest * float((participation * prices.seconds(local, upper)).sum())
        energy += rest * (local + 1) * float((participation**2 * prices.pairs(1.0, 0.0)).sum())
        delay += rest * (local + 1) * float((participation**2 * prices.pairs(0.0, 1.0)).sum())
        if self.noise is None:
            weights = self.trusted * self.edge_gap / participation**2
            weights = weights + (1 - self.trusted) * self.device_gap / participation
            gap = self.gap_scale(tau, local, len(self.limits)) * float(weights.sum()) / self.phi
        else:
            over_s, over_s2 = self._gaps(tau)
            gap = float((over_s2 / participation**2 + over_s / participation).sum()) / self.phi
        return ObjectiveTerms(self.alpha1 * energy, self.alpha2 * delay, self.alpha3 * gap)


@dataclass(frozen=True)
class Coefficients:
    """(N,) a, k, b1, b2, d of `a s + k + b1 / s + b2 / s^2 + d s^2`; convex in s, as b1, b2 and d are not negative."""

    linear: Floats
    fixed: Floats
    over_s: Floats
    over_s2: Floats
    squared: Floats

    def at(self, participation: Integers) -> Floats:
        """(N,) each subnet's share of the objective."""
        s = participation.astype(np.float64)
        return self.linear * s + self.fixed + (self.over_s + self.over_s2 / s) / s + self.squared * s**2

    def best(self, limits: Integers) -> Integers:
        """(N,) the s in 1..limits with the smallest share each, the smaller one of equals.

        A convex function falls until its first step that is no fall: bisection finds that step.
        """
        low, high = np.ones_like(limits), limits.copy()
        while (low < high).any():
            middle = (low + high) // 2
            falls = self.at(middle + 1) < self.at(middle)
            open_ = low < high
            low = np.where(open_ & falls, middle + 1, low)
            high = np.where(open_ & ~falls, middle, high)
        return low


@dataclass(frozen=True)
class Solution:
    """A point of P: `participation` (N,), and the weighted terms there."""

    tau: int
    participation: Integers
    terms: ObjectiveTerms

    @property
    def objective(self) -> float:
        """The objective that P minimises."""
        return self.terms.total


@dataclass(frozen=True)
class BestSolutions:
    """The optimum, and the best point of any other tau; None where tau has one value only."""

    best: Solution
    runner_up: Solution | None


Participation = Callable[[ControlProblem, int], Integers]


def solve(problem: ControlProblem, solver: str = "exact") -> BestSolutions:
    """Minimise over tau; of equal objectives the smaller tau wins."""
    solutions = []
    for tau in range(1, min(problem.tau_max, problem.remaining) + 1):
        participation = SOLVERS[solver](problem, tau)
        solutions.append(Solution(tau, participation, problem.terms(tau, participation)))
    solutions.sort(key=lambda each: (each.objective, each.tau))
    return BestSolutions(solutions[0], solutions[1] if len(solutions) > 1 else None)


def exact(problem: ControlProblem, tau: int) -> Integers:
    """(N,) the best participation for one tau: each subnet's own optimum, since P separates over subnets."""
    return problem.coefficients(tau).best(problem.limits)


def two_level(problem: ControlProblem, tau: int) -> Integers:
    """(N,) one level for all trusted and one for all untrusted subnets, each at most a subnet's own limit."""
    participation = np.empty_like(problem.limits)
    shares = problem.coefficients(tau)
    for group in (problem.trusted > 0, problem.trusted <= 0):
        if group.any():
            limits = problem.limits[group]
            part = Coefficients(*(getattr(shares, name)[group] for name in shares.__dataclass_fields__))
            levels = range(1, int(limits.max()) + 1)
            costs = [float(part.at(np.minimum(level, limits)).sum()) for level in levels]
            participation[group] = np.minimum(levels[int(np.argmin(costs))], limits)
    return participation


SOLVERS: dict[str, Participation] = {"exact": exact, "two-level": two_level}
