"""Costs of runs: a row for each, which plans, metrics, summaries, bounds, tables and figures read.

A further cost is a row of `COSTS` and its formula. All add up over intervals, in the order of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from h2fdp.costs.interval_cost import IntervalCost
from h2fdp.network import Topology


class Cost(NamedTuple):
    """A cost of runs.

    Attributes:
        column: of the metrics, and by default what an interval's `IntervalCost` calls it.
        name, unit: as tables head its numbers.
        so_far: its name along an axis, where it has grown; empty where figures are not drawn over it.
        units: the unit where a reader chooses an axis.
        key: of a bound on it in `training.until` and `tune`; empty where it takes none.
        budget: the key of a budget of it in `control`, for which runs are planned; empty where none can be stated.
        of: what an interval costs in a network, which begins at so many seconds of the simulated clock. What devices
            that move cost comes on top (`Membership.costs`).
        counted: whether runs of a network count it; null for all. One that some do not count stands next to energy.
    """

    column: str
    name: str
    unit: str
    so_far: str = ""
    units: str = ""
    key: str = ""
    budget: str = ""
    of: Callable[[IntervalCost, Topology, float], float] | None = None
    counted: Callable[[Topology], bool] | None = None

    def of_interval(self, cost: IntervalCost, network: Topology, began_s: float) -> float:
        """The cost of an interval, see `of`."""
        return float(getattr(cost, self.column)) if self.of is None else self.of(cost, network, began_s)

    @property
    def title(self) -> str:
        """The head of its numbers in a table."""
        return f"{self.name} ({self.unit})"

    @property
    def short(self) -> str:
        """The unit in a sentence, with the name of what it counts where the unit alone does not say it.

        >>> COSTS["energy_j"].short, COSTS["gco2"].short
        ('J', 'g CO2')
        """
        return self.unit if self.counted is None else f"{self.unit} {self.name}"


_KILOWATT_HOUR = 3.6e6  # joules


def carbon_of(cost: IntervalCost, network: Topology, began_s: float) -> float:
    """Grams of CO2 of an interval: of each node the mean of the grid where it is, between the interval's ends.

    Args:
        network: which has the grid's trace.
    """
    assert network.carbon is not None, "a trace says what a kilowatt-hour brings"
    names, sizes = network.access_points
    points = network.carbon.mean(names, began_s, cost.clock_s)
    above = network.carbon.mean([each.name for each in network.aggregators], began_s, cost.clock_s)
    devices = np.repeat(points, sizes)
    wires = devices @ cost.relayed_energy_j if network.subnets[0].relays is not None else points @ cost.wired_energy_j
    return float(devices @ cost.device_energy_j + wires + above @ cost.aggregator_energy_j) / _KILOWATT_HOUR


# Energy and delay of messages: H2FDP, Appendix D, and `interval_cost`; the clock also has the slots in which no device
# sends (`PlanCosts.columns`).
COSTS = {
    each.column: each
    for each in (
        Cost("energy_j", "energy", "J", "energy so far", "joules", "joules", "joules"),
        Cost("gco2", "CO2", "g", "CO2 so far", "grams of CO2", "", "gco2", carbon_of, lambda each: bool(each.carbon)),
        Cost("delay_s", "delay", "s", budget="seconds"),
        Cost("clock_s", "simulated time", "s", "simulated time", "simulated seconds", "seconds"),
        Cost("bytes", "sent up", "bytes", "sent up so far", "bytes", "bytes"),
    )
}


def bounded() -> dict[str, str]:
    """The key of each bound on a cost -> the column that it bounds."""
    return {each.key: each.column for each in COSTS.values() if each.key}


def budgets() -> dict[str, Cost]:
    """The key of each budget -> the cost that it limits, first those that all runs count."""
    return {each.budget: each for each in sorted(COSTS.values(), key=lambda each: bool(each.counted)) if each.budget}


def counted_in(network: Topology) -> list[Cost]:
    """The costs that runs of a network count."""
    return [each for each in COSTS.values() if each.counted is None or each.counted(network)]


def extras() -> list[Cost]:
    """The costs that not all runs count."""
    return [each for each in COSTS.values() if each.counted is not None]


def extras_in_words(costs: Mapping[str, Any]) -> str:
    """Costs that not all runs count, after joules; empty where this run counts none.

    >>> extras_in_words({"energy_j": 4.0, "gco2": 0.012345}), extras_in_words({"energy_j": 4.0})
    (', 0.01235 g CO2', '')
    """
    known = [each for each in extras() if costs.get(each.column) is not None]
    return "".join(f", {costs[each.column]:.4g} {each.short}" for each in known)
