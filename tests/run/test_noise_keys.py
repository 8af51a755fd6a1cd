"""What protects privacy is drawn by a key of the operating system; what is public by the seed, as it always was."""

import io
import json
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
import torch

import h2fdp
from h2fdp import Experiment, Topology, report
from h2fdp.cli.main import main
from h2fdp.records import noise_key
from h2fdp.records.directory import RunDirectory
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.streams import Streams
from tests.noise_keys import DRAWN, KEY, keys_are, known

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
PUBLIC = {
    "participation",
    "faults",
    "outage",
    "path loss",
    "fading",
    "model",
    "partition",
    "public split",
    "validation split",
    "trust",
    "distance",
}
STAR = {"aggregate_every": None, "aggregations_per_interval": 0}
FAULTS = {"device_dropout": 0.2, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}


@pytest.fixture(autouse=True)
def _keys_of_the_system():
    with keys_are(DRAWN):
        yield


def small(method="h2fdp", topology=NETWORK, **settings):
    defaults = {"intervals": 4, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 2}
    return Experiment(topology=topology, data="digits", method=method, **{**defaults, **settings})


def stopped(path, **settings):
    """A run that was stopped after two intervals."""
    rows = []
    return start_run(
        small(**settings).prepare(), path, RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 2)
    )


def weights(run):
    return torch.cat([value.flatten() for value in run.model.state_dict().values()])


def test_two_runs_of_one_file_share_what_is_public_and_no_noise(tmp_path):
    settings = {"participation": 0.5, "faults": FAULTS}
    one, other = (small(**settings).run(tmp_path / name) for name in ("one", "other"))
    public = ["participants", "energy_j", "delay_s", "clock_s", "epsilon_cloud"]
    pd.testing.assert_frame_equal(one.metrics[public], other.metrics[public], check_exact=True)
    for name in ("topology.yaml", "config.yaml", "privacy.jsonl"):
        assert (one.directory / name).read_bytes() == (other.directory / name).read_bytes()
    assert not torch.equal(weights(one), weights(other))
    assert one.summary["noise_key_id"] != other.summary["noise_key_id"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("h2fdp", {"participation": 0.5, "faults": FAULTS}),
        ("h2fdp", {"sampling": "fixed"}),
        ("hfl-dp", {}),
        ("h2fdp", {"local_epochs": 1, "local_steps": None, **STAR}),
        ("h2fdp-adaptive", {"control": {"tau_max": 6}}),
        ({"extends": "h2fdp", "privacy": "dp-sgd"}, {}),
        ({"extends": "fedavg", "privacy": "central"}, STAR),
        ({"extends": "hfl-dp", "privacy": "output"}, {}),
        (
            {
                "extends": "fedavg",
                "privacy": {"name": "objective", "input_bound": 100, "noise_multiplier": 0.01},
                "objective": "proximal",
            },
            STAR,
        ),
    ],
)
def test_only_what_is_public_is_drawn_without_the_key(tmp_path, monkeypatch, method, settings):
    drawn = {True: set(), False: set()}
    original = Streams.key

    def noted(self, node, purpose, interval=0, slot=0):
        drawn[bool(self.secret)].add(purpose)
        return original(self, node, purpose, interval, slot)

    monkeypatch.setattr(Streams, "key", noted)
    small(method, **settings).run(tmp_path / "run")
    assert drawn[False] <= PUBLIC
    assert not drawn[True] & PUBLIC
    assert any(purpose.startswith("noise-") for purpose in drawn[True])
    assert drawn[True] & {"batch", "epoch"}


