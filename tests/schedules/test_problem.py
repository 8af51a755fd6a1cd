"""Problem P: solvers against brute force over every integer point."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from h2fdp.schedules.problem import ControlProblem, solve
from tests.schedules.problems import every_point, gap_scale, no_upper_tiers, objective, prices_of, problems

ROUNDING = 1e-9


def close(one: float, other: float) -> bool:
    return one == pytest.approx(other, rel=ROUNDING, abs=1e-12)


@pytest.mark.slow
@settings(max_examples=60)
@given(problems())
def test_exact_finds_the_least_of_all_integer_points(problem: ControlProblem) -> None:
    points = every_point(problem)
    found = solve(problem, "exact").best
    assert close(found.objective, min(points)[0])
    assert close(found.objective, objective(problem, found.tau, tuple(found.participation.tolist())))


@given(problems())
def test_two_levels_are_the_best_two_levels(problem: ControlProblem) -> None:
    trusted = problem.trusted > 0
    limits = problem.limits
    candidates = [
        objective(problem, tau, tuple(np.minimum(np.where(trusted, one, other), limits).tolist()))
        for tau in range(1, min(problem.tau_max, problem.remaining) + 1)
        for one in range(1, int(limits.max()) + 1)
        for other in range(1, int(limits.max()) + 1)
    ]
    assert close(solve(problem, "two-level").best.objective, min(candidates))


@given(problems())
def test_the_runner_up_is_the_best_of_any_other_tau(problem: ControlProblem) -> None:
    solutions = solve(problem)
    others = [point[0] for point in every_point(problem) if point[1] != solutions.best.tau]
    if solutions.runner_up is None:
        assert not others
    else:
        assert close(solutions.runner_up.objective, min(others))


def alike(subnets: int, **changes: float) -> ControlProblem:
    ones = np.ones(subnets)
    problem = ControlProblem(
        remaining=100,
        tau_max=10,
        limits=np.full(subnets, 6),
        trusted=np.arange(subnets) % 2.0,
        aggregations=lambda tau: min(2, tau - 1),
        upper=no_upper_tiers,
        prices=prices_of([ones] * 5),
        gap_scale=gap_scale,
        edge_gap=2.0,
        device_gap=2.0,
        alpha1=1.0,
        alpha2=1.0,
        alpha3=1.0,
        phi=1.0,
    )
    return replace(problem, **changes)


def test_ten_thousand_subnets_are_solved() -> None:
    """The size that the cost of P is stated for; how long it takes is measured in `benchmarks/`."""
    rng = np.random.default_rng(0)
    columns = [rng.lognormal(size=10_000) for _ in range(5)]
    problem = replace(
        alike(10_000),
        tau_max=40,
        limits=rng.integers(1, 101, 10_000),
        prices=prices_of(columns),
        gap_scale=lambda tau, local, active: 1e4 * gap_scale(tau, local, 1),
    )
    started = time.perf_counter()
    solutions = solve(problem)
    print(f"{time.perf_counter() - started:.2f} s")
    assert solutions.best.participation.min() >= 1
    assert (solutions.best.participation <= problem.limits).all()


@given(problems())
@settings(max_examples=25)
def test_noise_that_is_really_added_takes_the_place_of_nu(problem):
    """Noise of the size of its own parts, over the rest of the run, leaves the optimum as it is."""
    trusted, limits = np.round(problem.trusted), problem.limits

    def noise(tau):
        whole = gap_scale(tau, problem.aggregations(tau), len(limits)) * tau / problem.remaining
        return whole * ((1 - trusted) * problem.device_gap / limits + trusted * problem.edge_gap / limits**2)

    formula = replace(problem, trusted=trusted)
    added = replace(formula, noise=noise)
    best, other = solve(formula).best, solve(added).best
    assert other.objective == pytest.approx(best.objective, rel=1e-9)
    assert added.terms(best.tau, best.participation).total == pytest.approx(best.objective, rel=1e-9)
