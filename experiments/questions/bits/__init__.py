"""How many bits does a noisy update need: accuracy, epsilon and joules by the bits of a coordinate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.questions.study import Question, accounted, by_seed, difference, ends, line, mean, picture, values_at
from experiments.reproduction.panels import COLOURS

WHOLE = 32.0
LINES = ((COLOURS[0], (0, (6, 2)), "o"), (COLOURS[4], (0, (6, 2, 1, 2)), "^"), (COLOURS[1], "-", "s"))


COLUMNS = ("accuracy", "energy_j", "clock_s", "megabytes")


class Bits(Question):
    """Stochastic quantisation of what devices send, at three epsilons, no edge server trusted."""

    name = "bits"
    alternative = "Accuracy over the bits of a coordinate at three epsilons, and joules over the same bits"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of a run."""
        yield {
            "epsilon": values["privacy.epsilon"],
            "bits": values["compression.device.quantise"],
            "seed": values["seed"],
            **ends(run),
            "megabytes": run.metrics["bytes"].iloc[-1] / 1e6,
            "accounted": accounted(run),
        }

    def answer(self, table: pd.DataFrame) -> str:
        """The fewest bits that lose at most a point at every epsilon, and what they save."""
        epsilons, bits = values_at(table, "epsilon"), values_at(table, "bits")
        losses = {
            each: [difference(*(by_seed(table, epsilon=at, bits=b) for b in (WHOLE, each))) for at in epsilons]
            for each in bits
        }
        fewest = min(each for each in bits if all(loss.value + loss.half <= 1 for loss in losses[each]))
        joules = [mean(by_seed(table, "energy_j", epsilon=epsilons[0], bits=b)).value for b in (fewest, WHOLE)]
        worst = [table[table["epsilon"] == at]["accounted"].max() for at in epsilons]
        pairs = zip(epsilons, losses[fewest], strict=True)
        words = ", ".join(f"{loss} points at epsilon {at:g}" for at, loss in pairs)
        return (
            f"**{fewest:g} bits a coordinate lose at most a point at every epsilon ({words}) and take "
            f"{100 * joules[0] / joules[1]:.0f} % of the joules.** Every account is that of 32 bits, since what is "
            "rounded is noisy already: the largest epsilon of any observer is "
            f"{', '.join(f'{each:.3f}' for each in worst)}."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Accuracy and joules over bits."""
        figure, (left, right) = picture(2)
        bits, epsilons = values_at(table, "bits"), values_at(table, "epsilon")
        for epsilon, style in zip(epsilons, LINES, strict=True):
            for axes, column in ((left, "accuracy"), (right, "energy_j")):
                points = {each: mean(by_seed(table, column, epsilon=epsilon, bits=each)) for each in bits}
                line(axes, rf"accounted $\epsilon$ = {epsilon:g}", style, points)
        for axes, label in ((left, "test accuracy, %"), (right, "joules")):
            axes.set_xscale("log", base=2)
            axes.set_xticks(bits, [f"{each:g}" for each in bits])
            axes.set_xlabel("bits a coordinate")
            axes.set_ylabel(label)
        right.set_ylim(bottom=0)
        left.legend(frameon=False, loc="lower right")
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each epsilon and number of bits."""
        yield "| epsilon | bits | accuracy, % | joules | seconds | MB sent up |"
        yield "|---" * 6 + "|"
        for epsilon in values_at(table, "epsilon"):
            for bits in values_at(table, "bits"):
                found = [mean(by_seed(table, each, epsilon=epsilon, bits=bits)) for each in COLUMNS]
                yield f"| {epsilon:g} | {bits:g} | " + " | ".join(map(str, found)) + " |"
