"""What notebooks show: HTML of an experiment, its network, its explanation and its run; progress while it runs."""

import pytest

from h2fdp import Experiment, Topology, explain


@pytest.fixture(scope="module")
def experiment():
    topology = Topology.regular(edges=2, devices=2, trust=1)
    settings = {"intervals": 2, "local_steps": 2, "aggregate_every": 2, "epsilon": 20.0, "calibration": "paper"}
    settings["accountant"] = "pld"
    return Experiment(topology=topology, data="digits", method="h2fdp", name="a<b".replace("<", "-"), **settings)


def test_each_has_html_and_a_short_text(experiment, tmp_path, capsys):
    run = experiment.run(tmp_path / "run", progress=True)
    assert "\r2/2  accuracy 0." in capsys.readouterr().err
    assert "4 devices under 2 edge servers" in experiment._repr_html_()
    assert "<td" in experiment.topology._repr_html_()
    assert "edge-2" in experiment.topology._repr_html_()
    html = run._repr_html_()
    assert "<svg" in html
    assert "epsilon (pld)" in html
    assert repr(run).startswith(f"Run('{tmp_path / 'run'}': done, accuracy 0.")
    assert repr(experiment) == "Experiment('a-b': h2fdp on digits, 4 devices)"
    assert repr(experiment.topology).endswith(": 4 devices under 2 edge servers, 2 trusted)")
    assert repr(run.privacy).endswith("delta=1e-05, accountant='pld')")
    told = explain(experiment)
    assert str(told).splitlines()[0].startswith("what is learned about")
    assert sum(each.numel() for each in run.model.parameters()) == 640
