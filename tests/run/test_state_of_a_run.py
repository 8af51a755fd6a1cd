"""Everything that a run computes from, changed between a crash and the resume: refused by name, or equal to the bit."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.records import noise_key
from h2fdp.run import identity, prepare
from h2fdp.runtime import host
from tests.run.test_resume import assert_same, crashing_at, upgraded

FILE = """
topology: {edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}
data: digits
method: h2fdp
model: softmax
training: {intervals: 4, local_steps: 3, batch_size: 4, step_size: 0.5, clip_norm: 1.0, aggregate_every: 3}
privacy: {epsilon: 20, calibration: paper, accountant: rdp, noise_key: seed}
runtime: {backend: inline, checkpoint_every: 2}
"""
NET = """
import os
import numpy as np
import torch
from torch import nn
from pathlib import Path
import scales

HERE = Path(__file__).parent
SCALE = float(os.environ.get(scales.VARIABLE, "1"))
TINY = 5e-324
OFFSET = 0.0

class Net(nn.Sequential):
    def __init__(self):
        base = nn.Linear(64, 8)
        base.load_state_dict(torch.load(HERE / "base.pt"))
        base.requires_grad_(False)
        with torch.no_grad():
            base.bias.add_(OFFSET)
        super().__init__(nn.Flatten(), base, nn.Tanh(), nn.Linear(8, 10))

    def forward(self, x):
        return super().forward(x * SCALE * scales.TWO)

def weighted(scores, labels):
    weights = torch.tensor([float(each) for each in (HERE / "weights.txt").read_text().split()])
    return nn.functional.cross_entropy(scores, labels, weight=weights, reduction="none")

def records(device):
    names = sorted((HERE / "words").iterdir())
    x = np.load(HERE / "records.npy") + len(names)
    return x[:8].astype("float32"), np.arange(8) % 10
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of a user's own parts."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "scales.py").write_text('TWO, VARIABLE = 2.0, "H2FDP_SCALE"\n')
    (tmp_path / "weights.txt").write_text("1\n" * 10)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "one.txt").touch()
    (tmp_path / "experiment.yaml").write_text(FILE)
    (tmp_path / "records.csv").write_text("x,y,label\n" + "".join(f"{n / 50},{n % 7},{n % 2}\n" for n in range(50)))
    (tmp_path / "trace.csv").write_text("interval,device,edge\n2,a/1,b\n")
    base(tmp_path, 0.1)
    np.save(tmp_path / "records.npy", np.random.default_rng(1).random((9, 64)))
    torch.save({"1.weight": torch.ones(10, 64)}, tmp_path / "started.pt")
    monkeypatch.delenv("H2FDP_SCALE", raising=False)
    return tmp_path


def base(folder, value):
    torch.save({"weight": torch.full((8, 64), value), "bias": torch.zeros(8)}, folder / "base.pt")


def put(name, text, place="net.py"):
    """A change of a file of the user's: `name` in it becomes `text`."""

    def change(folder, run, patch):
        file = folder / place
        assert name in file.read_text()
        file.write_text(file.read_text().replace(name, text))
        os.utime(file, (1, 1))  # whatever the clock's resolution

    return change


def other_package(folder, run, patch):
    other = identity.package_digests() | {"h2fdp/run/loop.py": "other"}
    patch.setattr(identity, "package_digests", lambda: other)


def other_variable(folder, run, patch):
    patch.setenv("H2FDP_SCALE", "3")


def unasked_variable(folder, run, patch):
    patch.setenv("H2FDP_OTHER", "3")
    patch.setenv("TZ", "Asia/Tokyo")
    patch.setenv("XDG_CACHE_HOME", "/proc/none")
    patch.setenv("HOME", "/proc/none")
    patch.chdir("/")
    identity.package_digests.cache_clear()


def other_hardware(folder, run, patch):
    other = host.hardware() | {"instructions": "NEON"}
    patch.setattr(identity, "hardware", lambda: other)


def elsewhere_offset(folder, run, patch):
    """A frozen parameter that changed by no file: as by a library that reads in ways that Python does not see."""
    import net

    patch.setattr(net, "OFFSET", 0.5)


