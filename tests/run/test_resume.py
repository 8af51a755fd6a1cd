"""A run that was killed goes on to the same bits; where bits would differ, to fresh noise that is accounted for too."""

import errno
import json
import os
import re
import resource
import shutil
import sys
from contextlib import contextmanager, nullcontext

import pandas as pd
import pytest
import torch

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.cli.main import main
from h2fdp.records.directory import RunDirectory, _version
from h2fdp.records.json_lines import write_sums
from h2fdp.run import identity, recorders
from h2fdp.run.loop import resume_run, start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.streams import Streams
from tests.noise_keys import keys_are, known
from tests.run.killed import POINTS, experiment, killed_runs

FILES = ("privacy.jsonl", "control.jsonl", "model.pt", "devices.parquet", "config.yaml", "topology.yaml")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing interrupted, under the key of those that were killed."""
    with keys_are(known):
        return experiment().run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run for each point at which it was killed."""
    return killed_runs(tmp_path_factory.mktemp("killed"))


@pytest.fixture
def left(killed, tmp_path):
    """A copy of a run that was killed in its eighth interval: checkpoints after 3 and 6, rows of 7 and 8 beyond."""
    return shutil.copytree(killed["rows on disk, interval not begun"], tmp_path / "left")


def assert_same(one, other):
    pd.testing.assert_frame_equal(
        one.metrics.drop(columns="wall_s"), other.metrics.drop(columns="wall_s"), check_exact=True
    )
    for name in FILES:
        assert (one.directory / name).read_bytes() == (other.directory / name).read_bytes(), name
    kept = ("state", "intervals", "accuracy", "best_accuracy", "energy_j", "noise_std", "privacy", "fresh_from")
    assert [one.summary[key] for key in kept] == [other.summary[key] for key in kept]


def ledger(path):
    return [json.loads(line) for line in (path / "privacy.jsonl").read_text().splitlines()]


def crashing_at(monkeypatch, interval):
    """A fault of the machine inside an interval, counted from 0."""

    def fail(step, at):
        if (step, at) == ("released", interval):
            raise RuntimeError("the host is gone")

    monkeypatch.setattr(recorders, "listener", fail)


def assert_outlives_a_crash(experiment, folder, monkeypatch):
    """Without an interruption, and with a crash in the fourth interval and a resume, all is the same."""
    whole = experiment.run(folder / "whole")
    with monkeypatch.context() as patch:
        crashing_at(patch, 3)
        with pytest.raises(RuntimeError):
            experiment.run(folder / "crashed")
    assert_same(whole, h2fdp.resume(folder / "crashed"))


REMEMBERING = ["scaffold", "upcycled-pfedme", {"extends": "upcycled-h2fdp", "server": "momentum"}]
PLACEMENTS = [
    {"name": "dp-sgd", "noise_multiplier": 1.5},
    {"name": "central", "noise_multiplier": 2.0},
    {"name": "devices", "noise_multiplier": 2.0},
    "output",
    {"name": "objective", "noise_multiplier": 0.01, "input_bound": 60.0},
]


@pytest.mark.parametrize(
    ("method", "times"),
    [(method, {"aggregate_every": 2, "participation": 0.7}) for method in REMEMBERING]
    + [
        (
            {"extends": "h2fdp", "privacy": privacy, "objective": {"name": "proximal", "mu": 2.0}},
            {"aggregations_per_interval": 0},
        )
        for privacy in PLACEMENTS
    ],
)
def test_memories_and_the_noise_of_every_placement_outlive_a_crash(method, times, tmp_path, monkeypatch):
    made = Experiment(
        topology=Topology.regular(edges=2, devices=3, trust=0.5, seed=1),
        data="digits",
        method=method,
        training={"intervals": 5, "local_steps": 4, "batch_size": 4, **times},
        faults={"device_dropout": 0.2, "straggler": {"probability": 0.3}},
        runtime={"backend": "inline", "checkpoint_every": 2},
        epsilon=20.0,
    )
    whole = made.run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        crashing_at(patch, 3)
        with pytest.raises(RuntimeError):
            made.run(tmp_path / "crashed")
    assert_same(whole, h2fdp.resume(tmp_path / "crashed"))


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_goes_on_to_the_same_bits(whole, killed, tmp_path, point):
    path = shutil.copytree(killed[point], tmp_path / "run")
    assert_same(h2fdp.resume(path), whole)
    assert not list(path.rglob("*.part"))


