"""The steps of a run, in their order."""

from h2fdp import Experiment, Topology
from h2fdp.run import recorders


def test_a_run_announces_its_steps_in_order(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(recorders, "listener", lambda step, interval: seen.append((step, interval)))
    topology = Topology.regular(edges=2, devices=2, trust=0.5, seed=1)
    settings = {"local_steps": 2, "batch_size": 4, "intervals": 2, "runtime": {"checkpoint_every": 1}}
    Experiment(topology=topology, data="digits", method="h2fdp", **settings).run(tmp_path / "run")
    assert seen == [
        ("hosts up", 0),
        ("checkpoint", 0),  # what the run draws from is on disk before it is used
        ("released", 0),
        ("ran", 0),
        ("checkpoint", 1),
        ("released", 1),
        ("ran", 1),
        ("checkpoint", 2),
        ("results", 2),
    ]
