"""A sweep in one process: runs as `h2fdp run` makes them, going on, changes noticed, failures kept apart."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml

from h2fdp import Experiment, UserError, sweep
from h2fdp.records.atomic import write_checked_json
from h2fdp.records.directory import locked
from h2fdp.run import recorders
from h2fdp.sweeps.conduct import conduct
from h2fdp.sweeps.plan import SharedInputs, read_sweep
from h2fdp.sweeps.pool import WorkOptions
from tests.sweeps.studies import assert_equal_runs, study


def files_of(run):
    return {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*")) if path.is_file()}


def message(error):
    return str(error.value)


def test_runs_are_those_of_h2fdp_run_and_stand_in_one_table(tmp_path):
    path = study(tmp_path)
    done = sweep(path, out=tmp_path / "out", jobs=1)
    names = [f"seed={seed},privacy.epsilon={epsilon}" for seed in (1, 2) for epsilon in (1, 20)]
    assert list(done.runs) == names
    assert done.failures == {}
    alone = Experiment.from_file(path, ["seed=2", "privacy.epsilon=20"]).run(tmp_path / "alone")
    assert_equal_runs(done.runs["seed=2,privacy.epsilon=20"].directory, alone.directory)
    table = done.table
    assert list(table.columns[:3]) == ["run", "seed", "privacy.epsilon"]
    assert table["run"].tolist() == [name for name in names for _ in range(3)]
    assert (table["seed"].dtype, table["privacy.epsilon"].dtype) == ("int64", "int64")
    last = table[table["run"] == "seed=2,privacy.epsilon=20"].drop(columns=["run", "seed", "privacy.epsilon"])
    pd.testing.assert_frame_equal(
        last.reset_index(drop=True).drop(columns="wall_s"), alone.metrics.drop(columns="wall_s"), check_exact=True
    )
    assert done.summary["n"].tolist() == [2] * 6
    states = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]
    assert {name: entry["state"] for name, entry in states.items()} == dict.fromkeys(names, "done")
    assert yaml.safe_load((tmp_path / "out" / "study.yaml").read_text())["sweep"]["seed"] == [1, 2]


def test_finished_runs_are_not_redone_and_the_grid_may_grow(tmp_path):
    first = sweep(study(tmp_path, "{seed: [1]}"), out=tmp_path / "out", jobs=1)
    before = files_of(first.runs["seed=1"].directory)
    more = sweep(study(tmp_path, "{seed: [1, 2]}"), out=tmp_path / "out", jobs=1)
    assert list(more.runs) == ["seed=1", "seed=2"]
    assert files_of(more.runs["seed=1"].directory) == before
    fewer = sweep(study(tmp_path, "{seed: [2]}"), out=tmp_path / "out", jobs=1)
    assert set(fewer.table["run"]) == {"seed=2"}
    assert files_of(tmp_path / "out" / "runs" / "seed=1") == before  # left aside, not lost


def test_a_changed_configuration_is_noticed_and_only_those_runs_are_redone(tmp_path):
    out = tmp_path / "out"
    path = study(tmp_path, '{"seed, training.step_size": [[1, 0.1], [2, 0.1]]}')
    sweep(path, out=out, jobs=1)
    with pytest.raises(UserError) as error:
        sweep(path, ["privacy.epsilon=3", "topology.edges[1].trusted=true"], out=out, jobs=1)
    assert "topology, privacy: its configuration, its topology or its own code has changed" in message(error)
    assert "(and 1 more)" in message(error)
    assert "--overwrite" in message(error)
    wider = study(tmp_path, '{"seed, training.step_size": [[1, 0.1], [2, 0.1], [3, 0.1]]}')
    before = {seed: files_of(out / "runs" / f"seed={seed},training.step_size=0.1") for seed in (1, 2)}
    states = json.loads((out / "sweep.json").read_text())
    changed = "seed=2,training.step_size=0.1"
    states["points"][changed]["digest"] = "of another time"  # as if this run alone had been another one
    write_checked_json(out / "sweep.json", {key: states[key] for key in states if key != "checksum"}, indent=1)
    with pytest.raises(UserError, match=f"{changed}: its configuration"):
        sweep(wider, out=out, jobs=1)
    assert not (out / "runs" / "seed=3,training.step_size=0.1").exists()
    done = sweep(wider, out=out, jobs=1, overwrite=True)
    assert len(done.runs) == 3
    assert files_of(out / "runs" / "seed=1,training.step_size=0.1") == before[1]
    assert files_of(out / "runs" / changed) != before[2]


def test_runs_of_other_code_are_noticed(tmp_path, monkeypatch):
    path = study(tmp_path, "{seed: [1]}")
    sweep(path, out=tmp_path / "out", jobs=1)
    monkeypatch.setattr("h2fdp.sweeps.conduct.package_digest", lambda: "another version")
    with pytest.raises(UserError, match="the code of h2fdp has changed since the run was made"):
        sweep(path, out=tmp_path / "out", jobs=1)
    assert len(sweep(path, out=tmp_path / "out", jobs=1, overwrite=True).runs) == 1


def fail(monkeypatch, times, interval=1):
    """Let the first `times` runs that reach an interval fail in it."""
    left = [times]

    def failing(step, at):
        if (step, at) == ("released", interval) and left[0]:
            left[0] -= 1
            raise RuntimeError("no luck")

    monkeypatch.setattr(recorders, "listener", failing)


def test_a_run_that_fails_once_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    path = study(tmp_path, "{seed: [1, 2]}")
    fail(monkeypatch, times=1)
    done = sweep(path, ["runtime.checkpoint_every=1"], out=tmp_path / "out", jobs=1)
    assert list(done.runs) == ["seed=1", "seed=2"]
    assert done.failures == {}
    assert_equal_runs(
        done.runs["seed=1"].directory, Experiment.from_file(path, ["seed=1"]).run(tmp_path / "alone").directory
    )


def test_a_run_that_fails_twice_is_kept_apart_and_tried_again_the_next_time(tmp_path, monkeypatch):
    path = study(tmp_path, "{seed: [1, 2, 3]}")
    with monkeypatch.context() as broken:
        fail(broken, times=4, interval=0)  # the first attempts of all three, the second of the first
        done = sweep(path, out=tmp_path / "out", jobs=1)
    assert list(done.runs) == ["seed=2", "seed=3"]
    assert done.failures["seed=1"].count("RuntimeError: no luck") == 1
    assert set(done.table["run"]) == {"seed=2", "seed=3"}
    state = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]["seed=1"]
    assert (state["state"], state["error"]) == ("failed", "RuntimeError: no luck")
    again = sweep(path, out=tmp_path / "out", jobs=1)
    assert (list(again.runs), again.failures) == (["seed=1", "seed=2", "seed=3"], {})


def test_a_stopped_sweep_goes_on_with_the_run_that_was_under_way(tmp_path):
    path, out, shared = study(tmp_path, "{seed: [1, 2]}"), tmp_path / "out", SharedInputs()
    asked = iter([False, False, False, *[True] * 10])  # before the first run, and before two intervals of it
    outcomes = conduct(read_sweep(path, (), shared), out, shared, WorkOptions(jobs=1, stop=lambda: next(asked)))
    assert {name: outcome.state for name, outcome in outcomes.items()} == {"seed=1": "interrupted"}
    log = out / "runs" / "seed=1" / "log.jsonl"
    done = sweep(path, out=out, jobs=1)
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()].count("resume") == 1
    assert_equal_runs(
        done.runs["seed=1"].directory, Experiment.from_file(path, ["seed=1"]).run(tmp_path / "alone").directory
    )


def test_a_directory_in_use_or_of_something_else_is_refused(tmp_path):
    path = study(tmp_path, "{seed: [1]}")
    with locked(tmp_path / "out", "out", "sweep"), pytest.raises(UserError, match="another sweep is writing"):
        sweep(path, out=tmp_path / "out", jobs=1)
    with pytest.raises(UserError, match="something other than a sweep"):
        sweep(path, out=tmp_path, jobs=1)


def test_data_that_are_not_there_are_told_once_and_nothing_is_touched(tmp_path):
    path, own = study(tmp_path, "{seed: [1, 2], training.step_size: [0.1, 0.2]}"), tmp_path / "own.npz"
    x, y = np.zeros((8, 3), np.float32), np.arange(8) % 2
    np.savez(own, x_train=x, y_train=y, x_test=x, y_test=y)
    data = f"data={{name: npz, path: {own}, partition: iid}}"
    first = sweep(path, [data], tmp_path / "out", jobs=1)
    assert not first.failures
    before = {name: files_of(run.directory) for name, run in first.runs.items()}
    own.unlink()
    again = sweep(path, [data], tmp_path / "out", jobs=1)  # nothing is left, so nothing is read
    with pytest.raises(UserError) as error:
        sweep(path, [data, "training.intervals=2"], tmp_path / "out", jobs=1, overwrite=True)
    assert message(error).count("no such file") == 1
    assert {name: files_of(run.directory) for name, run in again.runs.items()} == before
    with pytest.raises(UserError):
        sweep(path, [data], tmp_path / "new", jobs=1)
    assert not (tmp_path / "new").exists()
