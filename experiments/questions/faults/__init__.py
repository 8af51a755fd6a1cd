"""What do stragglers and outages cost in epsilon: the epsilon at which a network without faults is as accurate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import (
    OFTEN,
    SECURE,
    SELDOM,
    STYLES,
    Question,
    accounted,
    by_seed,
    difference,
    ends,
    line,
    logarithmic,
    mean,
    picture,
    rhythm_word,
    trust_word,
    values_at,
)
from experiments.questions.trust import Trust
from experiments.reproduction.panels import COLOURS

NOTHING, DROPPED, OFFLINE, SLOW = "nothing fails", "30 % drop out", "27 % offline", "half are stragglers"
MARKS, PLACES = {DROPPED: "v", OFFLINE: "X"}, {DROPPED: 1.08, OFFLINE: 0.93}  # beside the curve


def fault_word(faults: Mapping[str, Any]) -> str:
    """What fails.

    >>> fault_word({"device_dropout": 0}), fault_word({"edge_outage": {"probability": 0.1, "intervals": 3}})
    ('nothing fails', '27 % offline')
    """
    if "edge_outage" in faults:
        outage = faults["edge_outage"]
        return f"{1 - (1 - outage['probability']) ** outage['intervals']:.0%} offline".replace("%", " %")
    if "straggler" in faults:
        return SLOW
    return DROPPED if faults["device_dropout"] else NOTHING


def equal_epsilon(curve: Mapping[float, float], accuracy: float) -> float:
    """The epsilon at which a rising curve has this accuracy, linear in the logarithm; NaN beyond its ends.

    >>> round(equal_epsilon({0.1: 70.0, 1.0: 80.0}, 75.0), 4)
    0.3162
    """
    epsilons = sorted(curve)
    heights = [curve[each] for each in epsilons]
    if not heights[0] <= accuracy <= heights[-1]:
        return float("nan")
    return float(np.exp(np.interp(accuracy, heights, np.log(epsilons))))


class Faults(Question):
    """Three kinds of failures, three levels of trust, two rhythms, at one epsilon."""

    name = "faults"
    alternative = "Accuracy over epsilon without faults, and where networks with faults are on these curves"

    def __init__(self) -> None:
        self._trust = Trust()

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run."""
        yield {
            "trust": trust_word(values["topology.trust"]),
            "rhythm": rhythm_word(values["training.local_steps"]),
            "fault": fault_word(values["faults"]),
            "seed": values["seed"],
            **ends(run),
            "accounted": accounted(run),
        }

    def curve(self, trust: str) -> dict[float, Mean]:
        """Accuracy without faults by epsilon, from the runs of `trust`."""
        last = self._trust.last(self._trust.read())
        return {epsilon: mean(by_seed(last, trust=trust, epsilon=epsilon)) for epsilon in values_at(last, "epsilon")}

    def unharmed(self, table: pd.DataFrame, trust: str, rhythm: str, column: str = "accuracy") -> dict[int, float]:
        """A number of the runs in which nothing fails, by seed."""
        if trust == SECURE or rhythm == SELDOM:
            return by_seed(table, column, trust=trust, rhythm=rhythm, fault=NOTHING)
        return by_seed(self._trust.last(self._trust.read()), column, trust=trust, epsilon=self.epsilon)

    epsilon = 0.3

    def lost(self, table: pd.DataFrame, trust: str, rhythm: str, fault: str) -> Mean:
        """Points lost to a fault."""
        own = by_seed(table, trust=trust, rhythm=rhythm, fault=fault)
        return difference(self.unharmed(table, trust, rhythm), own)

    def as_if(self, table: pd.DataFrame, trust: str, fault: str) -> tuple[float, float, float]:
        """The epsilon at which nothing failing is as accurate: by the mean loss, and by the ends of its interval.

        Losses are taken seed by seed: what networks differ by does not blur them.
        """
        curve = {epsilon: each.value for epsilon, each in self.curve(trust).items()}
        lost, unharmed = self.lost(table, trust, OFTEN, fault), curve[self.epsilon]
        low, value, high = (equal_epsilon(curve, unharmed - lost.value + sign * lost.half) for sign in (-1, 0, 1))
        return value, low, high

    def word(self, table: pd.DataFrame, trust: str, fault: str) -> str:
        """That epsilon in a table."""
        least = min(self.curve(trust))
        value, low, high = (
            f"below {least:g}" if np.isnan(each) else f"{each:.2f}" for each in self.as_if(table, trust, fault)
        )
        return f"{value} ({low} to {high})"

    def answer(self, table: pd.DataFrame) -> str:
        """As if epsilon were."""
        dropped, offline = (
            [self.word(table, trust, fault) for trust in ("none", "all")] for fault in (DROPPED, OFFLINE)
        )
        return (
            "**Whatever fails, accounts are held to their epsilon, so the price is accuracy. In epsilon: with 30 % of "
            f"the devices dropping out of an interval, a network held to {self.epsilon:g} is as accurate as "
            "one without "
            f"faults at {dropped[0]} where nobody is trusted and at {dropped[1]} where all edge servers are.** Edge "
            f"servers that are offline for 27 % of the time: {offline[0]} and {offline[1]}. Stragglers cost "
            f"{self.lost(table, 'none', SELDOM, SLOW)} points with ten steps between messages, and nothing with one."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """The curves without faults with the runs of faulty networks beside them, and points lost."""
        figure, (left, right) = picture(2)
        for trust in ("none", "all"):
            line(left, f"{trust} trusted, nothing fails", STYLES[trust], self.curve(trust))
            for fault in (DROPPED, OFFLINE):
                own = mean(by_seed(table, trust=trust, rhythm=OFTEN, fault=fault))
                left.errorbar(
                    [self.epsilon * PLACES[fault]], [own.value], [own.half], color=STYLES[trust][0],
                    marker=MARKS[fault], mfc="white", capsize=2, linestyle="none", label=f"{trust} trusted, {fault}",
                )  # fmt: skip
        logarithmic(left, list(self.curve("none")))
        left.set_xlabel(r"accounted $\epsilon$ of every observer")
        left.set_ylabel("test accuracy, %")
        left.legend(fontsize=7, frameon=False)
        shown = self.harmed(table)
        losses = [self.lost(table, *each) for each in shown]
        places = np.arange(len(shown))
        right.barh(
            places, [each.value for each in losses], xerr=[each.half for each in losses], color=COLOURS[1], capsize=3
        )
        rhythms = {OFTEN: "", SELDOM: ",\nten steps"}
        right.set_yticks(places, [f"{trust}: {fault}{rhythms[rhythm]}" for trust, rhythm, fault in shown], fontsize=7)
        right.invert_yaxis()
        right.set_xlabel("points lost at equal epsilon")
        return figure

    def harmed(self, table: pd.DataFrame) -> list[tuple[str, str, str]]:
        """Networks in which something fails, in the order of the runs."""
        rows = table[table["fault"] != NOTHING]
        return list(dict.fromkeys(zip(rows["trust"], rows["rhythm"], rows["fault"], strict=True)))

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each."""
        yield "| trusted | rhythm | what fails | accuracy, % | points lost | as if epsilon were | joules |"
        yield "|---" * 7 + "|"
        for trust, rhythm, fault in self.harmed(table):
            own = {
                column: mean(by_seed(table, column, trust=trust, rhythm=rhythm, fault=fault))
                for column in ("accuracy", "energy_j")
            }
            as_if = self.word(table, trust, fault) if rhythm == OFTEN and trust != SECURE else ""
            lost = self.lost(table, trust, rhythm, fault)
            yield f"| {trust} | {rhythm} | {fault} | {own['accuracy']} | {lost} | {as_if} | {own['energy_j']} |"
