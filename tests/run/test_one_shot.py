"""Runs of one message: what they choose, the noise that arrives, accounts by a closed form, kills, refusals."""

import json
import math

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from h2fdp import Experiment, UserError
from h2fdp.algorithms import one_shot
from h2fdp.audit.run_audit import audit
from h2fdp.models.architectures import SHARE
from h2fdp.run.explain import explanation
from tests.run.killed import assert_outlives_a_kill
from tests.run.ledgers import gaussian_epsilon, members

SIZE, CLASSES, DEVICES = 24, 10, 12
TRUST = {"nobody": {"trusted": 0}, "edges": {"trusted": 1}, "sum": {"relay": 1}}
FAULTS = {"device_dropout": 0.3}


def small(trust="nobody", training="auto", method="one-shot", size=SIZE, **settings):
    network = {"trust": TRUST[trust], "edges": [{"name": "e-{i}", "repeat": 3, "devices": {"count": 4}}]}
    given = {"data": "digits", "model": {"name": "public-features", "size": size}, "epsilon": 2.0, "delta": 1e-5}
    given |= {"calibration": "accounted", "accountant": "pld", "noise_key": "seed", "seed": 1}
    return Experiment(network, method=method, training=training, **given | settings)


def ledger(run):
    return [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]


def test_what_a_file_leaves_open_is_settled():
    network = {"trust": {"trusted": 0}, "edges": [{"name": "e-{i}", "repeat": 2, "devices": {"count": 3}}]}
    made = Experiment(
        network, data="digits", model="auto", training="auto", method="one-shot", epsilon=1.0, calibration="accounted"
    ).prepare()
    training, model = made.config.training, made.config.model
    assert (model.name, model.size, model.head) == ("public-features", 256, "discriminant")
    assert (training.intervals, training.local_steps, training.sampling_rate, training.step_size) == (1, 1, 1.0, 1.0)
    assert (training.clip_scope, training.weights) == ("record", "by-size")
    assert training.clip_norm == pytest.approx(math.sqrt(SHARE * 1.01 + (1 - SHARE) * 1.01**2), abs=1e-4)


def without_noise(setup):
    """(M,) the mean over all records of what each adds to class sums and second moments, cut to the clip norm."""
    x, y = setup.data.train.x[setup.data.order].astype(np.float64), setup.data.train.y[setup.data.order]
    row, column = np.triu_indices(x.shape[1])
    sums = np.zeros((len(x), CLASSES, x.shape[1]))
    sums[np.arange(len(x)), y] = SHARE**0.5 * x
    moments = (1 - SHARE) ** 0.5 * x[:, row] * x[:, column] * np.where(row == column, 1.0, 2**0.5)
    vectors = np.concatenate([sums.reshape(len(x), -1), moments], axis=1)
    lengths = np.linalg.norm(vectors, axis=1)
    return (vectors * np.minimum(1, setup.config.training.clip_norm / lengths)[:, None]).mean(axis=0)


@pytest.fixture
def averages(monkeypatch):
    """What the cloud received in each run."""
    received, apply = [], one_shot.Discriminant.apply

    def listening(self, model, uploaded):
        received.append(uploaded.average.double().numpy())
        return apply(self, model, uploaded)

    monkeypatch.setattr(one_shot.Discriminant, "apply", listening)
    return received


# Independent noises, each as large as one on the sum of all records' vectors: of devices, of edge servers, and of the
# network, where a peer knows its own share.
HOLDERS = {"nobody": DEVICES, "edges": 3, "sum": DEVICES / (DEVICES - 1)}


@pytest.mark.parametrize("trust", TRUST)
def test_the_noise_that_arrives_is_that_of_who_is_trusted(tmp_path, averages, trust):
    """By the closed form of one Gaussian. Right noise fails once in 10^6; two thirds and three halves of it always."""
    made = small(trust)
    setup, run = made.prepare(), made.run(tmp_path / "run")
    ratio = 1 / optimize.brentq(lambda mu: gaussian_epsilon(mu) - 2.0, 0.1, 2.0)
    worst = min(row["noise_std"] / row["sensitivity"] for row in ledger(run))
    assert worst == pytest.approx(ratio, rel=0.01)
    assert all(row["steps"] == 1 and row["sampling_rate"] == 1 for row in ledger(run))
    deviation = ratio * setup.config.training.clip_norm / setup.data.sizes.sum() * HOLDERS[trust] ** 0.5
    left = averages[0] + without_noise(setup)
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(left))

    def plausible(scale):
        return low < (left**2).sum() / (scale * deviation) ** 2 < high

    assert plausible(1.0)
    assert not plausible(2 / 3)
    assert not plausible(3 / 2)


