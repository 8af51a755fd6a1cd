"""Hosts on other processors: what does not come out the same again is never redone under the same noise."""

from dataclasses import dataclass

import pytest

import h2fdp
from h2fdp import UserError
from h2fdp.experiment import loop
from h2fdp.experiment.run import start_run
from h2fdp.nodes import LocalTeam
from h2fdp.runtime.hardware import alike, processor
from tests.experiment.killed import experiment


@dataclass
class Spread:
    """Edge servers on hosts with these processors."""

    processors: frozenset[str]


def stopped_after(intervals, path, **settings):
    rows = []
    start_run(experiment(**settings).prepare(), path, on_interval=rows.append, stop=lambda: len(rows) == intervals)


def test_hosts_are_alike_when_all_are_of_this_machines_kind():
    assert alike(LocalTeam({}))
    assert alike(Spread(frozenset({processor()})))
    assert not alike(Spread(frozenset({processor(), "another"})))
    assert not alike(Spread(frozenset({"another"})))


def test_a_run_on_a_mixed_cluster_goes_on_with_fresh_draws(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "alike", lambda edges: False)
        stopped_after(4, tmp_path / "run")
    run = h2fdp.resume(tmp_path / "run")
    assert run.summary["fresh_from"] == [5]
    assert "hardware differ from what the run began with" in capsys.readouterr().err


def test_intervals_are_not_redone_on_hosts_of_another_kind(tmp_path, monkeypatch):
    stopped_after(4, tmp_path / "run")
    before = (tmp_path / "run" / "privacy.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "alike", lambda edges: False)
        with pytest.raises(UserError, match="another kind of processor than the run began on"):
            h2fdp.resume(tmp_path / "run")
    assert (tmp_path / "run" / "privacy.jsonl").read_bytes() == before
    assert h2fdp.resume(tmp_path / "run").summary["fresh_from"] == []
