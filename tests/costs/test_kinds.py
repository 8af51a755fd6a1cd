"""Costs are rows of one registry: a further one is a row and its formula."""

import json
import subprocess
import sys

import pandas as pd
import pytest

FILE = """
name: cooled
seed: 1
topology: {name: wet, edges: [{name: "edge-{i}", repeat: 2, devices: {count: 2}, trusted: false}]}
data: digits
model: softmax
training: {intervals: 6, local_steps: 2, batch_size: 5, step_size: 0.1, clip_norm: 1.0, until: {litres: 0.0027}}
privacy: {epsilon: 3, delta: 1.0e-5}
sweep: {seed: [1, 2]}
"""
# Two litres for a gigabyte, and a tenth of a litre a second for the pump.
WATER = """
import json, sys
from h2fdp.costs.kinds import COSTS, Cost

def litres(cost, network, began_s):
    assert network.name == "wet"
    return 2e-9 * cost.bytes + 0.1 * cost.clock_s

COSTS["water_l"] = Cost(
    "water_l", "water", "l", "water so far", "litres", "litres", "", litres, lambda network: network.name == "wet"
)
from typer.testing import CliRunner
from h2fdp.cli.main import app
print(json.dumps([CliRunner().invoke(app, words.split()).stdout for words in sys.argv[1:]]))
"""


@pytest.mark.process
def test_a_row_is_all_that_a_further_cost_needs(tmp_path):
    (tmp_path / "wet.yaml").write_text(FILE)
    commands = (
        "run wet.yaml --out run --quiet",
        "run wet.yaml --dry-run --set training.until=null",
        "privacy explain wet.yaml",
        "sweep wet.yaml --out sweep --jobs 1 --quiet",
        "table sweep --show target_water_l --target 0.1",
        "plot sweep --x water_l --out water.svg",
        "report run",
        "report sweep",
    )
    made = subprocess.run([sys.executable, "-c", WATER, *commands], cwd=tmp_path, check=True, capture_output=True)
    ran, dry, explained, swept, table, drawn, *_ = json.loads(made.stdout)
    metrics = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    by_hand = 2e-9 * metrics.bytes + 0.1 * metrics.clock_s
    assert metrics.water_l.tolist() == pytest.approx(by_hand.tolist(), rel=1e-9)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["water_l"] == metrics.water_l.iloc[-1] >= 0.0027 > metrics.water_l.iloc[-2]
    assert summary["state"] == "litres reached"
    assert f"{summary['water_l']:.4g} l water" in ran
    found = {"dry": " l water", "explained": " l water, delay", "swept": "water, l", "table": "l water to 10 %"}
    shown = {"dry": dry, "explained": explained, "swept": swept, "table": table}
    assert {name for name, words in found.items() if words in shown[name]} == found.keys()
    assert drawn.strip() == "water.svg"
    for page in ("run", "sweep"):
        text = (tmp_path / page / "report.html").read_text()
        assert text.count("water (l)") > 0 < text.count(">litres<"), page
    means = pd.read_parquet(tmp_path / "sweep" / "summary.parquet")
    assert means.water_l_mean.is_monotonic_increasing
