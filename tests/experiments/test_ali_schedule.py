"""ALI-DPFL, both versions: tau between a budget of rounds and one of iterations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ali_dpfl.bounds import DpSgdNoise, ali_optimum
from experiments.ali_dpfl.schedules import AliDpfl, AliDpflFirst
from tests.experiments.observations import context, observation, reloaded, secants

NOISE = DpSgdNoise(clip_norm=0.1, noise_multiplier=1.1, parameters=26_010, batch=75)


def closed_form(rounds=158, iterations=317, **options):
    return AliDpfl(**options).build(context(intervals=rounds, iterations=iterations))


def search(rounds=158, iterations=317, **options):
    run = context(intervals=rounds, iterations=iterations, step_size=0.1, parameters=100)
    return AliDpflFirst(**options).build(run)


def run(schedule, measured, between=lambda schedule: schedule):
    """The tau of every round until the schedule ends; `measured` is what devices tell, round by round, in turn."""
    taus, slot = [], 0
    while not schedule.ends(slot):
        interval = len(taus)
        plan = schedule.decide(interval, slot)
        assert schedule.decide(interval, slot).local_steps == plan.local_steps
        schedule.observe(observation(interval, plan.local_steps, measured[interval % len(measured)]))
        schedule = between(schedule)
        taus.append(plan.local_steps)
        slot += plan.local_steps
    return taus


@pytest.mark.parametrize("of", [closed_form, search])
def test_where_rounds_abound_every_round_has_one_step_and_nothing_is_measured(of):
    schedule = of(rounds=40, iterations=40)
    assert schedule.measures_within(40, 40) is None
    assert run(schedule, [None]) == [1] * 40


def test_tau_is_the_papers_closed_form_rounded():
    schedule = closed_form(curvature_from="gradients", form="paper", heterogeneity=0.0)
    schedule.observe(observation(0, 1, secants(gradient_change=[0.5, 1.5], last_step=[9.0, 9.0])))
    plan = schedule.decide(1, 1)
    expected = float(ali_optimum(158, 1.0, 0.0, NOISE, "paper"))
    assert plan.local_steps == round(expected) == 6
    assert plan.reasons["optimum"] == pytest.approx(expected)
    constants = plan.reasons["constants"]
    assert (constants["mu"], constants["Gamma"], constants["T"]) == (1.0, 0.0, 158)
    assert (constants["C"], constants["sigma"], constants["d"], constants["B"]) == (0.1, 1.1, 26_010, 75)


numbers = st.floats(0, 100)
measured = st.builds(
    lambda a, b, c, d, e: secants(
        distance=[a, b], last_step=[c, a], loss_local=[d, e], gradient_change=[e, b], divergence=[d, c]
    ),
    *[numbers] * 5,
)


@pytest.mark.parametrize("of", [closed_form, search])
@given(data=st.data())
def test_neither_budget_is_ever_overdrawn(of, data):
    rounds, iterations = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 300))
    seen = data.draw(st.lists(st.one_of(st.none(), measured), min_size=1, max_size=5))
    taus = run(of(rounds=rounds, iterations=iterations), seen)
    assert len(taus) <= rounds
    assert sum(taus) <= iterations
    assert min(taus) >= 1
    assert len(taus) == rounds or sum(taus) == iterations


@pytest.mark.parametrize("of", [closed_form, search])
def test_a_schedule_that_is_killed_after_any_round_goes_on_as_if_it_had_not_been(of, tmp_path):
    rng = np.random.default_rng(5)
    seen = [
        secants(last_step=rng.uniform(0.1, 1, 2), divergence=rng.uniform(0, 0.1, 2), loss_local=rng.uniform(0.9, 1, 2))
        for _ in range(7)
    ]
    seen[3] = None
    through = run(of(rounds=20, iterations=200), seen)
    killed = run(of(rounds=20, iterations=200), seen, lambda s: reloaded(s, of(rounds=20, iterations=200), tmp_path))
    assert through == killed
    assert len(set(through)) > 2
