"""Panels of bars: what is drawn, and what is said where runs reach too little to be compared."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.reproduction.figures_file import Bars
from experiments.reproduction.panels import draw_panel
from experiments.reproduction.results import Results

PANEL = Bars.model_validate(
    {
        "kind": "bars",
        "measure": "energy to target",
        "target": 60,
        "lines": [{"label": "one", "at": {"method": "one"}}, {"label": "two", "at": {"method": "two"}}],
    }
)


def drawn(reached):
    """The panel of two methods under two seeds, whose accuracy is constant at the level reached."""
    values = {f"{method}{seed}": {"method": method, "seed": seed} for method in ("one", "two") for seed in (1, 2)}
    rows = [
        {"run": run, "interval": interval, "accuracy": reached, "energy_j": interval * (1 + (at["method"] == "two"))}
        for run, at in values.items()
        for interval in range(1, 7)
    ]
    axes = Figure().subplots()
    draw_panel(axes, PANEL, Results(values, pd.DataFrame(rows)))
    return axes


def test_bars_have_the_cost_at_which_the_mean_of_five_intervals_reaches_the_target():
    axes = drawn(0.7)
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([5, 10])
    assert "60.0 %" in axes.get_ylabel()
    assert not axes.texts


def test_a_target_that_not_all_reach_gives_way_to_what_they_do():
    assert "45.0 %" in drawn(0.45).get_ylabel()


def test_where_too_little_is_reached_nothing_is_drawn_and_that_is_said():
    axes = drawn(0.39)
    assert not axes.patches
    assert "39.0 % in common" in axes.texts[0].get_text()