def test_each_device_has_one_release_and_pays_for_one_message(tmp_path):
    run = small().run(tmp_path / "run")
    of_edges = [row for row in ledger(run) if row["observer"] == "edge"]
    devices = [(row["edge"], device) for row in of_edges for device in members(row["devices"])]
    assert len(devices) == len(set(devices)) == DEVICES
    numbers = CLASSES * (SIZE + 1) + (SIZE + 1) * (SIZE + 2) // 2
    assert run.metrics["bytes"].iloc[-1] == (DEVICES + 3) * 4 * numbers


def test_without_noise_the_run_has_the_discriminant_of_all_records(tmp_path):
    made = small(method={"extends": "one-shot", "privacy": "none"}, calibration=None)
    setup = made.prepare()
    x, y = (each[setup.data.order] for each in (setup.data.train.x, setup.data.train.y))
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x[:, :-1], y)
    right = (theirs.predict(setup.data.test.x[:, :-1]) == setup.data.test.y).mean()
    assert made.run(tmp_path / "run").metrics["accuracy"].iloc[-1] == pytest.approx(right, abs=0.005)


def weights_of(run):
    return run.model.model.weight.detach().numpy()


def test_a_clip_norm_scales_vectors_and_noise_alike_and_the_cloud_scales_them_back(tmp_path):
    """Below the length of a record's vector, whatever cuts it, but for float32; without noise for `normalized`, too."""
    whole = weights_of(small().run(tmp_path / "whole"))
    for norm in (0.1, 0.9):
        cut = weights_of(small(clip_norm=norm).run(tmp_path / str(norm)))
        assert np.abs(cut - whole).max() < 1e-3 * np.abs(whole).max()
    quiet = {"method": {"extends": "one-shot", "privacy": "none"}, "calibration": None}
    exact = small(**quiet).run(tmp_path / "quiet").metrics["accuracy"].iloc[-1]
    for norm in (0.1, "normalized"):
        cut = small(**quiet, clip_norm=norm).run(tmp_path / f"quiet {norm}").metrics["accuracy"].iloc[-1]
        assert cut == pytest.approx(exact, abs=0.005)


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.process
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, trust):
    made = small(trust, faults={} if trust == "sum" else FAULTS)
    assert_outlives_a_kill(made, tmp_path, "released", 0)


def test_what_is_explained_is_the_noise_in_sums():
    lines = explanation(small().prepare())["lines"]
    assert any("noise is in the sums that give the model" in line for line in lines)
    assert not any("scores" in line for line in lines)


def test_engines_agree(tmp_path):
    models = [
        small(runtime={"engine": name}).run(tmp_path / name).model.model.weight.detach() for name in ("loop", "stacked")
    ]
    assert models[0].numpy() == pytest.approx(models[1].numpy(), rel=1e-2, abs=1e-2 * float(models[0].abs().max()))


@pytest.mark.parametrize("observer", ["edge", "cloud", "peer"])
def test_an_audit_hears_what_nodes_send(observer):
    found = audit(small("edges" if observer != "edge" else "nobody").prepare(), observer, 16, noise_scale=1e-3)
    assert found.intervals == 1
    assert found.right == found.guesses > 0


