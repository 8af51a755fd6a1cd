"""What a run costs: energy, delay, simulated time (H2FDP, Sec. 11)."""

from __future__ import annotations

from collections.abc import Mapping

from h2fdp.protocol import IntervalPlan, Plan
from h2fdp.radio import Failing, NetworkCosts, interval_cost
from h2fdp.topology import Topology

COLUMNS = ("energy_j", "delay_s", "clock_s")


def interval_costs(topology: Topology, costs: NetworkCosts, plan: IntervalPlan) -> dict[str, float]:
    """The cost of an interval under the fading that it draws, by columns of the metrics.

    The clock (seconds) also advances by the interval's slots when no device takes part.
    """
    numbers = {subnet.name: number for number, subnet in enumerate(topology.subnets)}
    parts = plan.subnets | plan.lost
    cost = interval_cost(
        costs.drawn(plan.interval),
        topology,
        [numbers[name] for name in parts],
        [subnet.rows for subnet in parts.values()],
        [subnet.segments for subnet in parts.values()],
        [_failing(subnet) for subnet in parts.values()],
    )
    slots = plan.decision.local_steps * topology.compute.seconds_per_step
    return {"energy_j": cost.energy_j, "delay_s": cost.delay_s, "clock_s": max(cost.clock_s, slots)}


def _failing(subnet: Plan) -> Failing | None:
    return None if subnet.turnout is None else Failing(subnet.turnout.steps > 0, subnet.steps_computed)


class CostMeter:
    """Adds up the costs of a run's intervals."""

    def __init__(self, topology: Topology, costs: NetworkCosts) -> None:
        self._topology = topology
        self._costs = costs
        self._sums = dict.fromkeys(COLUMNS, 0.0)

    def add(self, plan: IntervalPlan) -> None:
        """Add an interval that was run."""
        for column, spent in interval_costs(self._topology, self._costs, plan).items():
            self._sums[column] += spent

    def load(self, columns: Mapping[str, float]) -> None:
        """Continue from these `columns`."""
        self._sums = {column: columns[column] for column in COLUMNS}

    def columns(self) -> dict[str, float]:
        """Metrics columns: running sums."""
        return dict(self._sums)
