"""Hosts on other processors: what does not come out the same again is never redone under the same noise."""

from dataclasses import dataclass

import h2fdp
from h2fdp.protocol import InProcessNodes
from h2fdp.run import loop
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.runtime.host import alike, arithmetic
from tests.run.killed import experiment


@dataclass
class Spread:
    """Edge servers on hosts with these processors."""

    kinds: dict[str, str]


def stopped_after(intervals, path, **settings):
    rows = []
    watcher = RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == intervals)
    start_run(experiment(**settings).prepare(), path, watcher)


def test_hosts_are_alike_when_all_are_of_this_machines_kind():
    assert alike(InProcessNodes({}))
    assert alike(Spread({"host:0": arithmetic()}))
    assert not alike(Spread({"host:0": arithmetic(), "host:1": "another"}))
    assert not alike(Spread({"host:0": "another"}))


def test_a_run_on_a_mixed_cluster_goes_on_with_fresh_draws(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "alike", lambda edges: False)
        stopped_after(4, tmp_path / "run")
    run = h2fdp.resume(tmp_path / "run")
    assert run.summary["fresh_from"] == [5]
    assert "hardware (hosts) changed since it began" in " ".join(capsys.readouterr().err.split())


def test_intervals_are_not_redone_on_hosts_of_another_kind_but_drawn_afresh(tmp_path, monkeypatch, capsys):
    stopped_after(4, tmp_path / "run")
    before = (tmp_path / "run" / "privacy.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "alike", lambda edges: False)
        run = h2fdp.resume(tmp_path / "run")
    assert run.summary["fresh_from"] == [5]
    assert run.summary["state"] == "done"
    assert (tmp_path / "run" / "privacy.jsonl").read_bytes().startswith(before)
    assert "drawn afresh from interval 5 on" in " ".join(capsys.readouterr().err.split())