def other_features(folder, run, patch):
    original = prepare.with_features

    def other(*given, **named):
        features = original(*given, **named)
        return replace(features, train=replace(features.train, x=features.train.x * np.float32(1.5)))

    patch.setattr(prepare, "with_features", other)


def of_a_library(name):
    return lambda folder, run, patch: upgraded(patch, {name: "99"})


def lost_key(folder, run, patch):
    key = run / "checkpoint" / "noise-key"
    key.unlink()
    patch.setattr(noise_key, "drawn", lambda: b"2" * 16)


OWN = {"model": '"net:Net"'}
SYSTEM = {"privacy.noise_key": "system"}
MOVING = {"topology": "moving.yaml", "privacy.calibration": "accounted"}
FEATURES = {"model": "{name: public-features, size: 16}"}
STATES = {
    "package code": ({}, other_package, "code (h2fdp/run/loop.py)"),
    "own code": (OWN, put("x * SCALE", "x * SCALE * 2"), "own code (net.py)"),
    "own code that it imports": (OWN, put("2.0", "3.0", "scales.py"), "own code (scales.py)"),
    "a tiny number in own code": (OWN, put("5e-324", "1e-323"), "own code (net.py)"),
    "comments": (OWN, put("OFFSET = 0.0", "OFFSET = 0.0  # none"), ""),
    "frozen parameters from a file": (
        OWN,
        lambda folder, run, patch: base(folder, 0.2),
        "base.pt), frozen parameters (",
    ),
    "frozen parameters": (OWN, elsewhere_offset, "frozen parameters (1.bias)"),
    "a variable that own code reads": (OWN, other_variable, "files and variables ($H2FDP_SCALE)"),
    "other variables, cache, home, folder": (OWN, unasked_variable, ""),
    "a file of a loss": ({"training.loss": '"net:weighted"'}, put("1", "2", "weights.txt"), "weights.txt)"),
    "a file of a data function": (
        {"data": '"net:records"'},
        lambda folder, run, patch: np.save(folder / "records.npy", np.ones((9, 64))),
        "records.npy) changed",
    ),
    "a folder that own code lists": (
        {"data": '"net:records"'},
        lambda folder, run, patch: (folder / "words" / "two.txt").touch(),
        "/words) changed",
    ),
    "a data file": (
        {"data": "{name: table, path: records.csv, label: label, test: 0.2}"},
        put("0.5,", "0.6,", "records.csv"),
        "data changed",
    ),
    "public features, cached or not": (FEATURES, unasked_variable, ""),
    "public features": (FEATURES, other_features, "data changed"),
    "weights on disk": (
        {"model": "{name: softmax, from: started.pt}"},
        lambda folder, run, patch: torch.save({"1.weight": torch.zeros(10, 64)}, folder / "started.pt"),
        "configuration (the file of model.from)",
    ),
    "the topology's file": (MOVING, lambda folder, run, patch: (folder / "moving.yaml").unlink(), ""),
    "the trace's file": (MOVING, put("2,", "3,", "trace.csv"), ""),
    "the topology of the run": (MOVING, put("a/1", "a/0", "run/topology.yaml"), "changed after the run wrote it"),
    "the configuration of the run": ({}, put("step_size: 0.5", "step_size: 0.6", "run/config.yaml"), "changed after"),
    "the noise key": (SYSTEM, lost_key, "noise key changed"),
    "versions": ({}, of_a_library("torch"), "versions (torch from "),
    "a library that computes nothing": ({}, of_a_library("ray"), ""),
    "hardware": ({}, other_hardware, "hardware (instructions)"),
}


