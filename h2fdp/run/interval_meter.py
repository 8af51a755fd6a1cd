"""What a planned interval costs: joules and seconds of every message and local step in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from h2fdp.protocol import IntervalPlan, Plan
from h2fdp.radio import ExchangeSizes, Failing, NetworkCosts, SumMessages, interval_cost
from h2fdp.topology import Topology
from h2fdp.topology.network import Floats


@dataclass(frozen=True)
class IntervalMeter:
    """Costs of intervals in a network (H2FDP, Sec. 11).

    Attributes:
        costs: of messages on its links.
        exchanges: what devices exchange under secure-sum edge servers; None where the method has no secure sums.
        cloud_sums: whether the cloud holds a secure sum.
    """

    topology: Topology
    costs: NetworkCosts
    exchanges: ExchangeSizes | None
    cloud_sums: bool

    def __call__(self, plan: IntervalPlan) -> dict[str, float]:
        """What an interval costs under the fading that it draws, by columns of the metrics.

        The clock (seconds) also advances by the interval's slots when no device takes part.
        """
        parts = plan.subnets | plan.lost
        cost = interval_cost(
            self.costs.drawn(plan.interval),
            self.topology,
            [self._numbers[name] for name in parts],
            [subnet.rows for subnet in parts.values()],
            [subnet.segments for subnet in parts.values()],
            [_failing(subnet) for subnet in parts.values()],
            plan.heights or None,
            [self._sum_messages(subnet) for subnet in parts.values()],
            self._upper_sums,
        )
        slots = plan.decision.local_steps * self.topology.compute.seconds_per_step
        return {"energy_j": cost.energy_j, "delay_s": cost.delay_s, "clock_s": max(cost.clock_s, slots)}

    def powers(self, plan: IntervalPlan) -> dict[str, float] | None:
        """With how many dBm the devices of an interval send, at least, in the mean and at most.

        None where nobody chooses, or nobody takes part.
        """
        parts = plan.subnets | plan.lost
        if not self.costs.chooses_power or not any(len(subnet.rows) for subnet in parts.values()):
            return None
        sizes = self.topology.sizes
        firsts = np.cumsum(sizes) - sizes
        rows = [firsts[self._numbers[name]] + subnet.rows for name, subnet in parts.items()]
        return range_of(self.costs.drawn(plan.interval).power_dbm[np.concatenate(rows)])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {subnet.name: number for number, subnet in enumerate(self.topology.subnets)}

    @cached_property
    def _upper_sums(self) -> dict[str | None, ExchangeSizes]:
        """What the children of those above edge servers exchange that hold secure sums."""
        if self.exchanges is None:
            return {}
        holders = [each.name for each in self.topology.aggregators if each.trust == "secure-sum"]
        return dict.fromkeys([*holders, None] if self.cloud_sums else holders, self.exchanges)

    def _sum_messages(self, subnet: Plan) -> SumMessages | None:
        sizes = self.exchanges
        if not subnet.masked or sizes is None:
            return None
        segments, devices = len(subnet.segments), len(subnet.rows)
        if subnet.completed is None:
            return SumMessages.planned(sizes, segments, devices)
        work, nobody = subnet.completed, np.zeros((segments, devices), dtype=bool)
        begun = ~nobody if work.begun is None else work.begun
        unopened = nobody if work.unopened is None else work.unopened
        opened = np.asarray(~unopened.any(axis=1))
        return SumMessages(sizes, begun, (work.steps > 0) | unopened, opened)


def range_of(power_dbm: Floats) -> dict[str, float]:
    """Of (n,) powers the least, their mean (of decibels) and the most."""
    return {"least": float(power_dbm.min()), "mean": float(power_dbm.mean()), "most": float(power_dbm.max())}


def _failing(subnet: Plan) -> Failing | None:
    return None if subnet.completed is None else Failing(subnet.completed.steps > 0, subnet.steps_computed)
