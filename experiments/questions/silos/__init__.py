"""How much should silos share: accuracy of their own models over the pull to the mean, by epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import Question, accounted, by_seed, clear, difference, line, mean, picture, values_at
from experiments.reproduction.panels import COLOURS

ALONE, SHARED = "0", "infinite"
_STYLES = list(zip(COLOURS[:1] + COLOURS[4:5] + COLOURS[1:2], ("-", "-", "-"), ("o", "^", "s"), strict=True))


class Silos(Question):
    """Six lambdas, three epsilons."""

    name = "silos"
    alternative = "Accuracy of silos' own models, and of the worst tenth of them, over lambda, at three epsilons"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run."""
        last = run.metrics.iloc[-1]
        yield {
            "epsilon": values["privacy.epsilon"],
            "penalty": values["method"]["objective"]["penalty"],
            "seed": values["seed"],
            "accuracy": 100 * last["personal_accuracy"],
            "worst": 100 * last["device_accuracy_worst_tenth"],
            "accounted": accounted(run),
        }

    def at(self, table: pd.DataFrame, epsilon: float, penalty: str, column: str = "accuracy") -> dict[int, float]:
        """By seed."""
        return by_seed(table.astype({"penalty": str}), column, epsilon=epsilon, penalty=penalty)

    def penalties(self, table: pd.DataFrame) -> list[str]:
        """In order, `infinite` last."""
        return sorted(table["penalty"].astype(str).unique(), key=lambda each: float("inf" if each == SHARED else each))

    def best(self, table: pd.DataFrame, epsilon: float) -> str:
        """The lambda with the best mean."""
        return max(self.penalties(table), key=lambda each: mean(self.at(table, epsilon, each)).value)

    def answer(self, table: pd.DataFrame) -> str:
        """What the best lambda gains over both ends, and whether that is clear."""
        found = []
        for epsilon in values_at(table, "epsilon"):
            best = self.best(table, epsilon)
            over = [difference(self.at(table, epsilon, best), self.at(table, epsilon, end)) for end in (ALONE, SHARED)]
            alone, shared = (
                f"{each} points" + ("" if clear(each) else " (not settled by these seeds)") for each in over
            )
            found.append(
                f"at epsilon {epsilon:g} the best mean has lambda {best}, {alone} above silos alone and {shared} above "
                "one shared model"
            )
        return f"**{'; '.join(found)}.** The best lambda was chosen by the same runs.".replace("**at", "**At", 1)

    def draw(self, table: pd.DataFrame) -> Figure:
        """Means on the left, the worst tenth on the right."""
        figure, panels = picture(2)
        names = self.penalties(table)
        for axes, column, title in zip(panels, ("accuracy", "worst"), ("mean", "worst tenth"), strict=True):
            for epsilon, style in zip(values_at(table, "epsilon"), _STYLES, strict=True):
                points: dict[float, Mean] = {
                    float(place): mean(self.at(table, epsilon, name, column)) for place, name in enumerate(names)
                }
                line(axes, rf"$\epsilon$ = {epsilon:g}", style, points)
            axes.set_xticks(range(len(names)), [r"$\infty$" if each == SHARED else each for each in names])
            axes.set_title(f"{title} of silos", fontsize=10)
            axes.set_xlabel(r"$\lambda$ (0: each alone, $\infty$: one model)")
        panels[0].set_ylabel("test accuracy, %")
        panels[0].legend(frameon=False, fontsize=8)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each epsilon."""
        names = self.penalties(table)
        yield "| epsilon | of silos | " + " | ".join(f"lambda {each}" for each in names) + " |"
        yield "|---" * (2 + len(names)) + "|"
        for epsilon in values_at(table, "epsilon"):
            for column, word in (("accuracy", "mean"), ("worst", "worst tenth")):
                cells = [str(mean(self.at(table, epsilon, each, column))) for each in names]
                yield f"| {epsilon:g} | {word} | " + " | ".join(cells) + " |"