def test_a_clean_stop_does_nothing_twice(whole, tmp_path):
    path, rows = tmp_path / "run", []
    with keys_are(known):
        start_run(experiment().prepare(), path, RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 5))
    assert h2fdp.Run(path).summary["state"] == "interrupted"
    run = h2fdp.resume(path, on_interval=rows.append)
    assert [row["interval"] for row in rows] == list(range(1, len(whole.metrics) + 1))
    assert_same(run, whole)


def test_where_it_runs_changes_no_bit_and_nothing_else_can_be_changed(whole, left):
    for setting in ("training.intervals=50", "runtime.engine=loop", "seed=3"):
        with pytest.raises(UserError, match=r"only runtime \(except engine\) and tracking can change"):
            h2fdp.resume(left, settings=[setting])
    assert_same(h2fdp.resume(left, settings=["runtime.hosts=1"]), whole)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data[:200] + b"x" + data[201:]], ids=["cut", "changed"]
)
def test_a_damaged_checkpoint_is_left_out(whole, left, capsys, damage):
    newest = max((left / "checkpoint").glob("*.ckpt"))
    newest.write_bytes(damage(newest.read_bytes()))
    run = h2fdp.resume(left)
    assert "000000006.ckpt is damaged" in " ".join(capsys.readouterr().err.split())
    assert_same(run, whole)


def drawn(monkeypatch, action):
    """The keys of the streams of noise and of batches that are opened meanwhile, by interval."""
    keys = {}
    original = Streams.key

    def noted(self, node, purpose, interval=0, slot=0):
        key = original(self, node, purpose, interval, slot)
        if slot:
            keys.setdefault(interval, set()).add(key)
        return key

    with monkeypatch.context() as patch:
        patch.setattr(Streams, "key", noted)
        action()
    return keys


def elsewhere(monkeypatch, name="other"):
    upgraded(monkeypatch, {"torch": name})


def upgraded(monkeypatch, found):
    original = _version
    monkeypatch.setattr("h2fdp.records.directory._version", lambda library: found.get(library) or original(library))


def test_in_another_environment_noise_and_batches_are_fresh_and_both_releases_count(
    whole, left, monkeypatch, capsys, tmp_path
):
    first = drawn(monkeypatch, lambda: h2fdp.resume(shutil.copytree(left, tmp_path / "same")))
    before = (left / "privacy.jsonl").read_bytes()
    elsewhere(monkeypatch)
    with pytest.raises(UserError, match=r"versions \(torch from .* to other\) changed since it began.* --fresh-noise"):
        h2fdp.resume(left)
    assert (left / "privacy.jsonl").read_bytes() == before
    second = drawn(monkeypatch, lambda: h2fdp.resume(left, fresh_noise=True))
    assert "to other) changed since it began: noise and batches are drawn afresh" in " ".join(
        capsys.readouterr().err.split()
    )
    assert sorted(second) == sorted(first)
    assert min(first) == 6
    assert not set.union(*first.values()) & set.union(*second.values())

    assert (left / "privacy.jsonl").read_bytes().startswith(before)
    rows = pd.DataFrame(ledger(left)).groupby("interval").size()
    once = pd.DataFrame(ledger(whole.directory)).groupby("interval").size()
    assert (rows[:6] == once[:6]).all()
    assert (rows[6:8] > once[6:8]).all()

    run = h2fdp.Run(left)
    assert run.summary["fresh_from"] == [7]
    for observer in ("cloud", "public"):
        told = run.metrics[f"epsilon_{observer}"].iloc[-1]
        assert told == pytest.approx(run.privacy.epsilon(observer))
        assert told > whole.metrics[f"epsilon_{observer}"].iloc[-1]
    assert run.summary["privacy"]["claimed"] is None  # more aggregations than the formula was asked to cover


@pytest.mark.parametrize("library", ["ray", "h2fdp"])
def test_another_version_of_a_library_that_computes_nothing_of_a_run_changes_nothing(whole, left, monkeypatch, library):
    upgraded(monkeypatch, {library: "99.0"})
    assert_same(h2fdp.resume(left), whole)


