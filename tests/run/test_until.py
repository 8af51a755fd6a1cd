"""`training.until`: the run ends after the first interval whose model has the accuracy, and says what is accounted."""

import pytest

from h2fdp import Experiment, Run, Topology, UserError, resume
from h2fdp.run import recorders


def small(method="hfl", **settings):
    topology = Topology.regular(edges=1, devices=2, trust=1, seed=1)
    fixed = {"intervals": 12, "local_steps": 4, "aggregate_every": 4, "batch_size": 8, "noise_key": "seed"}
    return Experiment(topology=topology, method=method, **{"data": "digits", **fixed, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return small().run(tmp_path_factory.mktemp("until") / "whole").metrics


def test_it_ends_after_the_first_interval_that_has_it_and_is_the_same_run_up_to_there(whole, tmp_path):
    at = 5
    target = whole["accuracy"][:at].max()
    first = int((whole["accuracy"] >= target).idxmax()) + 1
    run = small(until={"accuracy": float(target)}).run(tmp_path / "run")
    assert run.summary["state"] == "accuracy reached"
    assert run.metrics["accuracy"].tolist() == whole["accuracy"][:first].tolist()
    assert len(run.metrics) == first <= at


def test_a_run_that_was_killed_after_it_arrived_does_not_go_on(whole, tmp_path, monkeypatch):
    target = float(whole["accuracy"][:3].max())
    first = int((whole["accuracy"] >= target).idxmax()) + 1

    def killed(step, interval):
        if step == "results":
            raise KeyboardInterrupt

    monkeypatch.setattr(recorders, "listener", killed)
    with pytest.raises(KeyboardInterrupt):
        small(until={"accuracy": target}, checkpoint_every=1).run(tmp_path / "run")
    monkeypatch.undo()
    assert len(resume(tmp_path / "run").metrics) == first
    assert Run(tmp_path / "run").summary["state"] == "accuracy reached"


def test_the_account_says_that_the_planned_intervals_count(tmp_path):
    run = small("h2fdp", epsilon=20.0, calibration="paper", until={"accuracy": 0.01}).run(tmp_path / "run")
    assert run.summary["intervals"] == 1
    told = "the epsilon to rely on is that of all planned intervals"  # a controller may plan fewer than the file
    assert any(told in note for note in run.summary["privacy"]["notes"])
    assert any(told in note for note in run.privacy.notes)


OF_DEVICES = {"name": "digits", "test": 0.25, "partition": "iid"}
DP_SGD = {"privacy": {"name": "dp-sgd", "normalize": 50.0}}
NOISY = {"aggregate_every": None, "aggregations_per_interval": 0, "sampling_rate": 0.1, "batch_size": None}


@pytest.mark.parametrize(
    ("key", "method", "more"),
    [
        ("training.until", DP_SGD, {"until": {"accuracy": 0.3}, "epsilon": 8.0, "calibration": "accounted"}),
        ("method.schedule", {"privacy": "dp-sgd", "schedule": "experiments.noise_decay:NoiseDecay"}, {"epsilon": 8.0}),
    ],
)
def test_nothing_is_decided_by_test_records_of_devices_where_there_is_a_guarantee(key, method, more):
    with pytest.raises(UserError, match="the test records belong to devices here") as refused:
        small(method, **{**NOISY, **more, "data": OF_DEVICES}).prepare()
    assert [each.key for each in refused.value.problems] == [key]
    small("hfl", until={"accuracy": 0.3}, data=OF_DEVICES).prepare()
