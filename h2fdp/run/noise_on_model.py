"""The noise that a planned run leaves in its last model, and what its messages cost.

The noise on a step is the standard deviation of all noise that the global model has taken up by the end, on each
coordinate, over the length of the way that it would have gone along gradients of norm 1. If r is this ratio, the run
descends by gradients g + N(0, r^2 I) on average, so that its ratio of noise to signal is r / |g|. Where gradients are
clipped, |g| is at most the clip norm.
"""

from __future__ import annotations

from dataclasses import dataclass

from h2fdp.protocol import InProcessNodes, IntervalPlan
from h2fdp.protocol.planned_uploads import noise_and_gradients
from h2fdp.run.forecast import forecast
from h2fdp.run.setup import RunSetup


@dataclass(frozen=True)
class NoiseOnModel:
    """What the global model takes up in a run without faults, before the server's own update rule.

    Attributes:
        noise_std: of each coordinate, of all intervals' noise together; of noise at local steps to first order, as if
            the noise of one step did not change the gradients of the next.
        way: sum over all intervals of step size times the gradients that the average of the uploads adds up.
    """

    noise_std: float
    way: float

    @property
    def per_step(self) -> float:
        """r, see above."""
        return self.noise_std / self.way


def noise_on_model(setup: RunSetup) -> NoiseOnModel:
    """That of the planned run.

    Where intervals are alike but for their step size, the noise is either proportional to it or does not depend on it:
    the first interval and the last one say how much is which.
    """
    assert setup.noise is not None, "there is no noise to compare"
    quiet = setup.without_faults()
    facts = {each.name: each for each in setup.blueprint.facts}
    variance = way = 0.0
    for expected in forecast(quiet, by_participants=False):
        first, gradients = noise_and_gradients(expected.plan, facts, setup.noise)
        sizes = _step_sizes(quiet, expected.plan, expected.times)
        fixed, by_square = first, 0.0
        if sizes[-1] != sizes[0]:
            last, _ = noise_and_gradients(_plan_of(quiet, expected.times - 1), facts, setup.noise)
            by_square = (first - last) / (sizes[0] ** 2 - sizes[-1] ** 2)
            fixed = first - by_square * sizes[0] ** 2
        variance += sum(fixed + by_square * size**2 for size in sizes)
        way += gradients * sum(sizes)
    return NoiseOnModel(max(variance, 0.0) ** 0.5, way)


def _step_sizes(setup: RunSetup, plan: IntervalPlan, times: int) -> list[float]:
    if times == 1:
        return [plan.decision.step_size]
    schedule = setup.schedule()
    return [schedule.decide(interval, 0).step_size for interval in range(times)]


def _plan_of(setup: RunSetup, interval: int) -> IntervalPlan:
    return setup.cloud(InProcessNodes({})).plan(interval)


def joules_of(setup: RunSetup) -> float:
    """Of all messages, if all intervals are like the first one."""
    plan = next(forecast(setup.without_faults(), by_participants=False)).plan
    return setup.interval_costs(plan)["energy_j"] * setup.config.training.intervals
