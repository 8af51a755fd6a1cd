"""What do trusted roadside units buy a car: accuracy, epsilon of one unit and of all on its way, joules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import Question, accounted, by_seed, difference, line, mean, picture, values_at
from experiments.reproduction.panels import COLOURS

OBSERVERS = {"edge": "all units together", "single-edge": "the worst unit by itself", "cloud": "the cloud"}
LINES = ((COLOURS[0], (0, (6, 2)), "o"), (COLOURS[1], "-", "s"), (COLOURS[3], (0, (2, 1.5)), "D"))


class Cars(Question):
    """Shares of trusted roadside units from none to all, for cars that move between them."""

    name = "cars"
    alternative = (
        "Accuracy, epsilon by observer, and joules until an accuracy, over the share of trusted roadside units"
    )

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """Every evaluation, with the mean epsilon of cars at the end."""
        cars = list(run.summary["privacy"]["devices"])
        means = {each: _mean_epsilon(run, each, cars) for each in OBSERVERS}
        for row in run.metrics.dropna(subset=["accuracy"]).to_dict("records"):
            yield {
                "trusted": values["topology.trust.trusted"],
                "epsilon": run.summary["privacy"]["target"],
                "seed": values["seed"],
                "interval": row["interval"],
                "accuracy": 100 * row["accuracy"],
                "energy_j": row["energy_j"],
                **means,
                "accounted": accounted(run),
            }

    def last(self, table: pd.DataFrame) -> pd.DataFrame:
        """The last interval of every run."""
        return table[table["interval"] == table["interval"].max()]

    def joules(self, table: pd.DataFrame, trusted: float) -> Mean:
        """Until the accuracy that every run reaches."""
        target = table.groupby(["trusted", "seed"])["accuracy"].max().min()
        there = table[(table["trusted"] == trusted) & (table["accuracy"] >= target)].sort_values("interval")
        return Mean.of(there.groupby("seed")["energy_j"].first().tolist())

    def answer(self, table: pd.DataFrame) -> str:
        """What half and all of the units are worth."""
        last = self.last(table)
        gain = [difference(*(by_seed(last, trusted=each) for each in (share, 0.0))) for share in (0.5, 1.0)]
        alone, together = (mean(by_seed(last, each, trusted=0.0)) for each in ("single-edge", "edge"))
        return (
            f"**With all roadside units trusted a model of epsilon 0.3 is {gain[1]} points better than with none, with "
            f"half of them {gain[0]}.** With none trusted, all units together hold an epsilon of {_two(together)} of a "
            f"car in the mean, the worst unit on its way by itself {_two(alone)}."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Three panels over the share of trusted units."""
        figure, (left, middle, right) = picture(3, 8.4)
        last, shares = self.last(table), values_at(table, "trusted")
        line(left, "", LINES[1], {each: mean(by_seed(last, trusted=each)) for each in shares})
        for (observer, label), style in zip(OBSERVERS.items(), LINES, strict=True):
            line(middle, label, style, {each: mean(by_seed(last, observer, trusted=each)) for each in shares})
        line(right, "", LINES[1], {each: self.joules(table, each) for each in shares})
        for axes, label in (
            (left, "test accuracy, %"),
            (middle, r"$\epsilon$ of a car, mean"),
            (right, "joules until an accuracy"),
        ):
            axes.set_xlabel("share of units that are trusted")
            axes.set_ylabel(label)
        for axes in (middle, right):
            axes.set_ylim(bottom=0)
        middle.legend(frameon=False, fontsize=8)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each share."""
        yield (
            "| trusted | accuracy, % | " + " | ".join(f"epsilon, {each}" for each in OBSERVERS.values()) + " | joules |"
        )
        yield "|---" * (3 + len(OBSERVERS)) + "|"
        last = self.last(table)
        for share in values_at(table, "trusted"):
            epsilons = " | ".join(_two(mean(by_seed(last, each, trusted=share))) for each in OBSERVERS)
            yield f"| {share:g} | {mean(by_seed(last, trusted=share))} | {epsilons} | {self.joules(table, share)} |"


def _mean_epsilon(run: h2fdp.Run, observer: str, cars: list[str]) -> float:
    """Over the cars of which this observer has an account; nothing where it has none."""
    known = [car for car in cars if observer in run.summary["privacy"]["devices"][car]]
    return float(np.mean([run.privacy.epsilon(observer, "pld", device=car) for car in known] or [math.nan]))


def _two(found: Mean) -> str:
    return "-" if math.isnan(found.value) else f"{found.value:.2f} ± {found.half:.2f}"
