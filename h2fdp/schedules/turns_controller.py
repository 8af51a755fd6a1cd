"""A controller that plans the whole run before it begins, and gives edge servers their turns by channel.

Before the run: how many intervals there are, how long they are, how many turns each edge server has, and the step size
(`turns`). Before each interval: which edge servers take part, those whose messages are cheapest now against their own
mean. Nothing depends on data: its forecast is what it will do, and the noise is made for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.kinds import counted_in
from h2fdp.costs.messages import MessageCosts
from h2fdp.costs.traffic import Tasks
from h2fdp.errors import UserError
from h2fdp.network.devices import Floats, Integers
from h2fdp.schedules.aggregation_times import decayed
from h2fdp.schedules.control_section import BUDGETS
from h2fdp.schedules.prices import costs_of_turns
from h2fdp.schedules.schedule import Decision, IntervalObservation, Schedule
from h2fdp.schedules.traits import ScheduleContext
from h2fdp.schedules.turns import TurnsPlan, TurnsSetting, badness, cheapest, next_turn, within_budget

_SAMPLES = 240  # turns whose cost is simulated for each length of intervals, or a round where that is more


class TurnsController(Schedule):
    """The schedule `h2fdp` with a budget (`BUDGETS`, as `control.joules`) or `control.accuracy`."""

    @property
    def observes(self) -> bool:
        """True: it learns what intervals cost."""
        return True

    def __init__(self, context: ScheduleContext) -> None:
        """Plan the run, before its first interval.

        Raises:
            UserError: no plan goes the way of the file's schedule within tau_max, or the budget pays for none.
        """
        assert context.noise is not None, "it weighs the noise that will be added"
        assert context.releases is not None, "and how often"
        self._context, self._section = context, context.control
        self._servers = max(1, round((self._section.turns or 1.0) * len(context.sizes)))
        self._noise, self._releases = lru_cache(maxsize=None)(context.noise), lru_cache(maxsize=None)(context.releases)
        self._turn_costs = lru_cache(maxsize=None)(self._simulated)  # many plans have intervals of one length
        self._network = context.network(context.sizes)
        self._spent = {each.column: 0.0 for each in BUDGETS.values()} | {"clock_s": 0.0}
        self._alive = np.ones(len(context.sizes), dtype=bool)
        self._done = 0
        self.plan, self.runner_up = self._planned()
        self._taken = np.zeros(len(context.sizes), dtype=np.int64)

    @property
    def planned(self) -> int:
        """The numbers of its plan."""
        return self.plan.intervals

    def ends(self, slot: int) -> bool:
        """Whether the plan has no interval left, or the budget does not pay for the next one."""
        if self._done >= self.plan.intervals:
            return True
        cost, left = self.cost(self._done, self._next(self._done)), self._budget_left()
        return any(cost[key] > left[key] for key in left)

    def devices_left(self, counts: np.ndarray) -> None:
        self._alive = counts > 0

    def decide(self, interval: int, slot: int) -> Decision:
        plan, taking = self.plan, self._next(interval)
        step_size = decayed(plan.step_size, self._context.step_decay, interval, plan.intervals)
        counts = np.zeros(len(self._context.sizes), dtype=np.int64)
        counts[taking] = self._context.sizes[taking]
        return Decision(plan.tau, step_size, counts, self._reasons(interval, slot, taking, step_size))

    def observe(self, seen: IntervalObservation) -> None:
        self.skipped(seen.interval, seen.local_steps, seen.spent)

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        self._taken[self._next(interval)] += 1
        for column in self._spent:
            self._spent[column] += spent.get(column, 0.0)
        self._done = interval + 1

    def state(self) -> dict[str, Any]:
        return {"spent": dict(self._spent), "taken": self._taken.tolist(), "done": self._done}

    def load(self, state: Mapping[str, Any]) -> None:
        self._spent, self._done = self._spent | state["spent"], state["done"]
        self._taken = np.array(state["taken"], dtype=np.int64)

    def _planned(self) -> tuple[TurnsPlan, TurnsPlan | None]:
        """The best plan, and the best of those with another number of intervals."""
        context, section = self._context, self._section
        setting = TurnsSetting(
            context.intervals,
            context.local_steps,
            section.tau_max,
            context.step_size,
            context.step_decay,
            self._servers,
            len(context.sizes),
            self._expected,
            self._noise,
            self._releases,
            context.parameters,
            max(1, context.intervals * self._releases(context.local_steps)),
        )
        plans = setting.candidates()
        if not plans:
            text = f"no plan of at most {context.intervals} intervals of {section.tau_max} slots, in which every edge "
            text += "server has a turn, goes as far as the file's schedule; expected more training.intervals, a larger "
            raise UserError(f"{text}tau_max, or a larger share of turns", key="control.turns")

        def best(of: list[TurnsPlan]) -> TurnsPlan | None:
            if not section.has_budget and section.tau_max == 1:  # the run ends where the accuracy is reached
                return max(of, key=lambda each: each.intervals, default=None)
            if not section.has_budget:
                return cheapest(of, *self._weights, section.noise)
            return within_budget(of, self._limits)

        chosen = best(plans)
        if chosen is None:
            least = min((each.costs for each in plans), key=lambda costs: costs["joules"])
            text = f"{least['joules']:.4g} J and {least['seconds']:.4g} s of delay"
            for key in self._limits.keys() - {"joules", "seconds"}:
                text += f", and {min(each.costs[key] for each in plans):.4g} {BUDGETS[key].short} at least"
            text = f"the cheapest plan is expected to cost {text}; expected a larger budget"
            raise UserError(text, key=f"control.{next(iter(self._limits))}")
        return chosen, best([each for each in plans if each.intervals != chosen.intervals])

    @property
    def _weights(self) -> tuple[float, float]:
        """The weights of a joule and a second."""
        return self._section.cost_weights

    @property
    def _limits(self) -> dict[str, float]:
        """The budgets that are stated, by their keys."""
        return {key: most for key in BUDGETS if (most := getattr(self._section, key)) is not None}

    def _budget_left(self) -> dict[str, float]:
        return {key: most - self._spent[BUDGETS[key].column] for key, most in self._limits.items()}

    def _worth(self, costs: MessageCosts, tau: int, at_s: float | None) -> Floats:
        """(N,) what a turn of each edge server costs, as cost is weighed.

        Args:
            at_s: when it begins, which a budget of grams needs; None for the mean over the grid's trace.
        """
        section, (joule, second) = self._section, self._weights
        joules, seconds = self._of_subnets(costs, tau)
        if section.gco2 is None:
            return joule * joules + second * seconds
        trace = self._context.topology.carbon
        assert trace is not None, "a budget of grams is refused without a trace"
        lasts = tau * float(np.max(costs.step.seconds)) if at_s is not None else trace.period_s
        names, sizes = self._context.topology.access_points  # in a star those of the tree, of one edge server
        grid = trace.mean(names, at_s or 0.0, lasts)
        grid = grid if len(names) == len(joules) else np.array([np.average(grid, weights=sizes)])
        grams = joules * grid / 3.6e6 / section.gco2
        joule = joule if section.joules is not None else 0.0  # in grams already
        return grams + joule * joules + second * seconds

    def _segments(self, subnet: int, tau: int) -> tuple[int, ...]:
        name = self._context.topology.subnets[subnet].name
        return self._context.aggregation_times.of(name).segments(tau)

    def cost(self, interval: int, taking: Integers) -> dict[str, float]:
        """The costs of an interval of the plan in which all devices of these edge servers take part, by budgets."""
        return self._cost(interval, taking, self.plan.tau, self._spent["clock_s"])[0]

    def _cost(self, interval: int, taking: Integers, tau: int, at_s: float) -> tuple[dict[str, float], float]:
        """The costs of an interval that begins then, by the keys of budgets, and how long it lasts."""
        context, network = self._context, self._context.topology
        masked = [sizes is not None for sizes in context.exchanges]
        tasks = {
            each: Tasks.planned(np.arange(context.sizes[each]), self._segments(each, tau), masked[each])
            for each in taking.tolist()
        }
        heights = context.aggregation_times.heights(tau, network.depth) if network.depth > 1 else None
        sums = next((sizes for sizes in context.exchanges if sizes is not None), None)
        cost = interval_cost(context.costs.drawn(interval), network, tasks, heights, sums)
        counted = [each for each in counted_in(network) if each.budget]
        found = dict.fromkeys(BUDGETS, 0.0) | {each.budget: each.of_interval(cost, network, at_s) for each in counted}
        return found, cost.clock_s

    def _of_subnets(self, costs: MessageCosts, tau: int) -> tuple[Floats, Floats]:
        """(N,) joules and seconds of each edge server's turn, wires that several have in common in equal parts."""
        network, times = self._network, self._context.aggregation_times
        local = np.array([len(times.of(name).offsets(tau)) for name in network.names])
        upper = times.upper_counts(tau, network.topology.depth)
        return costs_of_turns(network, costs, self._context.costs.step.joules, tau, local, upper)

    def _next(self, interval: int) -> Integers:
        """The edge servers of a turn, by how much cheaper each is now than on average; those of devices whose batteries
        are all empty come last, so that no turn is theirs while others have devices."""
        saving, alive = self._mean_worth - self.worth_of_turns(interval), self._alive
        taken = np.where(alive, self._taken, self._taken + self._taken.max() + 1)
        return next_turn(taken, max(1, min(self.plan.servers, int(alive.sum()))), saving, self._groups)

    def worth_of_turns(self, interval: int) -> Floats:
        """(N,) what a turn of each edge server costs under the channels of an interval, as cost is weighed."""
        return self._worth(self._context.costs.drawn(interval), self.plan.tau, self._spent["clock_s"])

    @cached_property
    def _mean_worth(self) -> Floats:
        return self._worth(self._context.costs.expected(), self.plan.tau, None)

    def _expected(self, tau: int, intervals: int) -> dict[str, float]:
        """The costs of a plan by budgets: at mean costs, if edge servers were taken without regard to channels; under a
        budget, which ends a run, what turns by channel, or by the grid, really cost."""
        if self._section.has_budget:
            return {key: intervals * each for key, each in self._turn_costs(tau).items()}
        joules, seconds = self._of_subnets(self._context.costs.expected(), tau)
        share = intervals * self._servers / len(joules)
        summed = {"joules": share * float(joules.sum()), "seconds": share * float(seconds.sum())}
        return dict.fromkeys(BUDGETS, 0.0) | summed

    def _simulated(self, tau: int) -> dict[str, float]:
        """Mean costs by budgets of intervals beyond those of the run, whole rounds: channels of the same law, from
        the first hour of the grid's trace on."""
        context, servers = self._context, len(self._context.sizes)
        usual = self._worth(context.costs.expected(), tau, None)
        taken, round_of = np.zeros(servers, dtype=np.int64), math.ceil(servers / self._servers)
        plans, at_s = [], 0.0
        for sample in range(round_of * math.ceil(_SAMPLES / (round_of * servers))):
            interval = context.intervals + 1 + sample
            now = self._worth(context.costs.drawn(interval), tau, at_s)
            taking = next_turn(taken, self._servers, usual - now, self._groups)
            taken[taking] += 1
            costs, clock_s = self._cost(interval, taking, tau, at_s)
            plans.append(list(costs.values()))
            at_s += clock_s
        return dict(zip(costs, np.mean(plans, axis=0).tolist(), strict=True))

    @cached_property
    def _groups(self) -> Integers:
        """(N,) below which of the cloud's children each edge server is."""
        network = self._context.topology
        tops = [network.path(subnet.name)[-1] for subnet in network.subnets]
        if network.depth == 1:
            return np.zeros(len(tops), dtype=np.int64)
        return np.unique(tops, return_inverse=True)[1].astype(np.int64)

    def _reasons(self, interval: int, slot: int, taking: Integers, step_size: float) -> dict[str, Any]:
        plan, other, section = self.plan, self.runner_up, self._section
        names = self._network.names
        cost = self.cost(interval, taking)
        joule, second = self._weights
        taken, left = set(taking.tolist()), self._budget_left()
        sizes = enumerate(self._context.sizes.tolist())
        counts = dict(zip(names, (size if row in taken else 0 for row, size in sizes), strict=True))
        said = [key for key in BUDGETS if key in ("joules", "seconds") or key in self._limits]
        terms = {"energy": joule * plan.costs["joules"], "delay": second * plan.costs["seconds"], "gap": plan.noise}
        return {
            "interval": interval + 1,
            "slot": slot,
            "tau": plan.tau,
            "participation": counts,
            "step_size": step_size,
            "objective": self._objective(plan),
            "terms": terms,
            "weighed": {key: cost[key] for key in said}
            | {f"run_{key}": plan.costs[key] for key in said}
            | {"noise": plan.noise},
            "runner_up": None if other is None else self.told(other),
            "multipliers": {"joule": joule, "second": second},
            "left": {key: left.get(key, math.inf) for key in said} if section.has_budget else None,
            "devices": "turns",
            "trust": "used" if self._context.one_noise.any() else "not used",
            "turns": dict(zip(names, self._taken.tolist(), strict=True)),
            "constants": {
                "K": plan.intervals,
                "m": plan.servers,
                "N": len(names),
                "turns": plan.turns,
                "tau_max": section.tau_max,
                "gamma": plan.step_size,
            },
            "swamped": [],
        }

    def _objective(self, plan: TurnsPlan) -> float:
        """Cost times the variance of noise, as weighed."""
        return badness(plan, *self._weights, None)

    def told(self, plan: TurnsPlan) -> dict[str, float]:
        """The intervals and expected costs of a plan, and its noise as a share of the way."""
        return {
            "tau": plan.tau,
            "intervals": plan.intervals,
            "objective": self._objective(plan),
            "joules": plan.costs["joules"],
            "seconds": plan.costs["seconds"],
            "noise": plan.noise,
        }
