"""What a run has cost so far: energy, delay, simulated time (H2FDP, Sec. 11)."""

from __future__ import annotations

from collections.abc import Mapping

from h2fdp.experiment.preparation import Preparation
from h2fdp.nodes import IntervalPlan, SubnetPlan
from h2fdp.radio import Failing, interval_cost


class CostWatch:
    """Adds up the costs of intervals under the fading that each of them draws."""

    def __init__(self, run: Preparation) -> None:
        self._run = run
        self._numbers = {subnet.name: number for number, subnet in enumerate(run.topology.subnets)}
        self._energy_j = self._delay_s = self._clock_s = 0.0

    def add(self, plan: IntervalPlan) -> None:
        """An interval that was run."""
        parts = plan.subnets | plan.lost
        cost = interval_cost(
            self._run.costs.drawn(plan.interval),
            self._run.topology,
            [self._numbers[name] for name in parts],
            [subnet.rows for subnet in parts.values()],
            [subnet.segments for subnet in parts.values()],
            [_failing(subnet) for subnet in parts.values()],
        )
        self._energy_j += cost.energy_j
        self._delay_s += cost.delay_s
        # The slots of an interval pass also when nobody is there.
        self._clock_s += max(cost.clock_s, plan.decision.local_steps * self._run.topology.compute.seconds_per_step)

    def load(self, columns: Mapping[str, float]) -> None:
        """Go on from these `columns`."""
        self._energy_j, self._delay_s, self._clock_s = (columns[key] for key in ("energy_j", "delay_s", "clock_s"))

    def columns(self) -> dict[str, float]:
        """Metrics columns: running sums."""
        return {"energy_j": self._energy_j, "delay_s": self._delay_s, "clock_s": self._clock_s}


def _failing(subnet: SubnetPlan) -> Failing | None:
    return None if subnet.turnout is None else Failing(subnet.turnout.steps > 0, subnet.steps_computed)
