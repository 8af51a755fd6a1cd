"""Runs with AdamW on devices: accounts are those of plain steps, and what has no bound is refused."""

from dataclasses import replace

import pytest
import yaml

from h2fdp import Experiment, Topology, UserError
from h2fdp.network.mobility import Mobility
from tests.run.test_resume import assert_outlives_a_crash

ADAMW = {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}
DP_SGD = {"extends": "h2fdp", "privacy": "dp-sgd"}
STEPS = {"extends": "h2fdp", "privacy": {"name": "local", "noise": "steps"}}
DEVICE = {"method": "h2fdp", "protects": "device", "clip_norm": 0.5}


def experiment(**settings):
    usual = {"data": "digits", "model": "softmax", "intervals": 4, "local_steps": 2, "batch_size": 4, "epsilon": 9.0}
    usual |= {"aggregate_every": 2, "calibration": "accounted", "noise_key": "seed", "checkpoint_every": 2}
    return Experiment(topology=Topology.regular(edges=2, devices=2, trust=0.5, seed=1), **{**usual, **settings})


@pytest.mark.parametrize("kind", [{"method": DP_SGD}, {"method": STEPS, "clip_scope": "record"}, DEVICE])
def test_the_account_is_that_of_plain_steps_of_the_same_size(kind, tmp_path):
    plain = experiment(**kind, step_size=0.01).run(tmp_path / "plain")
    run = experiment(**kind, optimizer=ADAMW).run(tmp_path / "adamw")
    ledgers = [(each.directory / "privacy.jsonl").read_bytes() for each in (plain, run)]
    assert ledgers[0] == ledgers[1]
    assert plain.summary["model_sha256"] != run.summary["model_sha256"]
    written = yaml.safe_load((run.directory / "config.yaml").read_text())
    assert written["training"]["optimizer"]["lr"] == 0.01
    again = Experiment.from_file(run.directory / "config.yaml").run(tmp_path / "again")
    assert again.summary["model_sha256"] == run.summary["model_sha256"]


def test_a_run_outlives_a_crash(tmp_path, monkeypatch):
    assert_outlives_a_crash(experiment(method=DP_SGD, optimizer="adamw"), tmp_path, monkeypatch)


KEPT = ADAMW | {"state": "kept"}


@pytest.mark.parametrize("kind", [{"method": DP_SGD}, {"method": STEPS, "clip_scope": "record"}, DEVICE])
def test_kept_moments_change_models_and_no_account(kind, tmp_path):
    fresh, kept = (
        experiment(**kind, optimizer=each).run(tmp_path / name) for name, each in (("fresh", ADAMW), ("kept", KEPT))
    )
    assert (fresh.directory / "privacy.jsonl").read_bytes() == (kept.directory / "privacy.jsonl").read_bytes()
    assert fresh.summary["model_sha256"] != kept.summary["model_sha256"]


def test_a_run_with_kept_moments_outlives_a_crash(tmp_path, monkeypatch):
    settings = {"faults": {"device_dropout": 0.3, "straggler": {"probability": 0.4}}, "participation": 0.5}
    assert_outlives_a_crash(experiment(method=DP_SGD, optimizer=KEPT, **settings), tmp_path, monkeypatch)


@pytest.mark.parametrize("hosts", [2, 3])
def test_threads_have_the_bits_of_one(hosts, tmp_path):
    one, more = (
        experiment(method=DP_SGD, optimizer=KEPT, runtime={"backend": "inline", "hosts": each}).run(
            tmp_path / str(each)
        )
        for each in (1, hosts)
    )
    assert one.summary["model_sha256"] == more.summary["model_sha256"]


def test_moments_that_stay_behind_are_refused_where_devices_move(tmp_path):
    moving = Topology.regular(edges=2, devices=2, trust=0.5, seed=1)
    moving = replace(moving, mobility=Mobility([(2, "edge-1/1", "edge-2")]))
    settings = {"data": "digits", "model": "softmax", "method": DP_SGD, "calibration": "accounted"}
    with pytest.raises(UserError, match=r"training.optimizer.state: devices change .*expected fresh.*found kept"):
        Experiment(moving, **settings, optimizer=KEPT).prepare()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"method": "h2fdp"},
            "training.optimizer: an upload of adamw is no sum of .*dp-sgd, or local",
        ),
        ({"method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}}, "any length"),
        ({"method": "fednova"}, "training.optimizer: what counts the gradients .*aggregation average"),
        ({"method": "scaffold"}, "training.optimizer: what counts the gradients .*remembers nothing"),
        ({"method": "fedavg", "momentum": 0.5}, "training.momentum: .*expected 0, as adamw has its own"),
        ({"method": "fedavg", "step_size": 0.1}, "optimizer.lr is the step size"),
        ({"method": "fedavg", "optimizer": {"name": "adam"}}, "expected one of adamw"),
        (
            {"method": "fedavg", "engine": "compiled"},
            "runtime.engine: .*without training.optimizer adamw",
        ),
        (
            {"method": {"extends": "hfl", "schedule": {"name": "buffered", "buffer": {"edge": 1}}}, "optimizer": KEPT},
            r"training.optimizer.state: .*expected fresh, or schedule fixed, found kept",
        ),
        (
            {"method": "fedavg", "optimizer": KEPT, "compression": {"device": {"top_k": 0.1, "error_feedback": True}}},
            r"compression.device.error_feedback: .*expected false, or state: fresh",
        ),
        ({"method": "fedavg", "warm_up": 4}, "training.warm_up: .*expected at most 3, found 4"),
    ],
)
def test_what_reckons_with_plain_steps_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        experiment(**{"optimizer": ADAMW, "calibration": "paper", **settings}).prepare()


def test_it_trains_without_noise(tmp_path):
    plain = {"method": "fedavg", "calibration": "paper", "clip_norm": None, "step_decay": "cosine", "warm_up": 1}
    plain |= {"data": {"name": "digits", "partition": "iid"}, "intervals": 8, "local_steps": 16, "batch_size": 16}
    run = experiment(**plain, optimizer={"name": "adamw", "lr": 0.01}).run(tmp_path / "run")
    assert run.summary["accuracy"] > 0.8