@pytest.mark.parametrize("state", STATES)
def test_what_changed_is_named_or_changes_no_bit(folder, monkeypatch, state):
    settings, change, words = STATES[state]
    made = [f"{key}={value}" for key, value in settings.items()]
    monkeypatch.chdir(folder)
    (folder / "moving.yaml").write_text(
        "edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, devices: {count: 2}}]\n"
        "mobility: {trace: trace.csv}\n"
    )
    crashed = folder / "run"

    def experiment():
        return Experiment.from_file(folder / "experiment.yaml", made)

    with monkeypatch.context() as patch:
        crashing_at(patch, 3)
        with pytest.raises(RuntimeError, match="the host is gone"):
            experiment().run(crashed)
    whole = None if words else experiment().run(folder / "whole")
    with monkeypatch.context() as patch:
        change(folder, crashed, patch)
        if words:
            with pytest.raises(UserError) as refused:
                h2fdp.resume(crashed)
            assert words in str(refused.value)
        else:
            assert_same(whole, h2fdp.resume(crashed))
    identity.package_digests.cache_clear()


HIDDEN = """
import os
import numpy as np
from torch import nn

def drifting(scores, labels):
    name = f"H2FDP_{'scale'.upper()}"  # which is no literal
    by = float(os.environ.get(name, "1"))
    return by * nn.functional.cross_entropy(scores, labels, reduction="none")
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interval_that_comes_out_otherwise_is_recorded_by_no_digest_and_released_under_no_old_noise(
    folder, monkeypatch, fresh
):
    (folder / "hidden.py").write_text(HIDDEN)
    monkeypatch.chdir(folder)
    crashed, settings = folder / "run", ["training.loss=hidden:drifting", "runtime.checkpoint_every=9"]

    def experiment():
        return Experiment.from_file(folder / "experiment.yaml", settings)

    with monkeypatch.context() as patch:
        crashing_at(patch, 3)
        with pytest.raises(RuntimeError, match="the host is gone"):
            experiment().run(crashed)
    ledger = (crashed / "privacy.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setenv("H2FDP_SCALE", "3")
        with pytest.raises(UserError, match="interval 1 did not come out as it did before"):
            h2fdp.resume(crashed)
        assert (crashed / "privacy.jsonl").read_bytes() == ledger
        if fresh:
            run = h2fdp.resume(crashed, fresh_noise=True)
            assert run.summary["fresh_from"] == [1]
            again = (crashed / "privacy.jsonl").read_bytes()
            assert again.startswith(ledger)
            assert again.count(b"\n") == 2 * ledger.count(b"\n")  # four intervals were lost, and are done again
    if not fresh:
        assert_same(experiment().run(folder / "whole"), h2fdp.resume(crashed))


def test_a_file_that_is_mapped_to_be_read_and_written_is_one_that_was_read(folder, monkeypatch):
    (folder / "mapped.py").write_text(
        "import numpy as np\n\ndef records(device):\n    x = np.memmap('map.bin', np.float32, shape=(8, 64))\n"
        "    return np.array(x), np.arange(8) % 10\n"
    )
    monkeypatch.chdir(folder)
    np.random.default_rng(1).random((8, 64), dtype=np.float32).tofile(folder / "map.bin")
    with monkeypatch.context() as patch:
        crashing_at(patch, 3)
        with pytest.raises(RuntimeError, match="the host is gone"):
            Experiment.from_file(folder / "experiment.yaml", ["data=mapped:records"]).run(folder / "run")
    np.zeros((8, 64), np.float32).tofile(folder / "map.bin")
    with pytest.raises(UserError, match=r"map\.bin"):
        h2fdp.resume(folder / "run")


def test_the_checkpoints_of_another_run_repeat_nothing_under_its_noise_key(folder, monkeypatch):
    monkeypatch.chdir(folder)
    settings = ["privacy.noise_key=system", "runtime.checkpoint_every=9"]
    for name in ("run", "other"):
        with monkeypatch.context() as patch:
            crashing_at(patch, 3)
            patch.setattr(noise_key, "drawn", lambda name=name: name[:1].encode() * 16)
            with pytest.raises(RuntimeError, match="the host is gone"):
                Experiment.from_file(folder / "experiment.yaml", settings).run(folder / name)
    shutil.rmtree(folder / "run" / "checkpoint")
    shutil.copytree(folder / "other" / "checkpoint", folder / "run" / "checkpoint")
    with pytest.raises(UserError, match="its noise key is that of another run"):
        h2fdp.resume(folder / "run")
    run = h2fdp.resume(folder / "run", fresh_noise=True)
    assert run.summary["fresh_from"] == [1]
