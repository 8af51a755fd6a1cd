"""What an interval costs: energy, delay, simulated time (H2FDP, Sec. 11)."""

from __future__ import annotations

from h2fdp.protocol import IntervalPlan, Plan
from h2fdp.radio import Failing, NetworkCosts, interval_cost
from h2fdp.topology import Topology


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
        plan.heights or None,
    )
    slots = plan.decision.local_steps * topology.compute.seconds_per_step
    return {"energy_j": cost.energy_j, "delay_s": cost.delay_s, "clock_s": max(cost.clock_s, slots)}


def _failing(subnet: Plan) -> Failing | None:
    return None if subnet.completed is None else Failing(subnet.completed.steps > 0, subnet.steps_computed)