def test_a_run_that_draws_afresh_stays_in_its_world(tmp_path, monkeypatch):
    """Who fails and what the channels are is the seed's: a resume elsewhere draws other noise, not other weather."""
    faults = {"device_dropout": 0.3, "edge_outage": {"probability": 0.2, "intervals": 2}}
    faults["straggler"] = {"probability": 0.3}
    settings = {"method": "hfl-dp", "intervals": 8, "faults": faults, "checkpoint_every": 2, "backend": "inline"}
    whole = experiment_of(**settings).run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        crashing_at(patch, 3)
        with pytest.raises(RuntimeError, match="host is gone"):
            experiment_of(**settings).run(tmp_path / "run")
    elsewhere(monkeypatch)
    run = h2fdp.resume(tmp_path / "run", fresh_noise=True)
    assert run.summary["fresh_from"] == [3]
    assert not torch.equal(run.model.state_dict()["1.weight"], whole.model.state_dict()["1.weight"])
    world = ["participants", "energy_j", "delay_s", "clock_s"]
    pd.testing.assert_frame_equal(run.metrics[world], whole.metrics[world], check_exact=True)


def test_fresh_draws_do_not_repeat_whatever_happens_next(left, monkeypatch, tmp_path):
    """Two continuations of one run elsewhere, and one that is killed and goes on in a third place."""
    seen = []
    for number, place in enumerate(("here", "there")):
        copy = shutil.copytree(left, tmp_path / str(number))
        with monkeypatch.context() as patch:
            elsewhere(patch, place)
            crashing_at(patch, 8)

            def crash(path=copy):
                with pytest.raises(RuntimeError, match="host is gone"):
                    h2fdp.resume(path, fresh_noise=True)

            seen.append(drawn(monkeypatch, crash))
    with monkeypatch.context() as patch:
        elsewhere(patch, "third")
        seen.append(drawn(monkeypatch, lambda: h2fdp.resume(copy, fresh_noise=True)))
    keys = [set.union(*each.values()) for each in seen]
    assert not keys[0] & keys[1]
    assert not keys[1] & keys[2]


def test_a_run_that_went_on_elsewhere_repeats_bits_there(left, monkeypatch, tmp_path):
    elsewhere(monkeypatch)
    copy = shutil.copytree(left, tmp_path / "copy")
    with monkeypatch.context() as patch:
        crashing_at(patch, 8)
        with pytest.raises(RuntimeError, match="host is gone"):
            h2fdp.resume(copy, fresh_noise=True)
    kept = [path.name for path in (copy / "checkpoint").glob("*.ckpt")]
    assert kept == ["000000006.ckpt"]  # nothing can go on from before it, with the noise of then
    assert_same(h2fdp.resume(copy), h2fdp.resume(left, fresh_noise=True))  # the copy is at home there by now


def test_without_any_checkpoint_a_run_with_releases_begins_again_and_they_count(left, capsys):
    before = (left / "privacy.jsonl").read_bytes()
    shutil.rmtree(left / "checkpoint")
    with pytest.raises(UserError, match=r"no checkpoint is left, .* --fresh-noise"):
        h2fdp.resume(left)
    run = h2fdp.resume(left, fresh_noise=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "no checkpoint is left: noise and batches are drawn afresh from interval 1 on" in said
    assert (left / "privacy.jsonl").read_bytes().startswith(before)
    assert run.metrics["interval"].tolist() == list(range(1, len(run.metrics) + 1))
    assert run.metrics["epsilon_cloud"].iloc[-1] == pytest.approx(run.privacy.epsilon("cloud"))


@pytest.mark.parametrize("change", [lambda rows: rows[:500], lambda rows: rows.replace(b"cloud", b"clout", 1)])
@pytest.mark.parametrize("place", ["same", "other"])
def test_a_ledger_that_was_changed_is_refused(left, monkeypatch, change, place):
    if place == "other":
        elsewhere(monkeypatch)
    path = left / "privacy.jsonl"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=r"privacy.jsonl:[123]: .* after the run wrote it"):
        h2fdp.resume(left)
    write_sums(path)  # as whoever changes it could
    with pytest.raises(UserError, match="changed after the run wrote it"):
        h2fdp.resume(left)


def edited(row):
    return {**row, "noise_std": row["noise_std"] * 2}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [*rows[:-1], edited(rows[-1])], r"this row is not the one that the run writes again here"),
        (lambda rows: [*rows[:-4], *rows[-2:]], r"this row is not the one that the run writes again here"),
        (lambda rows: [*rows[:-2], {"interval": 8}], r"this row is not a release"),
    ],
    ids=["edited", "cut", "no release"],
)
def test_rows_behind_the_checkpoint_that_were_changed_are_refused_with_their_line(
    left, capsys, monkeypatch, change, words
):
    path = left / "privacy.jsonl"
    rows = change(ledger(left))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(path)  # as whoever changes it could
    before = path.read_bytes()
    monkeypatch.setattr(sys, "argv", ["h2fdp", "resume", str(left)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"privacy\.jsonl:(\d+): {words}", said)
    assert "Traceback" not in said
    assert path.read_bytes() == before


def stopped_after(path, intervals):
    """Resume a run, and stop it after so many intervals."""
    rows = []
    watcher = RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == intervals)
    return resume_run(Experiment.of_run(path).prepare, path, watcher, fresh_noise=True)


