"""Deciles and the worst tenth of devices at each evaluation, against predictions by hand."""

import numpy as np
import pytest
import torch

import h2fdp
from h2fdp import Experiment, Topology
from h2fdp.data.federated import label_counts
from h2fdp.reports.run_view import RunView
from h2fdp.reports.writing import published

NETWORK = Topology.regular(edges=3, devices=4)
COLUMNS = [f"device_accuracy_p{each}0" for each in range(1, 10)]


def experiment(**settings):
    known = {"method": "hfl", "intervals": 4, "local_steps": 2, "model": "softmax", "evaluate_devices": True}
    return Experiment(NETWORK, settings.pop("data", "digits"), **{**known, **settings})


def hits(run, data):
    """Of each test record, whether the last model is right."""
    inputs = torch.from_numpy(np.asarray(data.test.x * data.scaling.scale + data.scaling.shift, dtype=np.float32))
    return (run.model(inputs).argmax(dim=1).numpy() == data.test.y).astype(float)


def by_hand(accuracy):
    ordered = sorted(accuracy)
    return np.percentile(accuracy, range(10, 100, 10)).tolist(), np.mean(ordered[: int(np.ceil(len(ordered) / 10))])


def test_a_device_is_tested_on_all_records_at_the_frequencies_of_its_labels(tmp_path):
    made = experiment()
    run, data = made.run(tmp_path / "run"), made.prepare().data
    right, shares = hits(run, data), label_counts(data) / data.sizes[:, None]
    of_label = np.array([right[data.test.y == label].mean() for label in range(10)])
    deciles, worst = by_hand(shares @ of_label)
    assert run.metrics[COLUMNS].iloc[-1].tolist() == pytest.approx(deciles, abs=1e-9)
    assert run.metrics["device_accuracy_worst_tenth"].iloc[-1] == pytest.approx(worst, abs=1e-9)
    assert run.metrics[COLUMNS].notna().all().all()


def test_a_device_that_has_test_records_is_tested_on_these(tmp_path):
    made = experiment(data={"name": "digits", "test": 0.25, "partition": {"dirichlet": 0.3}}, evaluate_every=3)
    run, data = made.run(tmp_path / "run"), made.prepare().data
    right = hits(run, data)
    deciles, worst = by_hand([right[data.test_owners == device].mean() for device in np.unique(data.test_owners)])
    assert run.metrics[COLUMNS].iloc[-1].tolist() == pytest.approx(deciles, abs=1e-9)
    assert run.metrics["device_accuracy_worst_tenth"].iloc[-1] == pytest.approx(worst, abs=1e-9)
    assert run.metrics["device_accuracy_p50"].notna().tolist() == [False, False, True, True], "at evaluations alone"


def test_training_has_the_same_bits_and_no_such_columns_without(tmp_path):
    with_them, without = (experiment(evaluate_devices=wanted).run(tmp_path / str(wanted)) for wanted in (True, False))
    assert (with_them.directory / "model.pt").read_bytes() == (without.directory / "model.pt").read_bytes()
    assert not set(COLUMNS) & set(without.metrics.columns)


def test_personal_models_are_spread_too(tmp_path):
    run = experiment(method="pfedme").run(tmp_path / "run")
    found = run.metrics.iloc[-1]
    assert found["device_accuracy_p10"] <= found["personal_accuracy"] <= found["device_accuracy_p90"] + 0.1
    assert found["device_accuracy_worst_tenth"] <= found["device_accuracy_p10"]


def test_a_page_of_a_run_with_a_guarantee_leaves_them_out(tmp_path):
    run = experiment(method="h2fdp", epsilon=10.0).run(tmp_path / "run")
    view = RunView.read(run.directory, "run")
    assert set(COLUMNS) <= set(view.metrics)
    assert not set(COLUMNS) & set(published(view).metrics)
    h2fdp.report(run.directory)


def test_a_page_of_a_run_with_a_guarantee_leaves_the_scores_of_own_models_out(tmp_path):
    run = experiment(method={"extends": "mr-mtl", "privacy": "dp-sgd"}, epsilon=10.0).run(tmp_path / "run")
    view = RunView.read(run.directory, "run")
    own = {"personal_accuracy", "personal_loss"}
    assert own <= set(view.metrics)
    page = published(view)
    assert not own & set(page.metrics)
    assert "personal_" not in h2fdp.report(run.directory).read_text()
    assert page.summary["accuracy"] == view.summary["accuracy"], "test records are public"
