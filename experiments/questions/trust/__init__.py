"""What is trust worth: points at equal epsilon; joules and seconds at equal accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import (
    SECURE,
    STYLES,
    Question,
    accounted,
    by_seed,
    difference,
    line,
    logarithmic,
    mean,
    picture,
    trust_word,
    values_at,
)

COSTS = {"energy_j": "joules", "clock_s": "seconds"}


class Trust(Question):
    """Nobody, half, everybody trusted, or secure sums, at four epsilons."""

    name = "trust"
    alternative = "Accuracy at the end, and joules until the accuracy that is reached without trust, over epsilon"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """Every interval with an accuracy."""
        for row in run.metrics.dropna(subset=["accuracy"]).to_dict("records"):
            yield {
                "trust": trust_word(values["topology.trust"]),
                "epsilon": values["privacy.epsilon"],
                "seed": values["seed"],
                "interval": row["interval"],
                "accuracy": 100 * row["accuracy"],
                "energy_j": row["energy_j"],
                "clock_s": row["clock_s"],
                "accounted": accounted(run),
            }

    def last(self, table: pd.DataFrame) -> pd.DataFrame:
        """The last interval of every run."""
        return table[table["interval"] == table["interval"].max()]

    def target(self, table: pd.DataFrame, epsilon: float) -> float:
        """The accuracy that every run at an epsilon reaches: in every network, under every seed."""
        at = table[table["epsilon"] == epsilon]
        return float(at.groupby(["trust", "seed"])["accuracy"].max().min())

    def until(self, table: pd.DataFrame, trust: str, epsilon: float, cost: str) -> dict[int, float]:
        """Seed -> what was spent when a run first had that accuracy."""
        there = table[(table["trust"] == trust) & (table["epsilon"] == epsilon)]
        reached = there[there["accuracy"] >= self.target(table, epsilon)].sort_values("interval")
        return {int(seed): float(each) for seed, each in reached.groupby("seed")[cost].first().items()}

    def saving(self, table: pd.DataFrame, trust: str, epsilon: float, cost: str) -> Mean:
        """By how many per cent this is less than without trust, seed by seed."""
        own, other = (self.until(table, each, epsilon, cost) for each in (trust, "none"))
        return Mean.of([100 * (1 - own[seed] / other[seed]) for seed in own])

    def gain(self, table: pd.DataFrame, trust: str, epsilon: float) -> Mean:
        """Points above no trust at the end, seed by seed."""
        last = self.last(table)
        return difference(*(by_seed(last, trust=each, epsilon=epsilon) for each in (trust, "none")))

    def answer(self, table: pd.DataFrame) -> str:
        """Points and joules at either end of epsilon."""
        epsilons = values_at(table, "epsilon")
        low, high = epsilons[0], epsilons[-1]
        best = max(epsilons, key=lambda epsilon: self.saving(table, "all", epsilon, "energy_j").value)
        gain = {(trust, each): self.gain(table, trust, each) for trust in STYLES for each in (low, high)}
        return (
            f"**To trust all edge servers instead of none is worth {gain['all', low]} points of accuracy at epsilon "
            f"{low:g} and {gain['all', high]} at {high:g}; at equal accuracy it saves most at epsilon {best:g}, "
            f"{self.saving(table, 'all', best, 'energy_j')} % of the joules.** Exactly half of them are worth "
            f"{gain['half', low]} and {gain['half', high]} points, secure sums, which ask for no trust, "
            f"{gain[SECURE, low]} and {gain[SECURE, high]}."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Accuracy, joules and seconds over epsilon."""
        figure, (left, *others) = picture(3)
        epsilons, last = values_at(table, "epsilon"), self.last(table)
        for trust, style in STYLES.items():
            line(left, trust, style, {each: mean(by_seed(last, trust=trust, epsilon=each)) for each in epsilons})
            for axes, cost in zip(others, COSTS, strict=True):
                line(axes, trust, style, {each: mean(self.until(table, trust, each, cost)) for each in epsilons})
        left.set_ylabel("test accuracy, %")
        left.set_title("at the end", fontsize=10)
        for axes, word in zip(others, COSTS.values(), strict=True):
            axes.set_ylabel(word)
            axes.set_title("until what all reach", fontsize=10)
            axes.set_ylim(bottom=0)
        for axes in (left, *others):
            logarithmic(axes, epsilons)
            axes.set_xlabel(r"accounted $\epsilon$")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, title="edge servers trusted")
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each epsilon and network."""
        yield "| epsilon | trusted | accuracy, % | points gained | until, % | joules | seconds | joules saved, % |"
        yield "|---" * 8 + "|"
        last = self.last(table)
        for epsilon in values_at(table, "epsilon"):
            for trust in STYLES:
                joules, seconds = (mean(self.until(table, trust, epsilon, cost)) for cost in COSTS)
                more = ("", "") if trust == "none" else (
                    str(self.gain(table, trust, epsilon)), str(self.saving(table, trust, epsilon, "energy_j"))
                )  # fmt: skip
                yield (
                    f"| {epsilon:g} | {trust} | {mean(by_seed(last, trust=trust, epsilon=epsilon))} | {more[0]} | "
                    f"{self.target(table, epsilon):.1f} | {joules} | {seconds} | {more[1]} |"
                )
