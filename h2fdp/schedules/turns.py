"""Edge servers that take turns: how a whole run of them is planned, and who has the next turn.

Under an account the noise of a device is made for the releases that it really takes part in. With Q turns of tau steps,
m of N edge servers in each of the K = Q N / m intervals, its variance grows with Q tau, and the noise of the whole run,
against the square of the way that it goes, is

    R = Q tau sum_k eta_k^2 v / (sum_k eta_k tau)^2

with v the variance that an interval brings to the global model at a noise multiplier of 1. As v is proportional to
tau / m where devices add noise to steps, and Q is K m / N, that is the same for every K, tau and m but for the decay of
the step size: under an account more intervals gain nothing, and fewer turns lose nothing, as long as all have equally
many. So a plan goes the way of the file's own schedule in as few turns as local drift (tau_max) allows. More intervals
of fewer edge servers cost the same and drift less: that is what m < N is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from h2fdp.network.devices import Floats, Integers
from h2fdp.schedules.aggregation_times import StepDecay, decayed

_NEAR = 1.2  # times the least noise: what the decay of step sizes costs where there are many intervals


@dataclass(frozen=True)
class TurnsPlan:
    """A whole run.

    Attributes:
        intervals: K.
        tau: local steps of each.
        step_size: eta of the first, which then falls over the K intervals; chosen so that the way, sum_k eta_k tau, is
            that of the file's schedule.
        servers: m, that take part in each.
        turns: Q, the intervals in which those take part that have most turns; others have one less, if that.
        costs: what it is expected to cost, by the keys of budgets; of a cost that not all runs count, where a budget
            limits it.
        noise: the length of all noise over the way: sqrt(R) with the variance of a whole model. Its calibration is
            foreseen by the rule that variances grow with releases, so that it is near what will be, not equal.
    """

    intervals: int
    tau: int
    step_size: float
    servers: int
    turns: int
    costs: dict[str, float]
    noise: float


def way(step_size: float, decay: StepDecay, intervals: int, tau: int) -> float:
    """sum_k eta_k tau: how far gradients of length 1 could carry a model.

    >>> way(0.5, "none", intervals=3, tau=4)
    6.0
    """
    return tau * sum(decayed(step_size, decay, each, intervals) for each in range(intervals))


def most_turns(intervals: int, servers: int, of: int) -> int:
    """Q, the turns of the edge servers that have most, where these are as equal as whole numbers are.

    >>> most_turns(3, 2, 4), most_turns(4, 2, 4)
    (2, 2)
    """
    return -(-intervals * servers // of)


def next_turn(taken: Integers, servers: int, saving: Floats, groups: Integers | None = None) -> Integers:
    """(m,) ascending numbers of the edge servers that take part now.

    Those with fewer turns come first, so that turns never differ by more than one, and no device, nor a label that only
    its devices have, is left out for longer than a round. Of equals those that save most, from all groups alike, as an
    aggregator averages whatever is below it, and a group of one would weigh as much as one of many.

    Args:
        taken: (N,) turns of each so far.
        saving: (N,) by how much each is cheaper now than on average.
        groups: (N,) below which of the cloud's children each is; None where they are all alike.

    >>> next_turn(np.array([1, 0, 1, 1]), 2, np.array([0.5, -9.0, -1.0, 0.7])).tolist()
    [1, 3]
    >>> next_turn(np.zeros(4, int), 2, np.array([4.0, 3.0, 2.0, 1.0]), np.array([0, 0, 1, 1])).tolist()
    [0, 2]
    """
    alike = taken * (1 + (0 if groups is None else int(groups.max()))) + (0 if groups is None else groups)
    place = np.zeros(len(taken))
    for kind in np.unique(alike):
        rows = np.flatnonzero(alike == kind)
        order = rows[np.argsort(-saving[rows], kind="stable")]
        place[order] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.asarray(np.sort(np.lexsort((-saving, place, taken))[:servers]))


@dataclass(frozen=True)
class TurnsSetting:
    """The facts that a plan is made from.

    Attributes:
        intervals: the most that there may be.
        tau: of the file's schedule.
        tau_max: the longest interval.
        step_size, decay: of the file's schedule.
        servers: m.
        of: N.
        cost: (tau, K) -> joules, seconds and grams of CO2 that K intervals of tau slots are expected to cost.
        noise: tau -> (N,) each subnet's part of the noise variance of a coordinate after an interval of tau steps of
            size 1 in which all take part, where each device's noise is made for `covered` releases.
        parameters: M.
        covered: releases.
        releases: tau -> the most releases of one device in an interval.
    """

    intervals: int
    tau: int
    tau_max: int
    step_size: float
    decay: StepDecay
    servers: int
    of: int
    cost: Callable[[int, int], dict[str, float]]
    noise: Callable[[int], Floats]
    releases: Callable[[int], int]
    parameters: int = 1
    covered: int = 1

    def candidates(self) -> list[TurnsPlan]:
        """All plans in which everybody has a turn, that go the whole way in intervals of at most tau_max.

        Where some of these are of whole rounds, in which all have equally many turns, only these: another turn of some
        makes the noise of all for one more, and pulls the model to these.
        """
        goal = way(self.step_size, self.decay, self.intervals, self.tau)
        candidates = []
        for intervals in range(math.ceil(self.of / self.servers), self.intervals + 1):
            tau = math.ceil(goal / way(self.step_size, self.decay, intervals, 1) - 1e-9)
            if self.tau_max == 1:  # longer steps instead of more, where each must be an interval of its own
                tau = 1
            if tau <= self.tau_max:
                candidates.append(self.plan(intervals, tau, goal))
        whole = [each for each in candidates if each.intervals * self.servers % self.of == 0]
        return whole or candidates

    def plan(self, intervals: int, tau: int, goal: float) -> TurnsPlan:
        """The plan of K intervals of tau that goes this way."""
        step_size = self.step_size * goal / way(self.step_size, self.decay, intervals, tau)
        turns = most_turns(intervals, self.servers, self.of)
        squares = sum(decayed(step_size, self.decay, each, intervals) ** 2 for each in range(intervals))
        brought = float(self.noise(tau).sum()) * self.of / self.servers  # m of N: (N / m)^2 of m / N of the parts
        composed = turns * self.releases(tau) / self.covered
        noise = math.sqrt(self.parameters * composed * squares * brought) / goal
        return TurnsPlan(intervals, tau, step_size, self.servers, turns, self.cost(tau, intervals), noise)


def badness(plan: TurnsPlan, joule: float, second: float, most: float | None) -> float:
    """The objective to minimise: weighed cost where noise is at most `most`, else infinity; where no `most` is
    stated, cost times the variance of noise.

    Where nothing but noise limits what is learned, averaging buys any level of it by cost: the product says how dearly.
    """
    cost = joule * plan.costs["joules"] + second * plan.costs["seconds"]
    if most is None:
        return cost * plan.noise**2
    return cost if plan.noise <= most else math.inf


def cheapest(plans: list[TurnsPlan], joule: float, second: float, most: float | None = None) -> TurnsPlan | None:
    """The plan of least badness; of equals the one with more intervals. Where no noise is small enough, the least."""
    if plans and most is not None and all(each.noise > most for each in plans):
        return min(plans, key=lambda each: each.noise)
    best = min((badness(each, joule, second, most) for each in plans), default=0.0)
    near = [each for each in plans if badness(each, joule, second, most) <= best * (1 + 1e-9)]
    return max(near, key=lambda each: each.intervals, default=None)


def within_budget(plans: list[TurnsPlan], limits: Mapping[str, float]) -> TurnsPlan | None:
    """The plan with most intervals, which drifts least, of those that are expected to cost no more than this and
    whose noise is near the least. None where the budget pays for none."""
    within = [each for each in plans if all(each.costs[key] <= most for key, most in limits.items())]
    if not within:
        return None
    least = min(each.noise for each in within)
    return max((each for each in within if each.noise <= _NEAR * least), key=lambda each: each.intervals)
