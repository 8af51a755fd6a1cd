"""Whole runs with one secure sum over the network: chosen settings, accounts before and after, kills, reports."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import torch

import h2fdp
from h2fdp import Experiment
from h2fdp.audit.run_audit import audit
from h2fdp.reports.run_view import read_runs
from h2fdp.run import recorders
from h2fdp.run.explain import explanation
from h2fdp.run.forecast import noise_on_model
from h2fdp.run.live_accounts import notes
from h2fdp.run.preview import estimate, privacy_report
from h2fdp.run.privacy import RunPrivacy
from tests.noise_keys import keys_are, known

RELAYS = {"trust": {"relay": 1}, "edges": [{"name": "e-{i}", "repeat": 4, "devices": {"count": 5}}]}
FAULTS = {"device_dropout": 0.3}


def experiment(network=RELAYS, tolerance=None, training="auto", objective="plain", **settings):
    method = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": tolerance or {}}}
    given = {"data": "digits", "epsilon": 2.0, "training": training, "seed": 1}
    given |= {"calibration": "accounted", "accountant": "pld"}
    return Experiment(network, method=method | {"objective": objective}, **given | settings)


def trusting(level):
    return {**RELAYS, "trust": {"trusted": float(level == "trusted")}}


def test_what_is_not_stated_is_chosen_for_the_noise_of_one_sum():
    """The noise in the last model is that of N / (N - 1) holders where it was that of the edge servers, or devices."""
    one = experiment().prepare()
    training = one.config.training
    assert (training.intervals, training.local_steps, training.aggregate_every) == (30, 1, 1)
    assert noise_on_model(one).noise_std > 0
    per_step = {
        trust: noise_on_model(experiment(trusting(trust)).prepare()).per_step ** 2 for trust in ("trusted", "untrusted")
    }
    per_step["relay"] = noise_on_model(one).per_step ** 2
    assert per_step["untrusted"] / per_step["relay"] == pytest.approx(19, rel=0.02)
    assert per_step["trusted"] / per_step["relay"] == pytest.approx(4 * 19 / 20, rel=0.02)


def test_no_chosen_edge_server_averages_between_two_models_of_the_cloud():
    for objective, every in (("plain", 4), ("proximal", None)):  # for the second there is no rule
        rounds = {"extends": "auto", "local_steps": 4}
        training = experiment(training=rounds, objective=objective).prepare().config.training
        assert (training.local_steps, training.aggregate_every) == (4, every)


SUMS = [{"colluding": 1, "dropouts": 0.4}, {"rounding": 24, "dropouts": 0.4}]


@pytest.mark.parametrize(("tolerance", "faults"), [({}, {}), *product(SUMS, [{}, FAULTS])])
def test_calibrated_noise_meets_the_target_of_every_observer(tolerance, faults):
    report = privacy_report(experiment(tolerance=tolerance, faults=faults).prepare())
    found = {observer: numbers["pld"] for observer, numbers in report["observers"].items()}
    assert max(found.values()) <= 2.0 + 1e-9
    assert found["peer"] == pytest.approx(2.0, rel=0.01)
    assert found["peer"] > found["edge"] == found["cloud"] == found["public"]


def test_a_run_that_is_killed_goes_on_to_the_same_bits_and_its_files_say_what_it_was(tmp_path):
    def run(out):
        with keys_are(known):
            return experiment(tolerance={"colluding": 1, "dropouts": 8}, faults=FAULTS, intervals=4).run(out)

    def fail(step, interval):
        if (step, interval) == ("released", 2):
            raise ConnectionError("the host is gone")

    whole = run(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorders, "listener", fail)
        with pytest.raises(ConnectionError):
            run(tmp_path / "killed")
    again = h2fdp.resume(tmp_path / "killed")
    for name in ("privacy.jsonl", "model.pt", "devices.parquet", "config.yaml", "topology.yaml"):
        assert (again.directory / name).read_bytes() == (whole.directory / name).read_bytes(), name
    pd.testing.assert_frame_equal(
        again.metrics.drop(columns="wall_s"), whole.metrics.drop(columns="wall_s"), check_exact=True
    )
    assert h2fdp.check(whole.directory).problems == []

    counted = {key: whole.summary[key] for key in ("devices", "edges", "relay_edges", "trusted_edges")}
    assert counted == {"devices": 20, "edges": 4, "relay_edges": 4, "trusted_edges": 0}
    rows = [json.loads(line) for line in (whole.directory / "privacy.jsonl").read_text().splitlines()]
    assert {row["edge"] for row in rows} == {"cloud"}
    devices = pyarrow.parquet.read_table(whole.directory / "devices.parquet").to_pydict()
    assert set(devices["trust"]) == {"relay"}
    assert devices["device"][5] == "e-2/1"
    after, (view,) = RunPrivacy(whole.directory), read_runs([whole.directory])
    for observer in ("edge", "peer", "cloud", "public"):
        epsilon = whole.privacy.epsilon(observer=observer)
        assert after.accounts.worst(observer, 1e-5) == view.accounts.worst(observer, 1e-5)
        assert 0 < epsilon <= 2.0
    assert view.topology.edges == 4
    assert view.topology.relayed


def test_explain_says_what_each_observer_sees():
    run = experiment().prepare()
    seen = {observer: each["sees"] for observer, each in explanation(run)["observers"].items()}
    assert seen == {
        "edge": "masked vectors, and global models",
        "peer": "averages and global models, and knows its own noise",
        "cloud": "the noisy sum of all devices",
        "public": "global models",
    }
    plan = estimate(run)
    assert (plan["edge servers"], plan["relays"], plan["trusted"], plan["secure sums"]) == (4, 4, 0, 1)
    assert {row["added_by"] for row in plan["noises"]} == {"the devices, each a share"}
    assert any("secure sums" in note for note in notes(run))


@pytest.mark.parametrize("observer", ["edge", "peer", "cloud", "public"])
def test_an_audit_refutes_the_noise_that_is_off_and_keeps_the_right_one(observer):
    """At 95 %."""
    rounds = {"extends": "paper", "intervals": 30, "local_steps": 2, "aggregate_every": 2, "batch_size": 10}
    run = experiment(training=rounds, model="softmax", epsilon=1.0).prepare()
    kept = audit(run, observer, canaries=200)
    assert kept.epsilon_lower <= kept.accounted("pld")
    assert audit(run, observer, canaries=200, noise_scale=0.02).epsilon_lower > kept.accounted("pld")


@pytest.mark.parametrize("method", ["hfl", "hfl-dp", {"extends": "h2fdp", "topology": "star"}, "fedavg"])
def test_where_nothing_is_summed_in_secret_relays_are_untrusted_to_the_bit(tmp_path, method):
    models = []
    for trust in ("relay", "untrusted"):
        network = {"edges": [{"name": "e-{i}", "repeat": 2, "trust": trust, "devices": {"count": 3}}]}
        rounds = {"extends": "paper", "intervals": 2, "local_steps": 2, "aggregate_every": 1}
        given = {"data": "digits", "model": "softmax", "training": rounds, "seed": 1, "noise_key": "seed"}
        run = Experiment(network, method=method, **given).run(tmp_path / trust)
        models.append(torch.load(run.directory / "model.pt", weights_only=True))
        assert np.isfinite(run.metrics["loss"]).all()
    assert all(torch.equal(*pair) for pair in zip(*(each.values() for each in models), strict=True))
