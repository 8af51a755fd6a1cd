"""A controller that is told what is wanted, a budget or a target, and finds itself what joules and seconds are worth.

For each interval:
1. the multiplier of cost follows from a forecast of the rest of the run (`multipliers`), at what is left of the budget;
2. devices are put in order: at random, or those due and then those with the cheapest channel (`device_choice`);
3. for every tau and number of devices, exact costs and the noise that will be added (`offers`); the best are taken.

It decides by channels and by the constants of the file alone: its forecast is what it will do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from h2fdp.errors import UserError
from h2fdp.estimation.feedback import IntervalObservation
from h2fdp.radio import MessageCosts
from h2fdp.schedules.client_sampling import drawn_order
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.device_choice import Turns, cheapest_first
from h2fdp.schedules.multipliers import Choice, Forecast, Prices, choices, least_product, within_budget
from h2fdp.schedules.offers import Offers, Rhythm, offers
from h2fdp.schedules.problem import ControlledNetwork, Counts
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.step_decay import decayed

_SAMPLES, _MOST_LENGTHS = 24, 12
_MOST_NAMED = 1000  # edge servers in a row of control.jsonl
_DEAREST = 1e6  # times the multiplier, at which hardly anything but cost counts


class MultiplierController(Schedule):
    """The schedule `h2fdp` with `control.budget`, `control.target` or devices that are taken by channel."""

    @property
    def observes(self) -> bool:
        """It is told what intervals cost."""
        return True

    def __init__(self, context: ScheduleContext) -> None:
        """Before the first interval.

        Raises:
            UserError: a budget that pays for no interval.
        """
        assert context.noise is not None, "it weighs the noise that will be added"
        self._context = context
        self._section = context.control
        self._horizon = context.horizon
        self._network = ControlledNetwork(
            [subnet.name for subnet in context.topology.subnets],
            context.sizes,
            context.participation,
            context.one_noise.astype(np.float64),
            context.topology,
            context.exchanges,
        )
        self._noise = lru_cache(maxsize=None)(context.noise)
        self._turns = Turns.begun(context.sizes)
        self._spent = {"energy_j": 0.0, "delay_s": 0.0}
        self._done = 0
        self._pending: tuple[np.ndarray, ...] = ()
        if self._section.budget is not None and self._affordable(found := self.offered(0, 0)) is None:
            cheapest = min(choices(found, self._prices, _DEAREST), key=lambda each: (each.joules, each.seconds))
            text = f"the cheapest first interval costs {cheapest.joules:.4g} J and {cheapest.seconds:.4g} s of delay"
            raise UserError(f"{text}; expected a larger budget", key="control.budget")

    def ends(self, slot: int) -> bool:
        """At slot T, or where the budget does not pay for the cheapest interval."""
        if slot >= self._horizon.slots:
            return True
        return self._section.budget is not None and self._affordable(self.offered(self._done, slot)) is None

    def decide(self, interval: int, slot: int) -> Decision:
        found = self.offered(interval, slot)
        multiplier = self._multiplier(interval, slot)
        ranked = choices(found, self._prices, multiplier)
        best = self._affordable(found, ranked) or ranked[0]
        order = self._order(interval)
        rows = self._rows(order, best.participation)
        self._pending = rows
        other = next((each for each in ranked if each.tau != best.tau), None)
        step_size = self._step_size(slot)
        reasons = self._reasons(interval, slot, best, other, multiplier, step_size)
        return Decision(best.tau, step_size, best.participation, reasons, devices=rows)

    def observe(self, seen: IntervalObservation) -> None:
        self.skipped(seen.interval, seen.local_steps, seen.spent)

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        for column in self._spent:
            self._spent[column] += spent.get(column, 0.0)
        self._turns = self._turns.after(self._context.sizes, list(self._pending))
        self._done = interval + 1

    def state(self) -> dict[str, Any]:
        return {"spent": dict(self._spent), "turns": self._turns.state(), "done": self._done}

    def load(self, state: Mapping[str, Any]) -> None:
        self._spent, self._done = dict(state["spent"]), state["done"]
        self._turns = Turns.of_state(state["turns"])

    @property
    def _prices(self) -> Prices:
        """Noise per joule and per second at a multiplier of 1."""
        return Prices(*self._section.cost_weights)

    def _left(self) -> tuple[float, float]:
        """Joules and seconds that the budget has left; infinite where there is none."""
        budget = self._section.budget
        if budget is None:
            return math.inf, math.inf
        joules = math.inf if budget.joules is None else budget.joules - self._spent["energy_j"]
        return joules, math.inf if budget.seconds is None else budget.seconds - self._spent["delay_s"]

    def _multiplier(self, interval: int, slot: int) -> float:
        """What cost is worth now."""
        if self._section.target is not None:
            return self._of_target
        if self._section.budget is None:
            return self._of_weights
        slots = min(self._horizon.slots - slot, (self._horizon.intervals - interval) * self._lengths[-1])
        joules, seconds = self._left()
        return within_budget(self._forecast, self._prices, joules / slots, seconds / slots)

    @cached_property
    def _of_target(self) -> float:
        return least_product(self._forecast, self._prices)

    @cached_property
    def _of_weights(self) -> float:
        """At which noise weighs alpha3 / phi; a phi of null makes noise, with all devices in intervals of tau_0, the
        geometric mean of energy and delay."""
        section, (_, joules, seconds, noise) = self._section, self._everybody
        middle = math.sqrt(joules * seconds) or 1.0
        phi = noise / middle if section.phi is None else section.phi
        return phi / section.alpha3 if section.alpha3 > 0 else math.inf

    @property
    def _everybody(self) -> tuple[int, float, float, float]:
        """tau, and mean joules, seconds and noise of the forecast's intervals of about tau_0 in which all take part."""
        lengths = [each[0] for each in self._forecast.intervals]
        place = int(np.argmin(np.abs(np.array(lengths) - self._horizon.local_steps)))
        tau, *tables = self._forecast.intervals[place]
        subnets, last = np.arange(len(self._network.limits)), self._network.limits - 1
        joules, seconds, noise = (float(table[:, subnets, last].sum(axis=1).mean()) for table in tables)
        return tau, joules, seconds, noise

    def _affordable(self, found: list[Offers], ranked: list[Choice] | None = None) -> Choice | None:
        """The best choice that the budget still pays for: as it is ranked, else at ever larger multipliers; None where
        not even the cheapest is."""
        joules, seconds = self._left()
        multiplier = 1.0
        for _ in range(64):
            for each in ranked or ():
                if each.joules <= joules and each.seconds <= seconds:
                    return each
            ranked = choices(found, self._prices, multiplier * _DEAREST)
            multiplier *= 4
        return next((each for each in ranked or () if each.joules <= joules and each.seconds <= seconds), None)

    @cached_property
    def _lengths(self) -> list[int]:
        """The tau that are weighed: all up to twelve, or as many spread evenly on a logarithmic scale."""
        longest = min(self._section.tau_max, self._horizon.slots)
        spread = np.geomspace(1, longest, min(longest, _MOST_LENGTHS)).round().astype(int)
        return list(range(1, longest + 1)) if longest <= _MOST_LENGTHS else sorted({*spread.tolist(), longest})

    def offered(self, interval: int, slot: int) -> list[Offers]:
        """Those of the coming interval, by its own channels."""
        left = self._horizon.slots - slot
        lengths = [tau for tau in self._lengths if tau <= left] or [left]
        if left not in lengths and left < lengths[-1]:
            lengths.append(left)
        costs = self._context.costs.drawn(interval)
        return [self._offer(tau, costs, self._order(interval)) for tau in lengths]

    def _offer(self, tau: int, costs: MessageCosts, order: Counts) -> Offers:
        times, depth = self._context.aggregation_times, len(self._network.upper_tiers) + 1
        upper = np.bincount(times.heights(tau, depth), minlength=depth + 2)[2 : depth + 1]
        local = np.array([len(times.of(name).offsets(tau)) for name in self._network.names])
        rhythm = Rhythm(tau, local, upper)
        joules = self._context.topology.compute.joules_per_step
        return offers(self._network, costs, joules, rhythm, order, self._noise)

    @cached_property
    def _forecast(self) -> Forecast:
        """Intervals beyond those of the run: channels of the same law."""
        intervals, sizes = self._horizon.intervals, self._context.sizes
        found = []
        for sample in range(_SAMPLES):
            costs = self._context.costs.drawn(intervals + 1 + sample)
            order = self._ordered(costs, intervals + 1 + sample, Turns.begun(sizes))
            found.append([self._offer(tau, costs, order) for tau in self._lengths])
        return Forecast.of(found)

    def _order(self, interval: int) -> Counts:
        return self._ordered(self._context.costs.drawn(interval), interval, self._turns)

    def _ordered(self, costs: MessageCosts, interval: int, turns: Turns) -> Counts:
        """(I,) in which order devices are offered."""
        sizes = self._context.sizes
        if self._section.devices == "random":
            streams, starts = self._context.streams, np.cumsum(sizes) - sizes
            named = zip(self._network.names, sizes.tolist(), starts.tolist(), strict=True)
            return np.concatenate([start + drawn_order(streams, name, interval, size) for name, size, start in named])
        prices = self._prices
        worth = prices.joule * (costs.joules + costs.relay_joules) + prices.second * (
            costs.seconds + costs.relay_seconds
        )
        return cheapest_first(sizes, worth, turns, self._section.fairness)

    def _rows(self, order: Counts, participation: Counts) -> tuple[np.ndarray, ...]:
        sizes = self._context.sizes
        starts = np.cumsum(sizes) - sizes
        taken = zip(starts.tolist(), participation.tolist(), strict=True)
        return tuple(np.sort(order[start : start + count] - start) for start, count in taken)

    def _step_size(self, slot: int) -> float:
        """The file's, which falls with the slots as that of a fixed schedule in intervals of tau_0 does."""
        tau, context = self._horizon.local_steps, self._context
        planned = max(-(-self._horizon.slots // tau), 1)
        return decayed(context.step_size, context.step_decay, min(slot // tau, planned - 1), planned)

    def _reasons(
        self, interval: int, slot: int, best: Choice, other: Choice | None, multiplier: float, step_size: float
    ) -> dict[str, Any]:
        names, (joules, seconds) = self._network.names, self._left()
        horizon, prices, section = self._horizon, self._prices, self._section
        named = len(names) <= _MOST_NAMED
        terms = {
            "energy": multiplier * prices.joule * best.joules / best.tau,
            "delay": multiplier * prices.second * best.seconds / best.tau,
            "gap": best.noise / best.tau,
        }
        weighed = {"joules": best.joules, "seconds": best.seconds, "noise": best.noise}
        return {
            "interval": interval + 1,
            "slot": slot,
            "tau": best.tau,
            "participation": dict(zip(names, best.participation.tolist(), strict=True))
            if named
            else {"smallest": int(best.participation.min()), "largest": int(best.participation.max())},
            "step_size": step_size,
            "objective": best.objective,
            "terms": terms,
            "weighed": weighed,
            "runner_up": None if other is None else _told(other),
            "multipliers": {"joule": multiplier * prices.joule, "second": multiplier * prices.second},
            "left": {"joules": joules, "seconds": seconds} if section.budget is not None else None,
            "devices": section.devices,
            "constants": {
                "T": horizon.slots,
                "t_k": slot,
                "K_g": horizon.intervals,
                "K_l": len(self._context.aggregation_times.offsets(best.tau)),  # of those that have most
                "N": len(names),
                "tau_max": section.tau_max,
            },
            "swamped": [],
        }


def _told(choice: Choice) -> dict[str, float]:
    return {
        "tau": choice.tau,
        "objective": choice.objective,
        "joules": choice.joules,
        "seconds": choice.seconds,
        "noise": choice.noise,
    }
