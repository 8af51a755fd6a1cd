"""What is forecast of a run is what it does."""

import pytest

from h2fdp import Experiment, Topology
from h2fdp.protocol import Planner
from h2fdp.run.dry_run import estimate
from h2fdp.run.forecast import first_interval, forecast, planned_accounts

FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}


def experiment(**settings):
    topology = Topology.regular(edges=2, devices=3, trust=0.5, seed=1)
    defaults = {"intervals": 5, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 3}
    return Experiment(topology=topology, data="digits", **{"method": "h2fdp", **defaults, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"participation": 0.6},
        {"faults": FAULTS},
        {"participation": 0.6, "faults": FAULTS},
        {"method": "h2fdp-adaptive", "control": {"estimates": "released", "slots": 14}},
    ],
)
def test_the_run_takes_the_slots_and_the_devices_of_its_forecast(settings, tmp_path):
    made = experiment(**settings)
    run = made.run(tmp_path / "run")
    plans = [expected.plan for expected in forecast(made.prepare())]
    first = plans[0]
    assert run.metrics["participants"].iloc[0] == first.participants
    assert run.metrics["slot"].iloc[0] == first.last_slot
    if "control" not in settings:  # a controller learns during the run, and may decide otherwise from then on
        assert run.metrics["participants"].tolist() == [plan.participants for plan in plans]
        assert run.metrics["slot"].tolist() == [plan.last_slot for plan in plans]


def test_the_accounts_that_are_planned_are_those_that_the_run_ends_with(tmp_path):
    made = experiment(participation=0.6, faults=FAULTS)
    run, planned = made.run(tmp_path / "run"), planned_accounts(made.prepare())
    for observer in ("edge", "peer", "cloud", "public"):
        assert planned.worst(observer, 1e-5) == pytest.approx(run.privacy.epsilon(observer, "rdp"))


def test_intervals_that_differ_in_their_step_size_alone_come_as_one():
    (expected,) = forecast(experiment().prepare())
    assert expected.times == 5


def test_intervals_of_other_devices_are_planned_one_by_one_where_these_matter():
    setup = experiment(participation=0.6).prepare()
    assert [expected.times for expected in forecast(setup)] == [1] * 5
    assert [expected.times for expected in forecast(setup, by_participants=False)] == [5]


def test_the_first_interval_is_announced_as_if_nothing_failed():
    assert first_interval(experiment(faults={"edge_outage": {"probability": 1}}).prepare()).participants == 6


def test_a_fixed_schedule_is_planned_once_for_all_that_a_dry_run_asks(monkeypatch):
    asked, plan = [], Planner.plan
    monkeypatch.setattr(Planner, "plan", lambda *given: asked.append(given[1]) or plan(*given))
    setup = experiment().prepare()
    estimate(setup)
    assert asked == [0] * 2  # before the noise was calibrated, and with it
