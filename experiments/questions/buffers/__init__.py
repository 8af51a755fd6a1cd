"""Wait for all, for some, or until a deadline: accuracy over simulated seconds at one account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import Question, accounted, clear, difference, mean, picture
from experiments.reproduction.panels import COLOURS

ALL = "all"
MARKS = ("o", "^", "s", "D", "v", "P")


def round_word(method: Any) -> str:
    """What a kind of round is called.

    >>> round_word({"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"cloud": 3}}})
    'buffer of 3'
    >>> round_word("h2fdp")
    'all'
    """
    if isinstance(method, str):
        return ALL
    schedule = method["schedule"]
    if schedule.get("deadline_s") == "median":
        return "deadline of half"
    if "deadline_s" in schedule:
        return f"deadline {schedule['deadline_s']:g} s"
    return f"buffer of {schedule['buffer']['cloud']}"


class Buffers(Question):
    """Rounds of all edge servers, of the first K, and of those that arrive in time; half of them are slow."""

    name = "buffers"
    alternative = "Accuracy over simulated seconds for synchronous rounds, buffers and deadlines, all at one epsilon"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """Every evaluation."""
        for row in run.metrics.dropna(subset=["accuracy"]).to_dict("records"):
            yield {
                "round": round_word(values["method"]),
                "seed": values["seed"],
                "interval": row["interval"],
                "accuracy": 100 * row["accuracy"],
                "energy_j": row["energy_j"],
                "clock_s": row["clock_s"],
                "accounted": accounted(run),
            }

    def kinds(self, table: pd.DataFrame) -> list[str]:
        """The kinds of rounds, as they were run."""
        return list(dict.fromkeys(table["round"]))

    def last(self, table: pd.DataFrame, kind: str, column: str = "accuracy") -> dict[int, float]:
        """Seed -> a number at the end of its run."""
        rows = table[table["round"] == kind].sort_values("interval").groupby("seed").last()
        return {int(seed): float(each) for seed, each in rows[column].items()}

    def answer(self, table: pd.DataFrame) -> str:
        """Which kind of round ends best, and by how much."""
        whole = self.last(table, ALL)
        gains = {each: difference(self.last(table, each), whole) for each in self.kinds(table) if each != ALL}
        best = max(gains, key=lambda each: gains[each].value)
        if clear(gains[best]) and gains[best].value > 0:
            first = f"a {best} ends {gains[best]} points above rounds that wait for all"
        else:
            first = f"nothing is better than to wait for all; next is a {best}, {gains[best]} points"
        others = ", ".join(f"{each} {gain}" for each, gain in gains.items() if each != best)
        return (
            f"**At one account and in one time {first}.** The others against waiting for all: {others} points. Rounds "
            "that do not wait release more often, so their noise is larger: each run ends at an epsilon of at most "
            f"{table['accounted'].max():.3f} for every observer."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Curves over simulated seconds."""
        figure, (axes,) = picture(1, 6.4, 3.6)
        for kind, colour, mark in zip(self.kinds(table), COLOURS, MARKS, strict=False):
            rows = table[table["round"] == kind]
            curve = rows.groupby("interval")[["clock_s", "accuracy"]].mean()
            axes.plot(curve["clock_s"], curve["accuracy"], color=colour, linewidth=1.3)
            end = mean(self.last(table, kind))
            axes.errorbar(
                curve["clock_s"].iloc[-1:],
                [end.value],
                [end.half],
                color=colour,
                marker=mark,
                markersize=5,
                capsize=2,
                label=kind,
            )
        axes.set_xlabel("simulated seconds")
        axes.set_ylabel("test accuracy, %")
        axes.set_ylim(bottom=float(np.percentile(table["accuracy"], 8)))
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), title="the cloud waits for")
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each kind of round."""
        yield "| the cloud waits for | rounds | seconds | joules | accuracy, % | epsilon |"
        yield "|---" * 6 + "|"
        for kind in self.kinds(table):
            found: list[Mean] = [mean(self.last(table, kind, each)) for each in ("clock_s", "energy_j", "accuracy")]
            rounds = table[table["round"] == kind]["interval"].max()
            worst = table[table["round"] == kind]["accounted"].max()
            yield f"| {kind} | {rounds:g} | {found[0]} | {found[1]} | {found[2]} | {worst:.3f} |"
