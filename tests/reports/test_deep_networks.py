"""Reports about runs with more than one tier of edge servers: every observer of the tree is in them."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from h2fdp import Experiment, Run, Topology, report
from h2fdp.cli.main import app
from h2fdp.network import read
from h2fdp.reports.observers import verdict_rows
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
    assert page.figure("epsilon-tier-2")["title"] == "Epsilon of the observer tier-2"
    assert "an edge server above its own, of height 2" in page.words
    curves = page.figure("epsilon-tier-2")["curves"]  # under a target nothing is claimed
    assert [curve["column"] for curve in curves] == ["epsilon_tier-2", "epsilon_target"]
    assert "laimed" not in page.words


def test_a_killed_run_tells_the_account_of_every_tier(deep):
    view = RunView.read(deep, "deep")
    view.summary["privacy"] = None
    for row in verdict_rows(view):
        assert row[3] == pytest.approx(view.metrics[f"epsilon_{row[1]}"][-1])


def test_an_upper_tier_of_trusted_edge_servers_is_trusted(tmp_path):
    trusted = Topology.deep(tiers=(1, 1, 2), trust=1.0)
    run = Experiment(topology=trusted, aggregate_every=[1, 1], **SETTINGS).run(tmp_path / "run")
    found = {row[1]: row[5] for row in verdict_rows(RunView.read(run.directory, "run"))}
    assert (found["edge"], found["tier-2"]) == ("trusted", "trusted")


def test_a_sweep_shows_the_tiers_too(tmp_path):
    (tmp_path / "network.yaml").write_text(NETWORK)
    training = "{intervals: 2, local_steps: 2, batch_size: 4, aggregate_every: [1, 1]}"
    (tmp_path / "study.yaml").write_text(
        f"name: deep\ndata: digits\ntopology: network.yaml\ntraining: {training}\nsweep: {{privacy.epsilon: [1, 4]}}\n"
    )
    arguments = ["sweep", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    (head,) = (at for at, line in enumerate(lines) if line.split()[-3:] == ["(pld)", "energy,", "J"])
    rows = [line.split() for line in lines[head + 2 : head + 4]]
    summary = pd.read_parquet(tmp_path / "out" / "summary.parquet").query("interval == 2")
    assert all(summary["epsilon_tier-2_mean"] > summary["epsilon_peer_mean"])
    worst = [Run(path.parent).summary["privacy"]["worst"] for path in tmp_path.rglob("summary.json")]
    largest = sorted(max(each["pld"] for each in found.values()) for found in worst)
    assert largest == sorted(found["tier-2"]["pld"] for found in worst)
    assert sorted(float(row[-2]) for row in rows) == pytest.approx(largest, rel=1e-3)
    page = Page(report(tmp_path / "out"))
    assert "epsilon_tier-2" in page.figure("explorer")["metrics"]
    assert page.figure("epsilon-tier-2")
