"""What do liars cost: accuracy by their share, by epsilon, by trust and by the rule that adds up devices' uploads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import (
    Question,
    accounted,
    by_seed,
    difference,
    ends,
    line,
    mean,
    picture,
    trust_word,
    values_at,
)
from experiments.reproduction.panels import COLOURS

AVERAGE, TRIMMED, MEDIAN = "average", "trimmed mean", "median"
RULES: Mapping[str, tuple[str, str]] = {
    AVERAGE: (COLOURS[0], "o"),
    TRIMMED: (COLOURS[1], "s"),
    MEDIAN: (COLOURS[3], "D"),
}
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)))
TRUSTS = ("none", "all")


def rule_word(method: Mapping[str, Any]) -> str:
    """What adds up the uploads of devices.

    >>> rule_word({"aggregation": "average"}), rule_word({"aggregation": {"device": {"name": "trimmed-mean"}}})
    ('average', 'trimmed mean')
    """
    rule = method["aggregation"]
    rule = rule if isinstance(rule, str) else rule["device"]
    return (rule if isinstance(rule, str) else rule["name"]).replace("-", " ")


class Liars(Question):
    """Three shares of liars, three rules, two epsilons, without trust and with it."""

    name = "liars"
    alternative = "Accuracy over the share of devices that lie, for three rules and two epsilons"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run."""
        yield {
            "trust": trust_word(values["topology.trust"]),
            "epsilon": values["privacy.epsilon"],
            "liars": 100 * values["topology.adversaries"]["devices"],
            "rule": rule_word(values["method"]),
            "seed": values["seed"],
            **ends(run),
            "accounted": accounted(run),
        }

    def at(self, table: pd.DataFrame, trust: str, epsilon: float, rule: str, liars: float) -> dict[int, float]:
        """Accuracy by seed."""
        return by_seed(table, trust=trust, epsilon=epsilon, rule=rule, liars=liars)

    def lost(self, table: pd.DataFrame, trust: str, epsilon: float, rule: str, liars: float) -> Mean:
        """Points below an average of honest devices, seed by seed."""
        honest = self.at(table, trust, epsilon, AVERAGE, 0)
        return difference(honest, self.at(table, trust, epsilon, rule, liars))

    def answer(self, table: pd.DataFrame) -> str:
        """What the rules cost without liars, and save with them."""
        low, high = values_at(table, "epsilon")
        _, some, many = values_at(table, "liars")
        saved = {
            trust: difference(self.at(table, trust, high, TRIMMED, some), self.at(table, trust, high, AVERAGE, some))
            for trust in TRUSTS
        }
        price = {trust: self.lost(table, trust, low, TRIMMED, 0) for trust in TRUSTS}
        against = difference(
            self.at(table, "none", high, MEDIAN, many),
            max((self.at(table, "all", high, rule, many) for rule in RULES), key=lambda each: mean(each).value),
        )
        return (
            f"**With one liar in ten, at epsilon {high:g}, a trimmed mean of each edge server's devices ends "
            f"{saved['none']} points above the average where no edge server is trusted, and {saved['all']} where all "
            f"are. This insurance costs {price['none']} and {price['all']} points at epsilon {low:g} if all are "
            "honest:** a trusted edge server adds 5/3 of the noise to a trimmed mean of five, and five times as much "
            f"to a median ({self.lost(table, 'all', low, MEDIAN, 0)} points). With {many:g} % liars a median without "
            f"trust is {against} points above the best rule with trust, at epsilon {high:g}."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """A panel for each level of trust."""
        figure, panels = picture(2)
        epsilons, shares = values_at(table, "epsilon"), values_at(table, "liars")
        for axes, trust in zip(panels, TRUSTS, strict=True):
            for rule, (colour, marker) in RULES.items():
                for epsilon, dash in zip(reversed(epsilons), DASHES, strict=True):
                    points = {each: mean(self.at(table, trust, epsilon, rule, each)) for each in shares}
                    line(axes, rf"{rule}, $\epsilon$ = {epsilon:g}", (colour, dash, marker), points)
            axes.set_title(f"{trust} trusted", fontsize=10)
            axes.set_xlabel("devices that lie, %")
            axes.set_xticks(shares)
            axes.set_ylim(0, 90)
        panels[0].set_ylabel("test accuracy, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each epsilon, trust and rule."""
        shares = values_at(table, "liars")
        yield "| epsilon | trusted | rule | " + " | ".join(f"{each:g} % lie" for each in shares) + " |"
        yield "|---" * (3 + len(shares)) + "|"
        for epsilon in values_at(table, "epsilon"):
            for trust in TRUSTS:
                for rule in RULES:
                    cells = [str(mean(self.at(table, trust, epsilon, rule, each))) for each in shares]
                    yield f"| {epsilon:g} | {trust} | {rule} | " + " | ".join(cells) + " |"
