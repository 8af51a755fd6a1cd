"""Where metrics go beside the run's own files."""

import sys
from types import SimpleNamespace

import pytest

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.protocol import Cloud

PLAIN = ("slot", "accuracy", "loss", "local_steps", "step_size", "participants", "epsilon_claimed",
         "energy_j", "delay_s", "clock_s", "bytes", "wall_s")  # columns that name no accountant  # fmt: skip


def small(**settings):
    topology = Topology.regular(edges=2, devices=2, trust=0.5, seed=2)
    defaults = {"intervals": 5, "local_steps": 2, "batch_size": 4, "epsilon": 20.0, "evaluate_every": 2}
    return Experiment(topology=topology, data="digits", **{**defaults, **settings})


def test_events_have_every_column_of_every_row_also_after_a_resume(tmp_path, monkeypatch):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader", exc_type=ImportError)
    original = Cloud.run_interval

    def failing(self, plan):
        if plan.interval == 3:
            raise RuntimeError("the host is gone")
        original(self, plan)

    with monkeypatch.context() as patch:
        patch.setattr(Cloud, "run_interval", failing)
        with pytest.raises(RuntimeError, match="host is gone"):
            small(checkpoint_every=2, tensorboard=True).run(tmp_path / "run")
    metrics = h2fdp.resume(tmp_path / "run").metrics.set_index("interval")
    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    events = [each for each in loader.LegacyEventFileLoader(str(file)).Load() if each.summary.value]
    assert sorted({each.step for each in events}) == [1, 2, 3, 4, 5]
    for step in range(1, 6):
        row = metrics.loc[step].dropna().rename(lambda name: name if name in PLAIN else f"{name}_rdp")
        written = [value for each in events if each.step == step for value in each.summary.value]
        assert {value.tag: value.simple_value for value in written} == pytest.approx(dict(row), rel=1e-6)
        assert len(written) == len(row), "no step appears twice"
    assert [each.wall_time for each in events] == sorted(each.wall_time for each in events)


def test_wandb_gets_the_configuration_and_every_row_under_an_id_that_stays(tmp_path, monkeypatch):
    begun, rows, ends = [], [], []
    run = SimpleNamespace(
        log=lambda values, step: rows.append((step, values)), finish=lambda exit_code: ends.append(exit_code)
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **given: begun.append(given) or run))
    path = tmp_path / "run"
    metrics = small(wandb="trees", tensorboard=False).run(path).metrics
    (given,) = begun
    assert (given["project"], given["name"], given["dir"], given["resume"]) == ("trees", "run", str(path), "allow")
    assert given["id"] == (path / "wandb-run").read_text()
    assert given["config"]["training.intervals"] == 5
    assert [step for step, _ in rows] == metrics["interval"].tolist()
    assert [values["energy_j"] for _, values in rows] == metrics["energy_j"].tolist()
    assert ends == [0]


def test_a_run_goes_on_without_a_server_that_went_away_and_begins_with_none_that_is_not_there(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no key")

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"tracking\.wandb: .*pip install 'h2fdp\[wandb\]'"):
        small(wandb="trees").run(tmp_path / "missing")
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=fails))
    with pytest.raises(UserError, match=r"tracking\.wandb: W&B does not answer: no key; with WANDB_MODE=offline"):
        small(wandb="trees").run(tmp_path / "refused")
    gone = SimpleNamespace(log=fails, finish=fails)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: gone))
    assert small(wandb="trees").run(tmp_path / "gone").summary["state"] == "done"
    assert (tmp_path / "gone" / "log.jsonl").read_text().count("W&B no longer answers") == 1
