"""Where metrics go beside the run's own files."""

import pytest

import h2fdp
from h2fdp import Experiment, Topology
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