def test_a_key_of_the_seed_gives_the_bits_of_the_seed_and_is_marked(tmp_path, capsys, monkeypatch):
    one, other = (small(noise_key="seed").run(tmp_path / name) for name in ("one", "other"))
    assert torch.equal(weights(one), weights(other))
    with keys_are(lambda: b""):
        assert torch.equal(weights(one), weights(small().run(tmp_path / "third")))
    assert (one.summary["noise_key"], one.summary["noise_key_id"]) == ("seed", None)
    for notes in (one.summary["privacy"]["notes"], one.privacy.notes):
        assert any("an attacker who guesses the seed can remove it" in note for note in notes)
    assert not any("noise key" in note for note in h2fdp.Run(tmp_path / "third").summary["privacy"]["notes"])
    monkeypatch.setattr("sys.argv", ["h2fdp", "runs", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "(privacy.noise_key: seed): one, other" in " ".join(capsys.readouterr().out.split())


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


@pytest.mark.parametrize("key", ["seed", "system"])
def test_the_noise_of_a_published_model_is_found_by_guessing_seeds_and_by_no_such_guess_under_a_key(tmp_path, key):
    """M = 650 coordinates: of another noise the cosine is beyond 0.25 with probability below 1e-9."""
    topology = Topology.regular(edges=1, devices=3, trust=0.0, seed=2)
    training = {"intervals": 1, "aggregate_every": None, "aggregations_per_interval": 0, "seed": 17}
    made = small(topology=topology, noise_key=key, epsilon=2.0, **training)
    run = made.run(tmp_path / "run")
    moved = made.prepare().initial - weights(run)
    names = [f"{subnet.name}/{row + 1}" for subnet in topology.subnets for row in range(3)]

    def guessed(seed):
        draws = [Streams(seed).open(name, "noise-global", 0, 4) for name in names]
        return torch.from_numpy(sum(draw.standard_normal(len(moved), dtype=np.float32) for draw in draws))

    found = [seed for seed in range(40) if cosine(moved, guessed(seed)) > 0.25]
    assert found == ([17] if key == "seed" else [])


def test_the_key_is_its_owners_beside_the_checkpoints_until_the_run_is_complete(tmp_path):
    with keys_are(known):
        run = stopped(tmp_path / "run", runtime={"checkpoint_every": 1})
    directory = RunDirectory(run.directory)
    assert noise_key.stored(directory) == KEY
    assert stat.S_IMODE(directory.noise_key.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.checkpoints.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in directory.checkpoints.glob("*.ckpt")} == {0o600}
    h2fdp.resume(run.directory)
    assert not directory.noise_key.exists()


def test_a_run_goes_on_under_its_own_key(tmp_path):
    with keys_are(known):
        whole = small().run(tmp_path / "whole")
        stopped(tmp_path / "run")
    assert torch.equal(weights(h2fdp.resume(tmp_path / "run")), weights(whole))


@pytest.mark.parametrize("damage", ["gone", "cut", "no key"])
def test_where_the_key_is_lost_everything_is_drawn_afresh_and_both_releases_count(
    tmp_path, capsys, monkeypatch, damage
):
    """Three intervals' rows are on disk, the checkpoint holds two: the third is released a second time."""
    path = stopped(tmp_path / "run", runtime={"checkpoint_every": 1}).directory
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("h2fdp.run.recorders.listener", fails_at("released", 2))
        with pytest.raises(RuntimeError, match="gone"):
            h2fdp.resume(path)
    file = RunDirectory(path).noise_key
    if damage == "gone":
        file.unlink()
    else:
        file.write_text(file.read_text()[:20] if damage == "cut" else "x" * 32)
    run = h2fdp.resume(path, fresh_noise=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "the run's noise key changed since it began: noise and batches are drawn afresh" in said
    assert run.summary["fresh_from"] == [3]
    rows = pd.DataFrame(json.loads(line) for line in (path / "privacy.jsonl").read_text().splitlines())
    count = rows[rows["observer"] == "cloud"].groupby("interval").size()
    assert count[3] == 2 * count[4]


def fails_at(step, interval):
    def fail(reached, at):
        if (reached, at) == (step, interval):
            raise RuntimeError("the host is gone")

    return fail


def stored_digest(path):
    (newest, *_) = sorted((path / "checkpoint").glob("*.ckpt"), reverse=True)
    return torch.load(io.BytesIO(newest.read_bytes().split(b"\n", 2)[2]), weights_only=True)["digest"]["data"]


def test_no_file_has_a_digest_of_the_records_by_which_a_guess_of_one_is_confirmed(tmp_path):
    """An adversary who knows all records but one tries the last: the digest of equal data differs from run to run."""
    one, other = (small().run(tmp_path / name) for name in ("one", "other"))
    fingerprint = small().prepare().data.fingerprint()
    assert one.summary["data_fingerprint"] is None
    for path in one.directory.rglob("*"):
        assert path.is_dir() or fingerprint.encode() not in path.read_bytes(), path
    assert stored_digest(one.directory) != stored_digest(other.directory)
    assert small("hfl").run(tmp_path / "open").summary["data_fingerprint"] == fingerprint


def test_runs_of_a_sweep_have_keys_of_their_own_and_keep_them(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "name: small\ntopology: {edges: [{name: a, devices: {count: 2}}]}\ndata: digits\n"
        "training: {intervals: 3, local_steps: 2, batch_size: 4}\nsweep: {seed: [1], privacy.epsilon: [1, 20]}\n"
    )
    found = h2fdp.sweep(file, out=tmp_path / "out", jobs=1)
    ids = {run.summary["noise_key_id"] for run in found.runs.values()}
    assert len(ids) == 2
    first = next(iter(found.runs.values())).directory
    shutil.rmtree(first)
    again = h2fdp.sweep(file, out=tmp_path / "out", jobs=1)
    assert len(ids & {run.summary["noise_key_id"] for run in again.runs.values()}) == 1


def test_no_other_file_has_the_key(tmp_path):
    with keys_are(known):
        run = stopped(tmp_path / "run")
    report(run.directory)
    for path in run.directory.rglob("*"):
        if path.is_file() and path.name != "noise-key":
            text = path.read_bytes()
            assert KEY not in text, path
            assert KEY.hex().encode() not in text, path
    assert KEY.hex() not in repr(small().prepare().keyed(KEY))
    assert repr(KEY) not in repr(small().prepare().keyed(KEY))


def test_a_setup_that_is_run_twice_draws_two_keys(tmp_path):
    setup = small().prepare()
    one, other = (start_run(setup, tmp_path / name) for name in ("one", "other"))
    assert len({setup.noise_key, *(run.summary["noise_key_id"] for run in (one, other))}) == 3
    assert not torch.equal(weights(one), weights(other))
