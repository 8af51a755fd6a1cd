"""Random instances of problem P, and its objective written out again from Sec. 5 and 11."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from h2fdp.schedules.prices import Prices
from h2fdp.schedules.problem import ControlProblem


def gap_scale(tau: int, local: int, active: int) -> float:
    return 0.8 * tau * (local**3 + 1) / active**2


def no_upper_tiers(tau: int) -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


def prices_of(
    columns: Sequence[np.ndarray], step_joules: float = 0.0, pairs: Sequence[np.ndarray] | None = None
) -> Prices:
    """Prices of one tier of edge servers: local and global joules and seconds, joules of links; of pairs, if any."""
    none = np.zeros((0, len(columns[0])))
    local_j, local_s, global_j, global_s, links = columns
    pair_j, pair_s = pairs or (np.zeros(len(links)), np.zeros(len(links)))
    return Prices(local_j, local_s, global_j, global_s, links, step_joules, none, none, pair_j, pair_s)


@st.composite
def problems(draw: st.DrawFn, subnets: int = 3, largest: int = 4, tau_max: int = 6) -> ControlProblem:
    """Instances small enough to look at every integer point, with zeros and equal subnets among their numbers."""
    count = draw(st.integers(1, subnets))
    numbers = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-3, 1e3))

    def column() -> np.ndarray:
        return np.array(draw(st.lists(numbers, min_size=count, max_size=count)))

    every, per = draw(st.integers(1, 4)), draw(st.integers(0, 4))
    by_slots = draw(st.booleans())
    return ControlProblem(
        remaining=draw(st.integers(1, 60)),
        tau_max=draw(st.integers(1, tau_max)),
        limits=np.array(draw(st.lists(st.integers(1, largest), min_size=count, max_size=count))),
        trusted=np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=count, max_size=count))),
        aggregations=(lambda tau: -(-tau // every) - 1) if by_slots else (lambda tau: min(per, tau - 1)),
        upper=no_upper_tiers,
        prices=prices_of([column() for _ in range(5)], draw(numbers), [column(), column()]),
        gap_scale=gap_scale,
        edge_gap=draw(st.floats(0.1, 4)),
        device_gap=draw(st.floats(0.1, 4)),
        alpha1=draw(numbers),
        alpha2=draw(numbers),
        alpha3=draw(numbers),
        phi=draw(st.floats(1e-2, 1e2)),
    )


def objective(problem: ControlProblem, tau: int, participation: tuple[int, ...]) -> float:
    """The objective by loops over subnets, as the paper writes it."""
    local = problem.aggregations(tau)
    rounds = problem.remaining / tau
    prices = problem.prices
    energy = delay = weights = 0.0
    for c, s in enumerate(participation):
        energy += rounds * (s * prices.global_joules[c] + prices.link_joules[c] + local * s * prices.local_joules[c])
        energy += rounds * (local + 1) * s * s * prices.pair_joules[c] + problem.remaining * s * prices.step_joules
        delay += rounds * (s * prices.global_seconds[c] + local * s * prices.local_seconds[c])
        delay += rounds * (local + 1) * s * s * prices.pair_seconds[c]
        trust = problem.trusted[c]
        weights += trust * problem.edge_gap / s**2 + (1 - trust) * problem.device_gap / s
    gap = gap_scale(tau, local, len(participation)) * weights / problem.phi
    return problem.alpha1 * energy + problem.alpha2 * delay + problem.alpha3 * gap


def every_point(problem: ControlProblem) -> list[tuple[float, int, tuple[int, ...]]]:
    """(objective, tau, participation) of all integer points."""
    choices = [range(1, limit + 1) for limit in problem.limits.tolist()]
    return [
        (objective(problem, tau, participation), tau, participation)
        for tau in range(1, min(problem.tau_max, problem.remaining) + 1)
        for participation in itertools.product(*choices)
    ]