ONE_STEP = "class-sums is one step of length 1 on all records of a device; expected"
REFUSED = {
    f"training.intervals: {ONE_STEP} 1, found 5": {"intervals": 5},
    f"training.local_steps: {ONE_STEP} 1, found 2": {"local_steps": 2},
    f"training.sampling_rate: {ONE_STEP} 1, found 0.5": {"sampling_rate": 0.5},
    f"training.batch_size: {ONE_STEP} null, found 32": {"batch_size": 32},
    f"training.step_size: {ONE_STEP} 1, found 0.1": {"step_size": 0.1},
    f"training.momentum: {ONE_STEP} 0, found 0.5": {"momentum": 0.5},
    "model: class-sums sends sums over public features": {"model": "softmax"},
    "model.head: class-sums sends sums": {"model": {"name": "public-features", "head": "mlp"}},
    "model.head: plain trains scores by their loss": {
        "method": "h2fdp",
        "model": {"name": "public-features", "head": "discriminant"},
    },
    "method.objective: class-sums has a part on the devices": {
        "method": {"extends": "one-shot", "objective": "ditto", "privacy": "none"},
        "calibration": "paper",
    },
    "method.server: class-sums has a part on the devices": {"method": {"extends": "one-shot", "server": "average"}},
    "privacy.correlated: class-sums is one message": {"correlated": {"kind": "banded-inverse", "bands": 4}},
    "method.schedule: class-sums is one message": {"method": {"extends": "one-shot", "schedule": "buffered"}},
    "method.upcycle: class-sums is one message": {"method": "upcycled-one-shot"},
    f"training.clip_scope: {ONE_STEP} record": {
        "clip_scope": "batch",
        "clip_norm": 1.0,
    },
    f"training.clip_norm: {ONE_STEP} at most 1.0065": {"clip_norm": 2.0},
    f"training.clip_norm: {ONE_STEP} 1.0065": {
        "method": {"extends": "one-shot", "privacy": "central"},
        "clip_norm": 0.1,
    },
    "data.public: class-sums is one message of each device, which no model enters": {
        "data": {"name": "digits", "public": 0.1}
    },
    "model.from: class-sums is one message of each device, which no model enters": {
        "model": {"name": "public-features", "from": "model.pt"}
    },
    "control.joules: class-sums is one message of each device": {"control": {"joules": 1.0}},
    "compression.device: class-sums is one message of each device, which no model enters": {
        "compression": {"device": {"rand_k": 0.1}}
    },
    "compression.device: class-sums is one message": {
        "compression": {"device": {"top_k": 0.1, "error_feedback": True}}
    },
    "compression.edge: class-sums is one message": {"compression": {"edge": {"top_k": 0.5}}},
}


@pytest.mark.parametrize(("text", "settings"), REFUSED.items())
def test_what_it_is_not_made_for_is_refused(text, settings):
    sections = ("method", "model", "correlated", "calibration", "data", "control", "compression")
    whole = {key: settings[key] for key in sections if key in settings}
    training = {"extends": "auto"} | {key: value for key, value in settings.items() if key not in whole}
    given = {"method": "one-shot", "model": "auto", "calibration": "accounted", "data": "digits"} | whole
    with pytest.raises(UserError) as refused:
        Experiment(epsilon=1.0, training=training, **given)
    assert [each for each in str(refused.value).splitlines() if text not in each] == []


def test_records_that_are_no_images_are_refused():
    with pytest.raises(UserError, match="public features are those of images"):
        Experiment(data="synthetic", method="one-shot", epsilon=1.0, model="auto", training="auto").prepare()


@pytest.mark.usefixtures("users_defaults")
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("compression: {device: {rand_k: 0.1}}", "compression.device"),
        ("control: {joules: 3}", "control.joules"),
        ("data: {name: digits, public: 0.1}", "data.public"),
        ("training: {clip_norm: 5}", "training.clip_norm"),
        ("training: {intervals: 5}", f"training.intervals: {ONE_STEP} 1, found 5"),
    ],
)
def test_what_one_message_cannot_do_has_its_line_and_key(h2fdp, tmp_path, line, key):
    file = tmp_path / "e.yaml"
    data = "" if line.startswith("data") else "data: digits\n"
    file.write_text(f"{line}\n{data}method: one-shot\ntopology: {{edges: [{{devices: 3}}]}}\n")
    done = h2fdp("run", file, "--dry-run")
    assert done.returncode == 2
    assert f"e.yaml:1: {key}" in done.stderr
    assert "Traceback" not in done.stderr


def test_rounded_messages_keep_the_accuracy(tmp_path):
    """Eight bits of a coordinate: rounding is right in the mean, and small compared with the noise."""
    plain, rounded = (
        small(compression=each).run(tmp_path / str(len(each))).metrics["accuracy"].iloc[-1]
        for each in ({}, {"device": {"quantise": 8}})
    )
    assert rounded > plain - 0.03
