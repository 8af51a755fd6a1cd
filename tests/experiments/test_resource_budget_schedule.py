"""A resource budget: tau within limits on what training may spend, the best model returned."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.resource_budget.drift import BudgetPrices, DriftConstants, affordable_local_steps
from experiments.resource_budget.prices import ResourceBudget
from experiments.resource_budget.schedule import ResourceBudgetSchedule
from h2fdp.errors import UserError
from tests.experiments.observations import context, observation, reloaded, secants

DRIFT = DriftConstants(1.0, 1.0, 1.0)


class Within(ResourceBudgetSchedule):
    """Within any budgets."""

    given = ()

    def budgets(self):
        return self.given


def schedule(*budgets, constants=DRIFT, **options):
    made = Within(**options, **({} if constants is None else vars(constants)))
    made.given = budgets or (tokens(1000.0),)
    return made.build(context(step_size=0.01))


def tokens(total, step=1.0, aggregation=10.0, name="tokens"):
    return ResourceBudget.stated(name, total, step, aggregation)


def run(of, observed=lambda interval, tau: observation(interval, tau), between=lambda of: of):
    """The tau of every interval until the schedule ends."""
    taus, slot = [], 0
    while not of.ends(slot):
        interval = len(taus)
        plan = of.decide(interval, slot)
        assert of.decide(interval, slot).local_steps == plan.local_steps
        of.observe(observed(interval, plan.local_steps))
        of.kept(torch.zeros(1))
        of = between(of)
        taus.append(plan.local_steps)
        slot += plan.local_steps
    return taus


def cost(taus, step=1.0, aggregation=10.0):
    return step * sum(taus) + aggregation * len(taus)


@pytest.mark.parametrize("constants", [None, DRIFT])
def test_a_constant_tau_fills_the_same_budget_and_ends_with_what_is_left(constants):
    taus = run(schedule(tokens(95.0), constant=7, constants=constants))
    # Four intervals cost 68. A fifth of 7 steps, with a step and an aggregation in reserve, would take 28 more.
    assert taus == [7, 7, 7, 7, 6]
    with pytest.raises(UserError, match="constant"):
        Within(constant=0)


def test_constants_are_learned_from_the_devices_and_written_down():
    of = schedule(constants=None)
    of.observe(observation(0, 1, secants(distance=[2.0, 2.0], loss_local=[3.0, 3.0], divergence=[1.0, 3.0])))
    plan = of.decide(1, 1)
    constants = plan.reasons["constants"]
    assert (constants["rho"], constants["beta"], constants["delta"]) == (1.0, 0.5, 2.0)
    expected = affordable_local_steps(10, [BudgetPrices(1000.0, 1.0, 10.0)], 0.01, DriftConstants(1.0, 0.5, 2.0), 0.025)
    assert plan.local_steps == expected
    assert plan.reasons["budgets"]["tokens"] == {
        "R": 1000.0,
        "used": 11.0,
        "c": 1.0,
        "b": 10.0,
        "mean_c": 1.0,
        "mean_b": 10.0,
    }


prices = st.tuples(st.floats(0, 3), st.floats(0.01, 30))
measured = st.builds(
    lambda a, b, c, d: secants(distance=[a, b], loss_local=[c, d], gradient_change=[d, b], divergence=[d, c]),
    *[st.floats(0, 10)] * 4,
)


@given(st.data())
def test_no_budget_is_ever_overdrawn_when_prices_are_true(data):
    drawn = [data.draw(st.lists(prices, min_size=5, max_size=5)) for _ in range(data.draw(st.integers(1, 3)))]
    totals = [sum(columns[0]) + data.draw(st.floats(0.1, 300)) for columns in drawn]
    budgets = [
        ResourceBudget(str(number), total, lambda interval, of=columns: of[interval % 5])
        for number, (columns, total) in enumerate(zip(drawn, totals, strict=True))
    ]
    seen = data.draw(st.lists(st.one_of(st.none(), measured), min_size=1, max_size=4))
    of = schedule(*budgets, constants=None)
    taus, slot = [], 0
    while not of.ends(slot) and len(taus) < 40:
        tau = of.decide(len(taus), slot).local_steps
        of.observe(observation(len(taus), tau, seen[len(taus) % len(seen)]))
        taus.append(tau)
        slot += tau
    assert taus
    for columns, total in zip(drawn, totals, strict=True):
        spent = math.fsum(columns[k % 5][0] * tau + columns[k % 5][1] for k, tau in enumerate(taus))
        assert spent <= total * (1 + 1e-12)


def model(value):
    return torch.tensor([value])


def step(of, interval, loss, ended, started=0.0):
    """One interval that went from model `started` to model `ended`, whose loss on public records is `loss`."""
    of.observe(observation(interval, of.decide(interval, 0).local_steps, model=started))
    of.scored(loss)
    return of.kept(model(ended)).item()


def test_a_schedule_that_is_killed_after_any_interval_goes_on_as_if_it_had_not_been(tmp_path):
    rng = np.random.default_rng(3)
    seen = [secants(divergence=rng.uniform(0, 3, 2), loss=rng.uniform(1, 2, 2)) for _ in range(5)]
    seen[2] = secants(loss=[math.nan, 1.0])
    drawn = ResourceBudget("clock_s", 900.0, lambda interval: (1.0 + interval % 3, 10.0 + interval % 2))

    def new():
        return schedule(drawn, tokens(700.0), constants=None)

    def observed(interval, tau):
        return observation(interval, tau, seen[interval % 5], spent={"clock_s": 1.1 * tau + 9.0})

    killed = []

    def reload(of):
        killed.append(reloaded(of, new(), tmp_path))
        assert killed[-1].state() == of.state()
        return killed[-1]

    through = run(new(), observed)
    assert run(new(), observed, reload) == through
    assert len(set(through)) > 2
    assert killed[-1].returned(model(9.0)).item() == 0.0  # the best model is in the state
