"""Runs on variants of images: the ledger of a run without, the same bits anywhere, and refusals in one line."""

import numpy as np
import pytest

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.audit.run_audit import check_request
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from tests.noise_keys import keys_are, known
from tests.runtime.runs import assert_equal, recorded

TOPOLOGY = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
VARIANTS = {"flip": True, "crop": 1, "times": 3}


@pytest.fixture(autouse=True)
def _one_key():
    with keys_are(known):
        yield


def small(augment=VARIANTS, **settings):
    defaults = {
        "method": "h2fdp",
        "model": "softmax",
        "intervals": 3,
        "local_steps": 2,
        "batch_size": 8,
        "epsilon": 8.0,
    }
    defaults |= {
        "clip_scope": "record",
        "seed": 4,
        "accountant": "rdp",
        "calibration": "accounted",
        "training": "paper",
    }
    data = {"name": "digits", "augment": augment}
    return Experiment(TOPOLOGY, data, **{**defaults, **settings})


@pytest.mark.parametrize("scope", ["record", "batch"])
def test_the_ledger_is_that_of_a_run_without_variants_and_the_model_is_another(scope, tmp_path):
    plain, short = (
        small(each, clip_scope=scope, calibration="paper").run(tmp_path / str(at))
        for at, each in enumerate((None, ["flip"]))
    )
    assert (plain.directory / "privacy.jsonl").read_bytes() == (short.directory / "privacy.jsonl").read_bytes()
    assert plain.summary["model_sha256"] != short.summary["model_sha256"]


def test_one_variant_that_changes_nothing_is_the_run_without(tmp_path):
    one, none = (small(each).run(tmp_path / str(at)) for at, each in enumerate(({"times": 5}, None)))
    assert_equal(recorded(one), recorded(none))


@pytest.mark.parametrize("model", ["softmax", "cnn12"])
def test_engines_agree(model, tmp_path):
    models = [
        small(model=model, engine=engine, method="hfl", calibration="paper").run(tmp_path / engine).model.state_dict()
        for engine in ("loop", "stacked")
    ]
    for name, value in models[0].items():
        assert np.allclose(value, models[1][name], rtol=1e-4, atol=1e-5)


UNITS = {
    "dp-sgd": {"method": {"extends": "h2fdp", "privacy": "dp-sgd"}},
    "devices": {
        "method": {"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": 2.0}},
        "participation": {"rate": 0.6, "secret": True, "cover": True},
        "clip_scope": "batch",
        "calibration": "paper",
    },
    "faults": {"faults": {"device_dropout": 0.3, "straggler": {"probability": 0.5}}},
}


@pytest.mark.parametrize("name", UNITS)
def test_threads_and_a_resumed_run_have_the_same_bits(name, tmp_path):
    whole = small(**UNITS[name], runtime={"backend": "inline", "hosts": 1}).run(tmp_path / "whole")
    threads = small(**UNITS[name], runtime={"backend": "inline", "hosts": 3}).run(tmp_path / "threads")
    rows = []
    stops = RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 1)
    start_run(small(**UNITS[name]).prepare(), tmp_path / "run", stops)
    for run in (threads, h2fdp.resume(tmp_path / "run")):
        assert_equal(recorded(whole), recorded(run))


OBJECTIVE = {"name": "objective", "noise_multiplier": 0.01, "input_bound": 60.0}
PROXIMAL = {"extends": "hfl", "objective": {"name": "proximal", "mu": 2.0}, "privacy": OBJECTIVE}
ONE_UPLOAD = {"aggregate_every": None, "aggregations_per_interval": 0}
REFUSED = {
    "features": ({"model": "public-features"}, r"data.augment: images move .* found inputs of shape \(\d+,\)"),
    "far": ({"augment": {"crop": 8}}, r"data.augment.crop: .* expected at most 7, found 8"),
    "compiled": ({"engine": "compiled"}, r"runtime.engine: expected auto, stacked or loop, .* without data.augment"),
    "a word": ({"augment": ["flop"]}, r"data.augment.*found \"flop\"; did you mean `flip`"),
    "inputs": (
        {"method": PROXIMAL, "clip_scope": "batch", "clip_norm": None, "calibration": "paper", **ONE_UPLOAD},
        r"data.augment: noise by a bound on inputs knows records as they are; expected null",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_with_variants_is_refused_in_one_line(name):
    settings, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        small(**settings).prepare()


def test_tables_are_no_images(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(f"{at},{at % 7},{at % 2}\n" for at in range(200)))
    data = {"name": "table", "path": str(tmp_path / "t.csv"), "label": "y", "augment": ["flip"]}
    with pytest.raises(UserError, match=r"data.augment: images move .* found inputs of shape \(2,\)"):
        Experiment(TOPOLOGY, data, model="logistic", epsilon=8.0, method="h2fdp").prepare()


def test_an_audit_refuses_them():
    with pytest.raises(UserError, match=r"data.augment: canaries know records as they are; expected null"):
        check_request(small().prepare(), "cloud", 10, "dirac", 0.95)


def test_processors_compute_each_variant():
    network = TOPOLOGY.with_devices(cycles_per_record=1e6, cpu_ghz=1.0, capacitance=2e-28, seconds_per_step=0)
    plain, three = (
        Experiment(network, {"name": "digits", "augment": each}, model="softmax", method="hfl").prepare().costs.step
        for each in (None, VARIANTS)
    )
    assert three.seconds == pytest.approx(3 * plain.seconds)
    assert three.joules == pytest.approx(3 * plain.joules)
