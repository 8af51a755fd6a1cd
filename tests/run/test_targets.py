"""Real values, several labels and sequences in whole runs: what they go with, what is measured, and what is refused."""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp import Experiment, UserError
from h2fdp.data.from_python import from_python
from h2fdp.data.targets import MEASURED
from h2fdp.network.adversaries import Adversaries, LabelFlip, SignFlip
from h2fdp.network.mobility import Mobility
from h2fdp.reports import report
from h2fdp.run.explain import at_equal_epsilon, changes, explanation
from tests.run.killed import assert_outlives_a_kill
from tests.run.test_device_unit import ALONE, DEEP, FLAT, PLAIN

RNG = np.random.default_rng(7)
X = RNG.normal(size=(240, 4)).astype(np.float32)
SIGNAL = X @ RNG.normal(size=(4, 3)) + 0.3 * RNG.normal(size=(240, 3))
WORDS = np.where(RNG.uniform(size=(240, 4)) < 0.2, -1, (X > 0) + 2 * (np.roll(X, 1, axis=1) > 0))
WORDS[:, 0] = 1


class Positions(nn.Module):
    """Five scores at each of four positions."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 6), nn.Linear(6, 5)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x[..., None]).cumsum(dim=1)))


DATA = {
    "regression": (250 + 100 * SIGNAL[:, 0], {"task": "regression", "ranges": {"y": [-250, 750]}}),
    "multilabel": ((SIGNAL > 0).astype(int), {"task": "multilabel"}),
    "tokens": (WORDS, {"classes": 5}),
}
USUAL = {
    "intervals": 2,
    "local_steps": 2,
    "aggregate_every": 1,
    "batch_size": 8,
    "clip_norm": 0.5,
    "clip_scope": "record",
    "step_size": 0.2,
    "epsilon": 8.0,
    "calibration": "accounted",
}


def given(task, **options):
    labels, stated = DATA[task]
    made = from_python((X, labels), 0.25, **stated)
    return replace(made, options={**made.options, **options})


def experiment(task, topology=FLAT, options=None, **settings):
    model = {"model": Positions} if task == "tokens" else {}
    return Experiment(topology, given(task, **(options or {})), **{**USUAL, **model, **settings})


RIGHT = {
    "three trusts": {},
    "two tiers": {"topology": DEEP},
    "devices alone": {"topology": ALONE},
    "a star": {"method": "fedavg-dp", "aggregate_every": None, "aggregations_per_interval": 0},
    "integers in secure sums": {"method": {"extends": "h2fdp", "privacy": {"secure_sum": {"rounding": 16}}}},
    "buffers": {"topology": PLAIN, "method": {"extends": "hfl-async", "privacy": "hierarchical"}},
    "movement": {"topology": replace(PLAIN, mobility=Mobility([(2, "trusted/1", "untrusted")]))},
    "whole devices": {"protects": "device", "clip_scope": "batch"},
    "a median": {"topology": PLAIN, "method": {"extends": "h2fdp", "aggregation": "median"}},
    "liars": {"topology": replace(PLAIN, adversaries=Adversaries(SignFlip(), devices=("untrusted/1",)))},
    "smaller messages": {"topology": ALONE, "compression": {"device": {"top_k": 0.5}}},
    "own models": {"method": "pfedme", "calibration": None},
    "a loop": {"runtime": {"engine": "loop"}},
    "clipped batches": {"clip_scope": "batch"},
}


def assert_measured(run, task):
    """Columns of the task, and none of others; the loss and the first measure are one number."""
    row, summary = run.metrics.iloc[-1], run.summary
    for name in ("accuracy", "rmse", "r2", "perplexity"):
        known = name in row and not math.isnan(row[name])
        assert known == (name in MEASURED[task]) == (summary.get(name) is not None), name
    if task == "regression":
        assert row["rmse"] == pytest.approx(500 * math.sqrt(row["loss"]), rel=1e-5)
        target = given(task).pool.test.y
        assert row["r2"] == pytest.approx(1 - row["rmse"] ** 2 / target.var(), rel=1e-4)
        assert summary["best_rmse"] == run.metrics["rmse"].min()
    if task == "tokens":
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]), rel=1e-5)
    of_devices = "rmse" if task == "regression" else "accuracy"
    assert run.devices[of_devices].notna().all()
    assert run.devices[f"subnet_{of_devices}"].notna().all()


@pytest.mark.parametrize("task", DATA)
@pytest.mark.parametrize("feature", RIGHT)
def test_a_run_with_this_feature_measures_what_belongs_to_its_labels(feature, task, tmp_path):
    run = experiment(task, **RIGHT[feature]).run(tmp_path / "run")
    assert_measured(run, task)
    for observer in ("edge", "cloud"):
        epsilon = run.privacy.epsilon(observer) if run.summary["accountant"] else None
        assert epsilon is None or 0 < epsilon <= 8.0, observer


@pytest.mark.process
@pytest.mark.parametrize("task", DATA)
def test_a_killed_run_goes_on_to_the_same_bits(task, tmp_path):
    labels, stated = DATA[task]
    np.savez(tmp_path / "a.npz", x_train=X[:200], y_train=labels[:200], x_test=X[200:], y_test=labels[200:])
    (tmp_path / "mine.py").write_text(f"import torch\nfrom torch import nn\n\n\n{inspect.getsource(Positions)}")
    model = {"model": f"{tmp_path}/mine:Positions"} if task == "tokens" else {"model": "softmax"}
    data = {"name": "npz", "path": str(tmp_path / "a.npz"), **stated}
    assert_outlives_a_kill(Experiment(FLAT, data, **{**USUAL, **model, "intervals": 3}), tmp_path, "released", 1)


def test_the_model_of_a_run_answers_in_the_units_of_the_labels(tmp_path):
    run = experiment("regression", method="hfl", intervals=20, clip_norm=None, calibration=None).run(tmp_path / "run")
    test = given("regression").pool.test
    with torch.no_grad():
        found = run.model(torch.from_numpy(test.x.astype(np.float32)))[:, 0].numpy()
    assert np.sqrt(((found - test.y) ** 2).mean()) == pytest.approx(run.summary["rmse"], rel=1e-4)
    assert run.summary["r2"] > 0.8


@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 0.9), (8.0, 0.96)])
def test_four_lines_and_a_range_come_near_to_ridge_regression(epsilon, least, tmp_path):
    x = np.random.default_rng(1).normal(size=(3000, 4))
    y = 250 + 60 * (x @ [1.0, -1.0, 0.5, 0.0]) + 40 * np.random.default_rng(2).normal(size=3000)
    data = from_python((x, y), 0.2, task="regression", ranges={"y": [-200, 700]})
    run = Experiment(PLAIN, data, epsilon=epsilon, model="auto", training="auto").run(tmp_path / "run")
    best = 1 - 40**2 / (40**2 + 60**2 * 2.25)
    assert least * best < run.summary["r2"] < best + 0.03


@pytest.mark.parametrize(
    ("task", "measure", "value", "reached"),
    [
        ("regression", "rmse", 1e6, True),
        ("regression", "rmse", 1e-6, False),
        ("regression", "r2", 0.999999, False),
        ("tokens", "perplexity", 1e6, True),
        ("tokens", "perplexity", 1.0001, False),
        ("multilabel", "accuracy", 0.01, True),
    ],
)
def test_a_measure_that_falls_ends_a_run_when_it_is_low_enough(task, measure, value, reached, tmp_path):
    run = experiment(task, until={measure: value}).run(tmp_path / "run")
    assert run.summary["state"] == (f"{measure} reached" if reached else "done")
    assert run.summary["intervals"] == (1 if reached else 2)
    assert any("when the run ends depends on the data" in note for note in run.summary["privacy"]["notes"])


WITH_TESTS = {"test": 0.25, "partition": "iid"}


@pytest.mark.parametrize(
    ("key", "task", "settings"),
    [
        ("training.loss", "regression", {"loss": "cross-entropy"}),
        ("training.loss", "multilabel", {"loss": "squared"}),
        ("training.until.accuracy", "regression", {"until": {"accuracy": 0.5}}),
        ("training.until.rmse", "tokens", {"until": {"rmse": 0.5}}),
        ("control.accuracy", "regression", {"method": "h2fdp-adaptive", "control": {"accuracy": 0.5}}),
        ("training.evaluate_devices", "regression", {"evaluate_devices": True}),
        ("training.until", "regression", {"until": {"rmse": 5.0}, "options": WITH_TESTS}),
        ("method.objective", "regression", {"method": "one-shot"}),
        ("data.partition", "multilabel", {"options": {"partition": {"labels_per_device": 2}}}),
        ("model", "tokens", {"model": "auto"}),
        ("model", "tokens", {"model": "softmax"}),
        (
            "topology.adversaries.attack",
            "regression",
            {"topology": replace(PLAIN, adversaries=Adversaries(LabelFlip(), devices=("untrusted/1",)))},
        ),
    ],
)
def test_what_needs_classes_or_another_measure_is_refused_at_its_key(key, task, settings):
    with pytest.raises(UserError) as caught:
        experiment(task, **settings).prepare()
    assert key in {each.key for each in caught.value.problems}, caught.value.report


def test_devices_with_test_records_show_how_their_errors_are_spread(tmp_path):
    run = experiment("regression", options=WITH_TESTS, evaluate_devices=True).run(tmp_path / "run")
    row = run.metrics.iloc[-1]
    deciles = [row[f"device_rmse_p{each}0"] for each in range(1, 10)]
    assert deciles == sorted(deciles)
    assert row["device_rmse_worst_tenth"] >= deciles[-1], "the largest errors are the worst"
    page = report(run.directory).read_text()
    assert "rmse_p10" not in page, "no epsilon covers what is measured on devices' records"
    assert "rmse_p10" in report(run.directory, tmp_path / "all.html", with_private=True).read_text()


@pytest.mark.parametrize("task", DATA)
def test_a_report_shows_the_measures_of_a_run(task, tmp_path):
    run = experiment(task).run(tmp_path / "run")
    page = report(run.directory).read_text()
    titles = {"rmse": "test RMSE", "r2": "test R2", "perplexity": "test perplexity", "accuracy": "test accuracy"}
    assert {name for name, title in titles.items() if title in page} == set(MEASURED[task])


@pytest.mark.parametrize(("task", "best"), [("regression", 0.3), ("multilabel", 1.0)])
def test_other_settings_are_compared_under_the_loss_of_the_labels(task, best, tmp_path):
    run = experiment(task, topology=ALONE, training={"extends": "paper"}).prepare()
    text = " ".join(explanation(run)["lines"])
    assert f"about {best:g} is best" in text
    assert at_equal_epsilon(run)
    assert all(each["scores"] > 0 for each in changes(run))
