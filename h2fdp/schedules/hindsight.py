"""What turns would have cost, had all channels been known before the run: the yardstick of those who choose online.

Each interval has room for m edge servers, each edge server has so many turns, at most one in an interval: a
transportation problem with unit capacities, whose linear relaxation has a whole optimum, as its constraints are totally
unimodular (Hoffman and Kruskal 1956).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from h2fdp.schedules.problem import Counts, Floats
from h2fdp.schedules.turns_controller import TurnsController


@dataclass(frozen=True)
class Hindsight:
    """What the turns of a whole run cost, chosen in one way or another; nobody fails, and no accuracy ends it.

    Attributes:
        intervals: of the run.
        joules, seconds: as the controller chooses, who knows the channels of the coming interval only.
        expected_joules, expected_seconds: at mean costs, whoever is taken.
        least_joules, least_seconds: by the best choice of one who knows all channels beforehand and gives everybody as
            many turns; no other costs less, as cost is weighed. (Where aggregators share wires, turns are weighed as if
            each had its part of the wire: there another choice may cost less.)
    """

    intervals: int
    joules: float
    seconds: float
    expected_joules: float
    expected_seconds: float
    least_joules: float
    least_seconds: float


def in_hindsight(controller: TurnsController) -> Hindsight:
    """Of a controller at the start of its run, whom this takes to the end of its plan."""
    chosen: list[Counts] = []
    while not controller.ends(0):
        decision = controller.decide(len(chosen), 0)
        who = np.flatnonzero(decision.participation)
        joules, seconds = controller.cost(len(chosen), who)
        chosen.append(who)
        controller.skipped(len(chosen) - 1, decision.local_steps, {"energy_j": joules, "delay_s": seconds})
    worth = np.array([controller.worth_of_turns(interval) for interval in range(len(chosen))])
    turns = np.bincount(np.concatenate(chosen), minlength=worth.shape[1])
    best = [np.flatnonzero(row) for row in cheapest_turns(worth, turns, len(chosen[0]))]
    online, least = (np.sum([controller.cost(*each) for each in enumerate(of)], axis=0) for of in (chosen, best))
    plan = controller.plan
    share = len(chosen) / plan.intervals  # a budget may end it before
    return Hindsight(
        intervals=len(chosen),
        joules=float(online[0]),
        seconds=float(online[1]),
        expected_joules=share * plan.joules,
        expected_seconds=share * plan.seconds,
        least_joules=float(least[0]),
        least_seconds=float(least[1]),
    )


def cheapest_turns(cost: Floats, turns: Counts, servers: int) -> NDArray[np.bool_]:
    """(K, N) who takes part when, at the least sum of costs.

    Args:
        cost: (K, N) of a turn of each edge server in each interval.
        turns: (N,) how many each has; K times `servers` in all.
        servers: m, in each interval.

    Raises:
        ValueError: there is no such choice.

    >>> cheapest_turns(np.array([[1.0, 5.0], [2.0, 9.0]]), np.array([1, 1]), 1).tolist()  # 5 + 2, for 1 + 9
    [[False, True], [True, False]]
    """
    from scipy import optimize, sparse  # half a second that only this takes

    intervals, count = cost.shape
    if turns.sum() != intervals * servers or servers > count or (turns > intervals).any():
        raise ValueError(f"{intervals} intervals of {servers} edge servers have no room for the turns {turns.tolist()}")
    rows = sparse.kron(sparse.eye(intervals), np.ones((1, count)))
    columns = sparse.kron(np.ones((1, intervals)), sparse.eye(count))
    found = optimize.linprog(
        cost.ravel(),
        A_eq=sparse.vstack([rows, columns]).tocsr(),
        b_eq=np.concatenate([np.full(intervals, servers), turns]),
        bounds=(0, 1),
        method="highs-ds",
    )
    assert found.success, found.message
    chosen: NDArray[np.bool_] = np.reshape(found.x > 0.5, cost.shape)
    assert (chosen.sum(axis=1) == servers).all(), "a vertex is whole"
    assert (chosen.sum(axis=0) == turns).all(), "a vertex is whole"
    return chosen
