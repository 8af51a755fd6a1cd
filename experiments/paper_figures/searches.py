"""The trials of a search: accuracy over a cost, and the front of those that no other one beats in both."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import style

from h2fdp.errors import UserError, no_directory
from h2fdp.records.atomic import output_file
from h2fdp.records.tables import read_table
from h2fdp.reports.pictures import PLOT_SUFFIXES, STYLE, add_legend, new_picture
from h2fdp.tuning.results import TuneDirectory

UNITS = {"joules": "energy, J", "seconds": "simulated time, s", "bytes": "sent up, bytes"}
_LOOKS = {"done": ("o", "#0072B2"), "pruned": ("x", "#999999"), "over a limit": ("v", "#D55E00")}


def front_of(trials: pd.DataFrame, cost: str) -> pd.DataFrame:
    """The done trials that no other one beats in accuracy and this cost, by rising cost.

    >>> states = {"state": ["done"] * 3, "joules": [2.0, 1.0, 3.0], "validation_accuracy": [0.5, 0.6, 0.7]}
    >>> front_of(pd.DataFrame(states), "joules")["joules"].tolist()
    [1.0, 3.0]
    """
    done = trials[trials["state"] == "done"].sort_values([cost, "validation_accuracy"], ascending=[True, False])
    best = done["validation_accuracy"].cummax()
    return done[best > best.shift(fill_value=-1.0)]


def draw_search(search: Path, cost: str, path: Path) -> None:
    """Draw the trials of a search's directory.

    Raises:
        UserError: no search, no trial that has ended, or a file that cannot be written.
    """
    table = TuneDirectory(search).table
    if not table.is_file():
        raise no_directory(f"not a search directory (expected {table.name})", search)
    trials = read_table(table).to_pandas().dropna(subset=["validation_accuracy", cost])
    if trials.empty:
        raise UserError(f"no trial has an accuracy and {cost}", str(search))
    with style.context(STYLE), output_file(path, "--out", PLOT_SUFFIXES):
        picture, axes = new_picture()
        for state, (marker, colour) in _LOOKS.items():
            at = trials[trials["state"] == state]
            if len(at):
                axes.scatter(at[cost], 100 * at["validation_accuracy"], s=16, marker=marker, color=colour, label=state)
        front = front_of(trials, cost)
        axes.plot(front[cost], 100 * front["validation_accuracy"], color="#0072B2", marker="", linewidth=1)
        if (trials[cost] > 0).all():
            axes.set_xscale("log")
        axes.set_xlabel(UNITS[cost])
        axes.set_ylabel("validation accuracy, %")
        add_legend(picture, *axes.get_legend_handles_labels())
        picture.savefig(path)
