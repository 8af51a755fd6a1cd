"""The command as a user meets it: exit codes, output in a pipe, Ctrl-C, wrong input."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import yaml

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
    (warning,) = done.stderr.splitlines()  # the one thing that --quiet does not keep to itself
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


def test_a_dry_run_shows_what_each_observer_will_hold(h2fdp, experiment):
    done = h2fdp("run", experiment, "--dry-run")
    assert done.returncode == 0, done.stderr
    for observer in ("edge", "peer", "cloud", "public"):
        assert re.search(rf"^{observer} .* (met|open)", done.stdout, re.MULTILINE)
    leaking = h2fdp("run", experiment, "--dry-run", "--set", "control={enabled: true, estimates: oracle}")
    assert "no epsilon: oracle sends raw estimates" in leaking.stdout


def test_a_used_directory_is_refused_and_kept(h2fdp, experiment, tmp_path):
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet").returncode == 0
    before = (tmp_path / "run" / "metrics.parquet").read_bytes()
    again = h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet")
    assert again.returncode == 2
    assert "not empty" in again.stderr
    assert (tmp_path / "run" / "metrics.parquet").read_bytes() == before
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet", "--overwrite").returncode == 0


def test_runs_are_listed(h2fdp, experiment, tmp_path):
    h2fdp("run", experiment, "--out", tmp_path / "runs" / "one", "--quiet")
    listed = json.loads(h2fdp("runs", tmp_path / "runs", "--json").stdout)
    assert [(row["name"], row["state"]) for row in listed] == [("small", "done")]


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
    assert "configuration changed since it began" in resumed.stderr  # it was edited
    assert f"interval {done + 2}/{done + 2}" in resumed.stderr
    assert "after a resume elsewhere" in " ".join(resumed.stdout.split())
    again = h2fdp("resume", out, "--json", "--quiet")
    assert again.returncode == 0
    assert "nothing left to do" in again.stderr
    assert json.loads(again.stdout)["state"] == "done"


def test_what_cannot_be_resumed_gets_one_line(h2fdp, tmp_path):
    done = h2fdp("resume", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not a run directory" in done.stderr


def test_a_mistake_stays_one_line_where_a_library_tells_what_was_not_collected(tmp_path):
    pytest.importorskip("triton")
    script = "import sys, triton; from h2fdp.__main__ import run; sys.argv = ['h2fdp', 'run', 'none.yaml']; run()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


def test_help_and_version_are_plain(h2fdp):
    for arguments in (["--help"], ["--version"], ["run", "--help"]):
        done = h2fdp(*arguments)
        assert done.returncode == 0
        assert done.stdout


def test_a_setting_reaches_below_a_word(h2fdp, experiment, tmp_path):
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", "data.validation=0.2", "--quiet", "--json")
    assert done.returncode == 0, done.stderr


def test_what_could_not_start_leaves_no_directory_in_the_way(h2fdp, experiment, tmp_path):
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", "training.intervals=two")
    assert done.returncode == 2
    assert "training.intervals: expected a whole number of at least 1" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_plan_of_a_controller_that_the_file_does_not_ask_for_says_so(h2fdp, experiment):
    assert h2fdp("plan", experiment).stdout.startswith("hypothetical: control.enabled is false in this file")
    assert "hypothetical" not in h2fdp("plan", experiment, "--set", "control.enabled=true").stdout


def test_a_dry_run_says_the_joules_and_seconds_that_the_run_ends_with(h2fdp, experiment, tmp_path):
    before = json.loads(h2fdp("run", experiment, "--dry-run", "--json").stdout)["network"]
    done = json.loads(h2fdp("run", experiment, "--out", tmp_path / "run", "--json").stdout)
    assert {key: before[key] for key in ("energy_j", "delay_s", "clock_s")}.items() <= done.items()
    assert f"energy               {done['energy_j']:.4g} J\n" in h2fdp("run", experiment, "--dry-run").stdout


def test_under_a_budget_progress_counts_the_intervals_of_the_plan(h2fdp, experiment, tmp_path):
    file = yaml.safe_load(experiment.read_text())
    file |= {"method": "h2fdp", "training": "auto", "model": "auto", "control": {"joules": 0.05}}
    experiment.write_text(yaml.safe_dump(file | {"privacy": {"epsilon": 8, "calibration": "accounted"}}))
    done = h2fdp("run", experiment, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (planned,) = re.findall(r"^planned: (\d+) intervals$", done.stdout, re.MULTILINE)
    shown = re.findall(r"interval (\d+)/(\d+)", done.stderr)
    assert {of for _, of in shown} == {planned}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["intervals"] <= int(planned)
    assert summary["energy_j"] <= 0.05


def test_a_plan_fits_a_terminal_and_says_the_same_as_its_json(h2fdp, experiment):
    text = h2fdp("plan", experiment, "--set", "control.alpha1=0.5")
    plan = json.loads(h2fdp("plan", experiment, "--set", "control.alpha1=0.5", "--json").stdout)
    assert text.returncode == 0, text.stderr
    assert max(len(line) for line in text.stdout.splitlines()) <= 80
    assert f"tau        {plan['tau']}\n" in text.stdout
    assert f"energy about {plan['network']['energy_j']:.4g} J" in text.stdout
    assert set(plan["participation"]) == {"a", "b"}
    assert plan["objective"] == pytest.approx(sum(plan["terms"].values()))
