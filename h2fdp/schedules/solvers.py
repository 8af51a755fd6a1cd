"""Solvers of problem P: the exact one, and the paper's nested search over two participation levels."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from h2fdp.schedules.problem import Coefficients, ControlProblem, Counts, ObjectiveTerms


@dataclass(frozen=True)
class Solution:
    """A point of P: `participation` (N,), and the weighted terms there."""

    tau: int
    participation: Counts
    terms: ObjectiveTerms

    @property
    def objective(self) -> float:
        """What P minimises."""
        return self.terms.total


@dataclass(frozen=True)
class BestSolutions:
    """The optimum, and the best point of any other tau; None where tau has one value only."""

    best: Solution
    runner_up: Solution | None


Participation = Callable[[ControlProblem, int], Counts]


def solve(problem: ControlProblem, solver: str = "exact") -> BestSolutions:
    """Minimise over tau; of equal objectives the smaller tau wins."""
    solutions = []
    for tau in range(1, min(problem.tau_max, problem.remaining) + 1):
        participation = SOLVERS[solver](problem, tau)
        solutions.append(Solution(tau, participation, problem.terms(tau, participation)))
    solutions.sort(key=lambda each: (each.objective, each.tau))
    return BestSolutions(solutions[0], solutions[1] if len(solutions) > 1 else None)


def exact(problem: ControlProblem, tau: int) -> Counts:
    """(N,) the best participation for one tau: each subnet's own optimum, since P separates over subnets."""
    if problem.allow_idle:
        return _with_idle_subnets(problem, tau)
    return problem.coefficients(tau).best(problem.limits)


def two_level(problem: ControlProblem, tau: int) -> Counts:
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


def _with_idle_subnets(problem: ControlProblem, tau: int) -> Counts:
    """(N,) the best participation when subnets may sit out (0).

    For each number n of active subnets nu counts n of them; every subnet takes its best s and the n cheapest stay.
    The n are searched by branch and bound: shares fall with n, so the sum of the `low` smallest shares at `high`
    bounds all n between from below.
    """
    subnets = len(problem.limits)

    def shares(active: int) -> tuple[np.ndarray, Counts]:
        coefficients = problem.coefficients(tau, active)
        best = coefficients.best(problem.limits)
        return coefficients.at(best), best

    def bound(low: int, high: int) -> float:
        return float(np.sort(shares(high)[0])[:low].sum())

    best_cost, best_active = np.inf, 1
    queue = [(bound(1, subnets), 1, subnets)]
    while queue:
        lowest, low, high = heapq.heappop(queue)
        if lowest > best_cost:
            break
        if low == high:  # the bound of a single n is its value
            if (lowest, low) < (best_cost, best_active):
                best_cost, best_active = lowest, low
            continue
        middle = (low + high) // 2
        heapq.heappush(queue, (bound(low, middle), low, middle))
        heapq.heappush(queue, (bound(middle + 1, high), middle + 1, high))
    costs, participation = shares(best_active)
    staying = np.argsort(costs, kind="stable")[:best_active]
    active = np.zeros_like(problem.limits)
    active[staying] = participation[staying]
    return active
