"""What is forecast of a run is what it does."""

import pytest

from h2fdp import Experiment, Topology
from h2fdp.run.forecast import forecast, planned_accounts, planned_work
from h2fdp.run.preview import estimate

COSTS = ("energy_j", "delay_s", "clock_s")
FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}


def experiment(**settings):
    topology = settings.pop("topology", Topology.regular(edges=2, devices=3, trust=0.5, seed=1))
    defaults = {"intervals": 5, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 3}
    return Experiment(topology=topology, data="digits", **{"method": "h2fdp", **defaults, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"participation": 0.6},
        {"faults": FAULTS},
        {"participation": 0.6, "faults": FAULTS},
        {"method": "h2fdp-adaptive", "control": {"slots": 14}},
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


THREE_TIERS = {
    "edges": [
        {"name": "city", "trusted": True, "edges": [{"name": "a", "trusted": True, "devices": {"count": 3}}]},
        {"name": "port", "edges": [{"name": f"p-{number}", "devices": {"count": 2}} for number in (1, 2)]},
    ]
}
SUMS = {"edges": [{"name": name, "trust": "secure-sum", "devices": {"count": 3}} for name in "ab"]}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "exact"),
        ({"topology": THREE_TIERS, "aggregate_every": [1, 2]}, "exact"),
        ({"participation": 0.6, "step_decay": "linear"}, "exact"),
        ({"topology": SUMS}, "exact"),
        ({"topology": SUMS, "faults": FAULTS, "participation": 0.6}, "exact"),
        ({"topology": THREE_TIERS, "aggregate_every": [1, 2], "faults": FAULTS}, "exact"),
        ({"method": "hfl"}, "exact"),
        ({"method": "pedpfl"}, "exact"),
        ({"method": "h2fdp-adaptive", "control": {"tau_max": 4, "turns": 0.5, "joules": 0.5}}, "forecast"),
    ],
)
def test_the_joules_and_seconds_that_are_planned_are_those_that_the_run_ends_with(settings, kind, tmp_path):
    made = experiment(**settings)
    planned, run = planned_work(made.prepare()).costs, made.run(tmp_path / "run")
    assert {key: planned[key] for key in COSTS} == {key: run.summary[key] for key in COSTS}
    assert planned["energy_j"] > 0
    assert planned["kind"] == kind


@pytest.mark.parametrize(
    "ends", [{"calibration": "accounted", "accountant": "pld", "budget": {"edge": 45.0}}, {"until": {"accuracy": 0.12}}]
)
def test_costs_are_at_most_those_planned_where_the_run_may_end_early(ends, tmp_path):
    made = experiment(**ends)
    planned, run = planned_work(made.prepare()).costs, made.run(tmp_path / "run")
    assert run.summary["intervals"] < 5, "this run does end early"
    assert planned["kind"] == "at most"
    assert all(run.summary[key] < planned[key] for key in COSTS)


def test_a_budget_of_joules_bounds_what_a_controller_spends_(tmp_path):
    made = experiment(method="h2fdp-adaptive", control={"tau_max": 4, "turns": 0.5, "joules": 0.5})
    told = estimate(made.prepare())
    assert told["network"]["energy_j"] <= 0.5
    assert made.run(tmp_path / "run").summary["energy_j"] <= 0.5


@pytest.mark.parametrize(("method", "more"), [("scaffold", True), ("hfl", False)])
def test_what_devices_keep_counts_in_the_memory_that_is_estimated(method, more):
    """2,000 of 155,830 numbers made 10.6 GB, 9.4 of them for eight copies of what devices keep; here 600 of 14,906."""
    data = {"name": "digits", "partition": "iid"}

    def gigabytes(devices):
        topology = Topology.regular(edges=3, devices=devices, trust=1, seed=1)
        training = {"extends": "paper", "intervals": 1, "batch_size": 1}
        made = Experiment(topology=topology, data=data, method=method, model="mlp", training=training).prepare()
        return float(estimate(made)["memory"].split()[1]), made.initial.numel() * 4 / 1e9

    (small, _), (large, model) = gigabytes(2), gigabytes(200)
    assert large - small == pytest.approx(9.4 / 1.25 * 600 * model if more else 0.0, abs=0.1)  # both are rounded
