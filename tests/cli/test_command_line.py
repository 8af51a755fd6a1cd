"""The command as a user meets it: exit codes, output in a pipe, Ctrl-C, wrong input."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from h2fdp.records.json_lines import write_sums
from h2fdp.run import recorders
from tests.cli.conftest import SMALL


def process(*arguments):
    """The command as a process of its own."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "h2fdp", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_a_run_ends_with_a_table_and_its_directory(experiment, tmp_path):
    done = process("run", experiment, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert str(tmp_path / "run") in done.stdout
    assert "interval 3/3" in done.stderr
    *table, following = done.stdout.splitlines()
    assert following == f"next: h2fdp report {tmp_path / 'run'}"
    assert max(len(line) for line in table if "run directory" not in line) <= 80
    for name in (
        "config.yaml",
        "topology.yaml",
        "metrics.parquet",
        "devices.parquet",
        "privacy.jsonl",
        "log.jsonl",
        "model.pt",
        "summary.json",
    ):
        assert (tmp_path / "run" / name).exists(), name


def test_settings_and_seed_reach_the_run(h2fdp, experiment, tmp_path):
    done = h2fdp(
        "run",
        experiment,
        "--out",
        tmp_path / "run",
        "--seed",
        7,
        "--set",
        "training.intervals=2",
        "--set",
        "topology.edges[1].trusted=true",
        "--json",
        "--quiet",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["seed"], summary["intervals"], summary["trusted_edges"]) == (7, 2, 2)
    warning = " ".join(done.stderr.split())  # the one thing that --quiet does not keep to itself
    assert warning.count("note:") == 1
    assert warning.startswith("note: epsilon 20 is claimed, but the account of the planned run is about")


def test_a_dry_run_prints_the_plan_and_leaves_nothing(h2fdp, experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = h2fdp("run", experiment, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["device steps"] == 3 * 4 * 4
    assert {noise["edge"]: noise["added_by"] for noise in plan["noises"]} == {
        "a": "the edge server",
        "b": "each device",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


@pytest.mark.parametrize("method", ["mr-mtl", "ditto", "moon"])
def test_a_dry_run_times_steps_of_devices_that_have_models_of_their_own(h2fdp, experiment, method):
    done = h2fdp("run", experiment, "--dry-run", "--json", "--set", f"method={{extends: {method}, privacy: dp-sgd}}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["time"].startswith("about ")


def test_a_dry_run_shows_what_each_observer_will_hold(h2fdp, experiment):
    done = h2fdp("run", experiment, "--dry-run")
    assert done.returncode == 0, done.stderr
    for observer in ("edge", "peer", "cloud", "public"):
        assert re.search(rf"^{observer} .* (met|open)", done.stdout, re.MULTILINE)


def test_a_used_directory_is_refused_and_kept(h2fdp, experiment, tmp_path):
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet").returncode == 0
    before = (tmp_path / "run" / "metrics.parquet").read_bytes()
    again = h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet")
    assert again.returncode == 2
    assert "not empty" in " ".join(again.stderr.split())
    assert (tmp_path / "run" / "metrics.parquet").read_bytes() == before
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet", "--overwrite").returncode == 0


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that gets Ctrl-C in its third interval: the process that ended, and its directory."""
    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "small.yaml").write_text(SMALL.replace("intervals: 3", "intervals: 100000"))
    command = [sys.executable, "-m", "h2fdp", "run", folder / "small.yaml", "--out", folder / "run", "--verbose"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        said = ""
        for line in running.stderr:
            said += line
            if line.startswith("interval 3/"):
                running.send_signal(signal.SIGINT)
                break
        output, rest = running.communicate(timeout=60)
    return subprocess.CompletedProcess(command, running.returncode, output, said + rest), folder / "run"


def assert_stopped(done, run, code):
    """It ended after an interval, with this exit code, and said how it continues."""
    summary = json.loads((run / "summary.json").read_text())
    assert done.returncode == code
    assert summary["state"] == "interrupted"
    assert summary["intervals"] >= 3
    assert f"continue with: h2fdp resume {run}" in done.stderr
    assert "Traceback" not in done.stderr
    assert (run / "checkpoint" / f"{summary['intervals']:09d}.ckpt").exists()


def test_ctrl_c_stops_cleanly_after_the_interval_and_says_how_to_go_on(interrupted):
    assert_stopped(*interrupted, code=130)


def test_so_does_sigterm(h2fdp, experiment, tmp_path, monkeypatch):
    sent = []

    def listener(step, interval):
        if interval == 2 and not sent:
            sent.append(step)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(recorders, "listener", listener)
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", "training.intervals=100000")
    assert sent
    assert_stopped(done, tmp_path / "run", code=143)


def test_a_stopped_run_goes_on_from_the_command_line(h2fdp, interrupted):
    _, out = interrupted
    (listed,) = json.loads(h2fdp("runs", out.parent, "--json").stdout)
    assert (listed["state"], listed["resumable"]) == ("interrupted", True)
    assert "continue with: h2fdp resume RUN" in h2fdp("runs", out.parent).stdout
    config = out / "config.yaml"
    done = int(listed["intervals"])
    config.write_text(config.read_text().replace("intervals: 100000", f"intervals: {done + 2}"))
    refused = h2fdp("resume", out)
    assert (refused.returncode, "config.yaml:" in refused.stderr) == (2, True)
    write_sums(config)  # as whoever edits it on purpose
    resumed = h2fdp("resume", out)
    assert resumed.returncode == 0, resumed.stderr
    assert "configuration (config.yaml) changed since it began" in " ".join(resumed.stderr.split())  # it was edited
    assert f"interval {done + 2}/{done + 2}" in resumed.stderr
    assert "after a resume elsewhere" in " ".join(resumed.stdout.split())
    again = h2fdp("resume", out, "--json", "--quiet")
    assert again.returncode == 0
    assert "nothing left to do" in " ".join(again.stderr.split())
    assert json.loads(again.stdout)["state"] == "done"


def test_a_dry_run_says_the_joules_and_seconds_that_the_run_ends_with(h2fdp, experiment, tmp_path):
    before = json.loads(h2fdp("run", experiment, "--dry-run", "--json").stdout)["network"]
    done = json.loads(h2fdp("run", experiment, "--out", tmp_path / "run", "--json").stdout)
    assert {key: before[key] for key in ("energy_j", "delay_s", "clock_s")}.items() <= done.items()
    assert f"energy               {done['energy_j']:.4g} J\n" in h2fdp("run", experiment, "--dry-run").stdout
