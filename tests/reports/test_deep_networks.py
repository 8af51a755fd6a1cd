"""Reports about runs with more than one tier of edge servers: every observer of the tree is in them."""

import json

import pytest

from h2fdp import Experiment, report
from h2fdp.network import read
from h2fdp.reports.results import verdict_rows
from h2fdp.reports.run_view import RunView
from tests.reports.pages import Page

pytestmark = pytest.mark.run
# The edge servers are trusted and the region above them is not: it sees more than anybody else.
NETWORK = """
name: deep
edges:
  - name: region
    trusted: false
    edges:
      - {name: a, trusted: true, devices: {count: 2}}
      - {name: b, trusted: true, devices: {count: 1}}
      - {name: c, trusted: true, devices: {count: 1}}
"""
OBSERVERS = ["edge", "tier-2", "peer", "cloud", "public"]
SETTINGS = {"intervals": 2, "local_steps": 2, "batch_size": 4, "epsilon": 4.0}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deep")
    (folder / "network.yaml").write_text(NETWORK)
    topology = read(folder / "network.yaml", seed=1)
    run = Experiment(topology=topology, name="deep", calibration="accounted", aggregate_every=[1, 1], **SETTINGS)
    return run.run(folder / "run").directory


def test_every_tier_has_a_verdict_and_a_curve(deep, tmp_path):
    worst = json.loads((deep / "summary.json").read_text())["privacy"]["worst"]
    rows = {row[1]: row for row in verdict_rows(RunView.read(deep, "deep"))}
    assert list(rows) == OBSERVERS
    assert rows["edge"][5] == "trusted"
    for observer in OBSERVERS[1:]:  # the default of target_observers is all there are
        assert rows[observer][3:6] == [worst[observer]["pld"], "pld", "met"]
    page = Page(report(deep, tmp_path / "page.html"))
    assert "an edge server above its own, of height 2" in page.words
    curves = page.figure("epsilon")["curves"]  # under a target nothing is claimed
    assert curves[-1]["column"] == "epsilon_target"
    drawn = ", ".join(curve["label"] for curve in curves[:-1]).removeprefix(f"all {len(OBSERVERS) - 1}: ").split(", ")
    assert sorted(drawn) == sorted(OBSERVERS[1:])  # curves that coincide are one
    assert "laimed" not in page.words
