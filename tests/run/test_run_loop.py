"""A run from start to end: what is on disk when, and what is left when something fails."""

import json

import pandas as pd
import pytest

from h2fdp import Experiment, Topology, UserError, load_model, resume
from h2fdp.cli.runs import runs_command
from h2fdp.protocol import Cloud
from h2fdp.run import recorders


def small(method="h2fdp", **settings):
    topology = Topology.regular(edges=2, devices=2, trust=0.5, seed=2)
    defaults = {"intervals": 4, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 2}
    return Experiment(topology=topology, data="digits", method=method, **{**defaults, **settings})


def ledger(path):
    return [json.loads(line) for line in (path / "privacy.jsonl").read_text().splitlines()]


def test_the_rows_of_an_interval_are_on_disk_before_it_starts(tmp_path, monkeypatch):
    """And none of a later one: the ledger never says more than may have been released."""
    seen = []

    original = Cloud.run_interval

    def look(cloud, plan):
        seen.append((plan.interval, ledger(tmp_path / "run")))
        original(cloud, plan)

    monkeypatch.setattr(Cloud, "run_interval", look)
    small().run(tmp_path / "run")
    whole = ledger(tmp_path / "run")
    assert [interval for interval, _ in seen] == [0, 1, 2, 3]
    for interval, rows in seen:
        assert rows == [row for row in whole if row["interval"] <= interval + 1]
        assert {row["edge"] for row in rows if row["interval"] == interval + 1} == {"edge-1", "edge-2"}


def test_the_ledger_holds_every_observer_and_agrees_with_the_noise_that_was_added(tmp_path):
    run = small(sensitivity="tight").run(tmp_path / "run")
    rows = pd.DataFrame(ledger(tmp_path / "run"))
    assert set(rows["observer"]) == {"edge", "peer", "cloud", "public"}
    devices_noise = rows[(rows["observer"] == "edge") & (rows["kind"] == "local")]["noise_std"]
    summary = {(item["kind"], item["added_by"]): item for item in run.summary["noise_std"]}
    assert devices_noise.max() == pytest.approx(summary["local", "device"]["largest"])
    assert devices_noise.min() == pytest.approx(summary["local", "device"]["smallest"])


def test_a_failure_in_the_middle_loses_nothing_that_was_recorded(tmp_path, monkeypatch):
    def failing(step, interval):
        if (step, interval) == ("released", 2):
            raise RuntimeError("the host is gone")

    monkeypatch.setattr(recorders, "listener", failing)
    with pytest.raises(RuntimeError, match="the host is gone"):
        small().run(tmp_path / "run")
    assert len(pd.read_parquet(tmp_path / "run" / "metrics.parquet")) == 2
    assert {row["interval"] for row in ledger(tmp_path / "run")} == {1, 2, 3}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "failed"
    assert load_model(tmp_path / "run") is not None


def test_a_run_that_its_callback_gives_up_did_not_fail_and_can_be_resumed(tmp_path, capsys):
    class Pruned(Exception):
        pass

    def give_up(row):
        if row["interval"] == 2:
            raise Pruned("behind the others")

    with pytest.raises(Pruned):
        small("hfl").run(tmp_path / "runs" / "trial", on_interval=give_up)
    runs_command([tmp_path / "runs"])
    listed = capsys.readouterr().out
    assert "stopped" in listed
    assert "h2fdp resume" not in listed
    log = (tmp_path / "runs" / "trial" / "log.jsonl").read_text()
    assert "the callback raised Pruned: behind the others" in log
    resumed, whole = resume(tmp_path / "runs" / "trial"), small("hfl").run(tmp_path / "whole")
    assert resumed.metrics["loss"].tolist() == whole.metrics["loss"].tolist()


def test_the_resolved_configuration_runs_again_to_the_same_bits(tmp_path):
    first = small(participation=0.5).run(tmp_path / "first")
    again = Experiment.from_file(tmp_path / "first" / "config.yaml").run(tmp_path / "again")
    pd.testing.assert_frame_equal(first.metrics.drop(columns="wall_s"), again.metrics.drop(columns="wall_s"))
    names = ("config.yaml", "topology.yaml", "privacy.jsonl")
    assert all((tmp_path / "first" / name).read_text() == (tmp_path / "again" / name).read_text() for name in names)


def test_a_users_mistake_inside_the_first_interval_keeps_the_ledger(tmp_path, monkeypatch):
    """The rows were on disk before it, and something may have left: they are never dropped."""

    def failing(step, interval):
        if step == "released":
            raise UserError("the data of a device cannot be read")

    monkeypatch.setattr(recorders, "listener", failing)
    with pytest.raises(UserError, match="cannot be read"):
        small().run(tmp_path / "run")
    assert {row["interval"] for row in ledger(tmp_path / "run")} == {1}
