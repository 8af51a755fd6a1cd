"""The command as a user meets it: exit codes, output in a pipe, Ctrl-C, wrong input."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from h2fdp.cli.main import app

ROOT = Path(__file__).parents[2]
SMALL = """\
name: small
topology: {edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}
data: digits
training: {intervals: 3, local_steps: 4, aggregate_every: 2, batch_size: 4}
privacy: {epsilon: 20.0}
"""


def h2fdp(*arguments, cwd=None, columns=80):
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "h2fdp", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=120,
    )


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def test_a_run_ends_with_a_table_and_its_directory(experiment, tmp_path):
    done = h2fdp("run", experiment, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert str(tmp_path / "run") in done.stdout
    assert "interval 3/3" in done.stderr
    assert max(len(line) for line in done.stdout.splitlines() if "run directory" not in line) <= 80
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


def test_settings_and_seed_reach_the_run(experiment, tmp_path):
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
    assert done.stderr == ""


def test_a_dry_run_prints_the_plan_and_leaves_nothing(experiment, tmp_path):
    done = h2fdp("run", experiment, "--dry-run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["device steps"] == 3 * 4 * 4
    assert {noise["edge"]: noise["added_by"] for noise in plan["noises"]} == {
        "a": "the edge server",
        "b": "each device",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_a_used_directory_is_refused_and_kept(experiment, tmp_path):
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet").returncode == 0
    before = (tmp_path / "run" / "metrics.parquet").read_bytes()
    again = h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet")
    assert again.returncode == 2
    assert "not empty" in again.stderr
    assert (tmp_path / "run" / "metrics.parquet").read_bytes() == before
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet", "--overwrite").returncode == 0


def test_runs_are_listed(experiment, tmp_path):
    h2fdp("run", experiment, "--out", tmp_path / "runs" / "one", "--quiet")
    listed = json.loads(h2fdp("runs", tmp_path / "runs", "--json").stdout)
    assert [(row["name"], row["state"]) for row in listed] == [("small", "done")]


def signalled(experiment, out, number, times=1):
    """A run that gets a signal in its third interval: exit code, and what it said after that."""
    command = [sys.executable, "-m", "h2fdp", "run", experiment, "--out", out, "--verbose"]
    with subprocess.Popen(
        [*command, "--set", "training.intervals=100000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        rest = ""
        for line in process.stderr:
            rest += line
            if line.startswith("interval 3/"):
                for _ in range(times):
                    process.send_signal(number)
                break
        rest += process.communicate(timeout=60)[1]
    assert "Traceback" not in rest
    return process.returncode, rest, json.loads((out / "summary.json").read_text())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_cleanly_after_the_interval_and_says_how_to_go_on(experiment, tmp_path, number, code):
    returned, said, summary = signalled(experiment, tmp_path / "run", number)
    assert returned == code
    assert summary["state"] == "interrupted"
    assert summary["intervals"] >= 3
    assert f"continue with: h2fdp resume {tmp_path / 'run'}" in said
    assert (tmp_path / "run" / "checkpoint" / f"{summary['intervals']:09d}.ckpt").exists()


def listed_under(folder):
    """The one run that `h2fdp runs` finds."""
    (found,) = json.loads(CliRunner().invoke(app, ["runs", str(folder), "--json"]).stdout)
    return found


def test_a_stopped_run_goes_on_from_the_command_line(experiment, tmp_path):
    out = tmp_path / "run"
    signalled(experiment, out, signal.SIGINT)
    listed = listed_under(tmp_path)
    assert (listed["state"], listed["resumable"]) == ("interrupted", True)
    assert "continue with: h2fdp resume RUN" in CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout
    config = out / "config.yaml"
    done = int(listed["intervals"])
    config.write_text(config.read_text().replace("intervals: 100000", f"intervals: {done + 2}"))
    resumed = h2fdp("resume", out)
    assert resumed.returncode == 0, resumed.stderr
    assert "configuration changed since it began" in resumed.stderr  # it was edited
    assert f"interval {done + 2}/{done + 2}" in resumed.stderr
    assert "after a resume elsewhere" in " ".join(resumed.stdout.split())
    again = h2fdp("resume", out, "--json", "--quiet")
    assert again.returncode == 0
    assert "nothing left to do" in again.stderr
    assert json.loads(again.stdout)["state"] == "done"


def test_a_killed_run_is_listed_as_such(experiment, tmp_path):
    assert signalled(experiment, tmp_path / "run", signal.SIGKILL)[0] == -signal.SIGKILL
    listed = listed_under(tmp_path)
    assert (listed["state"], listed["resumable"]) == ("killed", True)


def test_what_cannot_be_resumed_gets_one_line(tmp_path):
    done = h2fdp("resume", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not a run directory" in done.stderr


def test_help_and_version_are_plain():
    for arguments in (["--help"], ["--version"], ["run", "--help"]):
        done = h2fdp(*arguments)
        assert done.returncode == 0
        assert done.stdout


def test_a_setting_reaches_below_a_word(experiment, tmp_path):
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", "data.validation=0.2", "--quiet", "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("runtime.hosts=4096", "runtime.hosts: "),
        ("runtime={backend: ray, cpus_per_host: 4000}", "runtime.cpus_per_host: hosts of 4000 CPUs"),
        ("training.intervals=two", "training.intervals: expected a whole number of at least 1"),
    ],
)
def test_what_could_not_start_leaves_no_directory_in_the_way(experiment, tmp_path, setting, words):
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", setting)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_plan_fits_a_terminal_and_says_the_same_as_its_json(experiment):
    text = h2fdp("plan", experiment, "--set", "control.alpha1=0.5")
    plan = json.loads(h2fdp("plan", experiment, "--set", "control.alpha1=0.5", "--json").stdout)
    assert text.returncode == 0, text.stderr
    assert max(len(line) for line in text.stdout.splitlines()) <= 80
    assert f"tau        {plan['tau']}\n" in text.stdout
    assert set(plan["participation"]) == {"a", "b"}
    assert plan["objective"] == pytest.approx(sum(plan["terms"].values()))
