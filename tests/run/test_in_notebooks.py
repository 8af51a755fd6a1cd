"""What notebooks show: HTML of an experiment, its network, its explanation and its run; progress while it runs."""

import sys
from types import ModuleType

import pytest

from h2fdp import Experiment, Topology, explain
from h2fdp.run.tracking import PythonProgress


@pytest.fixture(scope="module")
def experiment():
    topology = Topology.regular(edges=2, devices=2, trust=1)
    settings = {"intervals": 2, "local_steps": 2, "aggregate_every": 2, "epsilon": 20.0, "calibration": "paper"}
    return Experiment(topology=topology, data="digits", method="h2fdp", name="a<b".replace("<", "-"), **settings)


def test_each_has_html_and_a_short_text(experiment, tmp_path):
    run = experiment.run(tmp_path / "run")
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


def test_progress_is_a_bar_in_a_notebook_and_a_line_on_request(monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    kernel, display = ModuleType("IPython"), ModuleType("IPython.display")
    kernel.get_ipython = lambda: type("Shell", (), {"kernel": 1})()
    display.HTML, display.display = str, lambda html, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    PythonProgress(4).update(4, "accuracy 0.5")
    assert shown == ['<progress value="1.0000" max="1"></progress> 4/4  accuracy 0.5  0 s left']
    monkeypatch.delitem(sys.modules, "IPython")
    quiet, loud = PythonProgress(2), PythonProgress(2, True)
    quiet.interval({"interval": 1, "accuracy": 0.25})
    assert capsys.readouterr().err == ""
    loud.interval({"interval": 1, "accuracy": 0.25})
    loud.close()
    assert "1/2  accuracy 0.25" in capsys.readouterr().err
