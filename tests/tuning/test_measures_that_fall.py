"""A search, a sweep and their tables and figures where less of a measure is better."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from h2fdp import Experiment, Topology, UserError, sweep, tune
from h2fdp.cli.main import app
from h2fdp.data.from_python import from_python
from h2fdp.reports.sweep_numbers import sweep_numbers
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.tuning.plan import read_plan
from h2fdp.tuning.results import Trial, best_of, front_of, signed
from h2fdp.tuning.search import early_end
from tests.tuning.searches import BASE, search

RNG = np.random.default_rng(4)
X = RNG.normal(size=(400, 3))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A file of real values."""
    folder = tmp_path_factory.mktemp("real")
    table = pd.DataFrame(X, columns=list("abc"))
    table["price"] = 50 + 20 * X[:, 0] - 10 * X[:, 1] + 5 * RNG.normal(size=400)
    table.to_csv(folder / "houses.csv", index=False)
    section = (
        f"{{name: table, path: {folder}/houses.csv, label: price, task: regression, ranges: {{price: [-50, 150]}}}}"
    )
    return BASE.replace("data: digits", f"data: {section}").replace("model: softmax", "model: logistic")


def plan_of(folder, base, options=""):
    return read_plan(search(folder, base=base, options=options), [], SharedInputs())


@pytest.mark.run
def test_a_search_looks_for_the_least_error(real, tmp_path):
    tuned = tune(search(tmp_path, base=real, options="trials: 6\n  privacy: ignore"), out=tmp_path / "out", jobs=1)
    done = tuned.trials[tuned.trials["state"] == "done"]
    assert tuned.best["validation_rmse"] == done["validation_rmse"].min() > 0
    assert f"validation rmse {tuned.best['validation_rmse']:.5g}" in tuned.file.read_text()
    best = json.loads((tmp_path / "out" / "tune.json").read_text())["best"]
    assert best["trial"] == done.sort_values("validation_rmse")["trial"].iloc[0]


def test_what_a_trial_is_judged_by_follows_the_labels(real, tmp_path):
    assert plan_of(tmp_path, real).measure == "rmse"
    assert plan_of(tmp_path, real, "objective: [r2, joules]").measure == "r2"
    assert plan_of(tmp_path, BASE).measure == "accuracy"
    for base, options, told in (
        (real, "objective: [accuracy]", "tune.objective: expected rmse or r2, which is measured of such labels"),
        (BASE, "objective: [rmse]", "tune.objective: expected accuracy, which is measured of such labels"),
        (real, "objective: [rmse, r2]", "expected a score, as accuracy, and costs, each once"),
        (real.replace("hfl", "h2fdp"), "", "one record may move rmse by any amount, and the search is counted"),
    ):
        with pytest.raises(UserError, match=told):
            plan_of(tmp_path, base, options)


def test_scores_of_measures_that_fall_are_their_negatives():
    errors = {0: 5.0, 1: 2.0, 2: float("nan"), 3: 3.0}
    trials = [Trial(at, {}, "done", signed("rmse", each), {"joules": 10.0 - at}) for at, each in errors.items()]
    assert best_of(trials).number == 1
    assert [each.number for each in front_of(trials, ("joules",))] == [1, 3]
    row = {"interval": 3, "validation_rmse": 4.0}
    assert early_end({}, 3, (signed("rmse", 3.0),), row, "rmse") == "pruned"
    assert early_end({}, 3, (signed("rmse", 5.0),), row, "rmse") == ""


@pytest.mark.run
def test_tables_and_figures_of_a_sweep_show_its_own_measures(real, tmp_path):
    (tmp_path / "study.yaml").write_text(
        f"{real}sweep: {{training.step_size: [0.001, 0.3], training.local_steps: [8], seed: [1, 2]}}\n"
    )
    made = sweep(tmp_path / "study.yaml", out=tmp_path / "out", jobs=1)
    numbers = sweep_numbers(made.directory, target=25.0)
    slow, fast = (cells for _, cells in numbers.points)
    assert numbers.score.column == "rmse"
    assert fast["rmse"].mean < 20 < slow["rmse"].mean
    assert fast["r2"].mean > 0.5
    assert fast["target_intervals"].mean <= 4
    assert np.isnan(slow["target_intervals"].mean), "none came as low"
    told = CliRunner().invoke(app, ["table", str(made.directory), "--target", "25"], env={"COLUMNS": "160"}).stdout
    assert "test RMSE" in told
    assert "J to rmse 25" in told
    assert "accuracy" not in told
    drawn = CliRunner().invoke(app, ["plot", str(made.directory), "--out", str(tmp_path / "a.svg")])
    assert drawn.exit_code == 0, drawn.output
    assert "test RMSE" in (tmp_path / "a.svg").read_text() or (tmp_path / "a.svg").stat().st_size > 0
    listed = CliRunner().invoke(app, ["runs", str(made.directory)], env={"COLUMNS": "160"}).stdout
    assert "rmse" in listed.splitlines()[1]
    page = made.report(tmp_path / "page.html").read_text()
    assert "Test RMSE" in page
    config = yaml.safe_load(next((made.directory / "runs").iterdir()).joinpath("config.yaml").read_text())
    assert config["training"]["loss"]["name"] == "squared"


@pytest.mark.run
def test_a_sweep_from_python_stores_real_values_with_their_range(tmp_path):
    data = from_python((X, 50 + 20 * X[:, 0]), 0.2, task="regression", ranges={"y": [-50, 150]})
    made = Experiment(Topology.regular(edges=1, devices=2), data, method="hfl", model="logistic", intervals=2)
    swept = sweep(made, grid={"training.step_size": [0.05]}, out=tmp_path / "out", jobs=1)
    alone = Experiment(Topology.regular(edges=1, devices=2), data, method="hfl", model="logistic", intervals=2)
    row = alone.run(tmp_path / "run", overwrite=True).summary
    assert row["target"]["scale"] == 100.0
    summary = json.loads(next((swept.directory / "runs").iterdir()).joinpath("summary.json").read_text())
    assert summary["target"] == row["target"]
