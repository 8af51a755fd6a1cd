"""The studies' own schedules in whole runs: what a run under them returns, measures, foresees and refuses."""

import json

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology
from h2fdp.models.construct import ParameterLayout
from h2fdp.protocol import Cloud
from h2fdp.run.model_scores import ModelScores
from h2fdp.run.preview import privacy_report

CONSTANTS = {"lipschitz": 1.0, "smoothness": 1.0, "divergence": 0.1}
BUDGET = "experiments.resource_budget:ResourceBudgetSchedule"
UNITS = {"name": BUDGET, "units": 60.0, "step_cost": 1.0, "aggregation_cost": 2.0}
STEPS = {"batch_size": 16, "step_size": 0.1}
DP_SGD = {"name": "dp-sgd", "noise_multiplier": 2.0}


def stated(**options):
    return {"extends": "fedavg", "schedule": UNITS | CONSTANTS | options}


def test_the_summary_tells_the_worth_of_the_model_that_is_kept(tmp_path):
    # A step size at which the loss swings: the best model is not the last one.
    keys = {"intervals": 28, "batch_size": 1, "step_size": 2.0}
    made = Experiment(data="digits", method=stated(units=100.0), training=keys)
    run = made.run(tmp_path / "run")
    losses = run.metrics["loss"]
    assert losses.iloc[-1] > losses.min(), "or this test shows nothing"
    assert run.summary["loss"] == pytest.approx(losses.min(), rel=1e-6)
    assert run.summary["accuracy"] == pytest.approx(run.metrics["accuracy"][losses.argmin()])
    prepared = made.prepare()
    module = prepared.blueprint.module()
    module.load_state_dict(torch.load(run.directory / "model.pt", weights_only=True))
    vector = ParameterLayout(module).to_vector(module)
    assert ModelScores(prepared).scores_of(vector)["loss"] == pytest.approx(run.summary["loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("validation", "privacy", "column"),
    [(0.0, "none", "loss"), (0.25, "none", "validation_loss"), (0.25, DP_SGD, "loss")],
)
def test_schedules_steer_by_held_out_records_only_where_nothing_is_private(
    validation, privacy, column, tmp_path, monkeypatch
):
    told = []
    close = Cloud.close
    monkeypatch.setattr(Cloud, "close", lambda self, loss: (told.append(loss), close(self, loss))[1])
    data = {"name": "digits", "validation": validation}
    training = {"intervals": 5, **STEPS, "clip_norm": 1.0}
    run = Experiment(data=data, method=stated() | {"privacy": privacy}, epsilon=1e4, training=training).run(
        tmp_path / "run"
    )
    np.testing.assert_array_equal(told, run.metrics[column])


def test_a_budget_with_stated_constants_is_foreseen_step_by_step(tmp_path):
    method = stated() | {"privacy": {"name": "dp-sgd", "noise_multiplier": 1.0}}
    made = Experiment(data="digits", method=method, epsilon=1e4, training={"intervals": 30, **STEPS})
    run = made.run(tmp_path / "run")
    assert run.metrics["local_steps"].max() > 1, "or this test shows nothing"
    for observer, numbers in privacy_report(made.prepare())["observers"].items():
        assert numbers["rdp"] == pytest.approx(run.privacy.epsilon(observer=observer, accountant="rdp"))


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_prices_in_joules_are_those_of_the_devices_that_take_part(share, tmp_path):
    schedule = {"name": BUDGET, "joules": 3.0, **CONSTANTS}
    topology = Topology.regular(edges=2, devices=8, trust=0.5, seed=1)
    keys = {"intervals": 4, "participation": share, "local_steps": 1, "batch_size": 4, "step_size": 0.1}
    method = {"extends": "fedavg", "schedule": schedule}
    run = Experiment(topology=topology, data="digits", method=method, training=keys).run(tmp_path / "run")
    rows = [json.loads(line) for line in (run.directory / "control.jsonl").read_text().splitlines()]
    spent = run.metrics["energy_j"].diff().fillna(run.metrics["energy_j"])
    for row, tau, joules in zip(rows, run.metrics["local_steps"], spent, strict=True):
        budget = row["budgets"]["energy_j"]
        assert budget["c"] * tau + budget["b"] == pytest.approx(joules, rel=1e-6)
