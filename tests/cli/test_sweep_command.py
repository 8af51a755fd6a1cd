"""`h2fdp sweep` as a user meets it: its table, its JSON, exit codes, Ctrl-C."""

import json
import signal

from typer.testing import CliRunner

from h2fdp import UserError
from h2fdp.cli.main import app
from h2fdp.run import recorders
from tests.sweeps.studies import study


def called(*arguments):
    return CliRunner().invoke(app, ["sweep", *map(str, arguments), "--jobs", "1"], env={"COLUMNS": "80"})


def test_it_ends_with_a_line_for_each_combination_and_its_directory(tmp_path):
    done = called(study(tmp_path), "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    told, head, _, first, second = done.stdout.splitlines()[:5]
    assert told.startswith("means over seeds")
    assert head.split() == ["epsilon", "test", "accuracy,", "%", "epsilon", "(pld)", "energy,", "J"]
    assert (first.split()[0], first.split()[2], second.split()[0]) == ("1", "±", "20")
    assert "4 of 4 done" in done.stdout
    assert str(tmp_path / "out") in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert "seed=1,privacy.epsilon=1: done" in done.stderr
    assert "4/4 runs done" in done.stderr


def test_json_for_machines(tmp_path):
    done = called(study(tmp_path), "--out", tmp_path / "out", "--json", "--quiet", "--set", "sweep.seed=[4]")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["runs"], found["finished"], found["failed"]) == (2, 2, [])
    assert len(json.loads(CliRunner().invoke(app, ["runs", str(tmp_path / "out"), "--json"]).stdout)) == 2
    told = CliRunner().invoke(app, ["runs", str(tmp_path)], env={"COLUMNS": "120"}).stdout  # a folder of sweeps
    assert (told.count("out/seed=4,privacy.epsilon=1 "), told.count("out/seed=4,privacy.epsilon=20 ")) == (1, 1)
    assert [(row["privacy.epsilon"], row["interval"], row["n"]) for row in found["last"]] == [(1, 3, 1), (20, 3, 1)]
    assert found["last"][0]["accuracy_low"] is None  # of one run nothing is known about spread
    assert done.stderr == ""


def test_a_bug_ends_with_1_and_a_users_mistake_with_2(tmp_path, monkeypatch):
    mistaken = study(tmp_path, "{data: [digits, {name: npz, path: none.npz}]}")
    done = called(mistaken, "--out", tmp_path / "mistaken")
    assert done.exit_code == 2
    assert "no such file" in done.stderr
    assert f"1 of 2 runs failed: see {tmp_path / 'mistaken' / 'failures'}" in done.stderr

    def failing(step, interval):
        raise RuntimeError("no luck")

    monkeypatch.setattr(recorders, "listener", failing)
    done = called(study(tmp_path), "--out", tmp_path / "broken")
    assert done.exit_code == 1
    assert "seed=2,privacy.epsilon=20 failed: RuntimeError: no luck" in done.stderr
    assert len(list((tmp_path / "broken" / "failures").iterdir())) == 4


def assert_stopped(done, path, out):
    """It ended with all runs after an interval, and only the same command goes on."""
    assert done.exit_code == 130
    assert "stopped: 0 of 3 runs are done; run the same command to continue" in done.stderr
    states = json.loads((out / "sweep.json").read_text())["points"]
    assert states["seed=1"]["state"] == "interrupted"
    assert states["seed=3"]["state"] == "waiting"
    refused = called(path, "--out", out)
    assert isinstance(refused.exception, UserError)
    assert "training: its configuration, its topology or its own code has changed" in str(refused.exception)


def test_ctrl_c_ends_the_run_after_its_interval_and_the_same_command_goes_on(tmp_path, monkeypatch):
    path = study(tmp_path, "{seed: [1, 2, 3]}")

    def listener(step, interval):
        if (step, interval) == ("released", 1):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(recorders, "listener", listener)
    done = called(path, "--out", tmp_path / "out", "--set", "training.intervals=100000")
    assert_stopped(done, path, tmp_path / "out")