def states_its_ledger(run):
    told = run.summary["privacy"]
    for observer, worst in told["worst"].items():
        for accountant in ("rdp", "pld"):
            assert worst[accountant] == pytest.approx(run.privacy.epsilon(observer, accountant), rel=1e-9)
    return told


@pytest.mark.parametrize("place", ["same", "other"])
def test_a_run_that_stops_before_it_repeats_what_was_lost_states_that_too(whole, left, monkeypatch, place):
    """Checkpoint after 6, rows of 7 and 8 beyond: all eight intervals' releases were made."""
    if place == "other":
        elsewhere(monkeypatch)
    run = stopped_after(left, 1)
    assert (run.summary["state"], run.summary["intervals"]) == ("interrupted", 7)
    told = states_its_ledger(run)["worst"]
    assert told["cloud"]["rdp"] > whole.metrics["epsilon_cloud"][6] * 1.01  # that of seven intervals
    assert {row["interval"] for row in ledger(left)} == set(range(1, 9))


def test_a_resume_that_fails_states_the_whole_ledger(left, monkeypatch):
    crashing_at(monkeypatch, 6)
    with pytest.raises(RuntimeError, match="host is gone"):
        h2fdp.resume(left)
    run = h2fdp.Run(left)
    assert (run.summary["state"], run.summary["intervals"]) == ("failed", 6)
    states_its_ledger(run)


def test_a_budget_goes_on_where_it_was(tmp_path, monkeypatch):
    settings = {"method": "h2fdp", "control": {}, "intervals": 16, "participation": 0.5}
    epsilon = experiment_of(**settings).run(tmp_path / "free").metrics["epsilon_cloud"]
    settings["budget"] = {"cloud": float(epsilon[11])}
    spent = experiment_of(**settings).run(tmp_path / "spent")
    assert spent.summary["state"] == "budget spent"
    crashing_at(monkeypatch, 7)
    with pytest.raises(RuntimeError, match="host is gone"):
        experiment_of(**settings).run(tmp_path / "run")
    monkeypatch.undo()
    assert_same(h2fdp.resume(tmp_path / "run"), spent)


def experiment_of(method, **settings):
    topology = Topology.regular(edges=2, devices=4, trust=0.5, seed=2)
    defaults = {"local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 2}
    return Experiment(topology=topology, data="digits", method=method, **{**defaults, **settings})


@contextmanager
def files_of_at_most(size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def ledger_fails_at_sync(number):
    """The rows are in the file when the disk says that it has no room for them."""
    original, calls = os.fdatasync, [0]

    def full(descriptor):
        calls[0] += 1
        if calls[0] == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        yield


@contextmanager
def model_fails():
    """The disk has room for everything else, and for 100 bytes of the model."""

    class Full:
        room = 100

        def write(self, data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return len(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(h2fdp.run.result, "replacing", lambda path: nullcontext(Full()))
        yield


@pytest.mark.parametrize("full_disk", [files_of_at_most(3_300), ledger_fails_at_sync(11), model_fails()])
def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(whole, tmp_path, full_disk):
    words = r"the disk is full .* make room, then continue with: h2fdp resume"
    with pytest.raises(UserError, match=words), keys_are(known), full_disk:
        experiment().run(tmp_path / "run")
    begun = [row["interval"] for row in ledger(tmp_path / "run")]
    expected = [row["interval"] for row in ledger(whole.directory)]
    assert begun == [interval for interval in expected if interval <= max(begun, default=0)]  # no part of a group
    assert_same(h2fdp.resume(tmp_path / "run"), whole)


def test_the_library_of_the_accountant_that_sizes_the_noise_counts(tmp_path, monkeypatch):
    def digests(accountant):
        run = Experiment(intervals=1, accountant=accountant).prepare()
        directory = RunDirectory(tmp_path)
        directory.config.write_text("{}")
        directory.topology.write_text("")
        now = identity.run_digest(run, directory)["versions"]
        with monkeypatch.context() as patch:
            upgraded(patch, {"scipy": "99.0"})
            return now, identity.run_digest(run, directory)["versions"]

    of_rdp, of_pld = digests("rdp"), digests("pld")
    assert of_rdp[0] == of_rdp[1]
    assert of_pld[0] != of_pld[1]
