"""How deep should a tree be: the same devices under one, two and three tiers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.questions.study import Question, accounted, by_seed, difference, ends, mean, picture
from experiments.reproduction.panels import COLOURS

NETWORKS = {  # words, and how many nodes add the noise of a message to the cloud
    "none": ("8 edge servers,\nnone trusted", 48),
    "flat-24": ("24 edge\nservers", 24),
    "flat-8": ("8 edge\nservers", 8),
    "two-tiers-below": ("8 below 2\nuntrusted", 8),
    "flat-2": ("2 edge\nservers", 2),
    "two-tiers": ("8 below 2\nregions", 2),
    "three-tiers": ("8 below 4\nbelow 2", 2),
}


def noise(adding: int) -> float:
    """Noise in the cloud's average where so many nodes of equal size add theirs, in that of a single one.

    >>> noise(4)
    2.0
    """
    return math.sqrt(adding)


class Depth(Question):
    """48 devices below the cloud."""

    name = "depth"
    alternative = "Accuracy, joules and seconds of seven networks of 48 devices"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run."""
        yield {
            "network": Path(values["topology"]).stem,
            "seed": values["seed"],
            **ends(run),
            "accounted": accounted(run),
        }

    def at(self, table: pd.DataFrame, network: str, column: str = "accuracy") -> dict[int, float]:
        """By seed."""
        return by_seed(table, column, network=network)

    def answer(self, table: pd.DataFrame) -> str:
        """Depth against breadth."""
        deeper = difference(self.at(table, "two-tiers"), self.at(table, "flat-2"))
        third = difference(self.at(table, "three-tiers"), self.at(table, "two-tiers"))
        fewer = difference(self.at(table, "flat-2"), self.at(table, "flat-24"))
        below = difference(self.at(table, "two-tiers-below"), self.at(table, "flat-8"))
        joules, seconds = (
            {network: mean(self.at(table, network, column)).value for network in NETWORKS}
            for column in ("energy_j", "clock_s")
        )
        return (
            "**Two tiers, with few trusted servers at the top: accuracy follows from how many nodes add noise, "
            "whatever the "
            "depth, and many small servers below them save time.** Two trusted servers instead of 24 are "
            f"worth {fewer} "
            f"points. Eight servers below the two change {deeper} points and take {seconds['two-tiers']:.1f} s "
            "instead of "
            f"{seconds['flat-2']:.1f}, for {100 * (joules['two-tiers'] / joules['flat-2'] - 1):.0f} % more "
            "joules; a third "
            f"tier changes {third} points and takes "
            f"{100 * (joules['three-tiers'] / joules['two-tiers'] - 1):.0f} % more "
            f"again. Untrusted regions above trusted servers change {below}."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Accuracy, and bars of joules and seconds."""
        figure, panels = picture(3, height=3.4)
        places = np.arange(len(NETWORKS))
        colours = [COLOURS[{48: 0, 2: 2}.get(adding, 1)] for _, adding in NETWORKS.values()]
        words = {"accuracy": "test accuracy, %", "energy_j": "joules", "clock_s": "seconds"}
        for axes, (column, word) in zip(panels, words.items(), strict=True):
            means = [mean(self.at(table, network, column)) for network in NETWORKS]
            if column == "accuracy":  # no bars: they would have to begin at 0
                for place, found, colour in zip(places, means, colours, strict=True):
                    axes.errorbar([place], [found.value], [found.half], color=colour, marker="o", capsize=3)
            else:
                halves = [each.half for each in means]
                axes.bar(places, [each.value for each in means], yerr=halves, color=colours, capsize=2)
            axes.set_xticks(places, [label for label, _ in NETWORKS.values()], fontsize=7, rotation=90)
            axes.set_title(word, fontsize=10)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each network."""
        yield "| network | nodes that add noise | noise, by formula | accuracy, % | joules | seconds |"
        yield "|---" * 6 + "|"
        for network, (words, adding) in NETWORKS.items():
            found = [str(mean(self.at(table, network, column))) for column in ("accuracy", "energy_j", "clock_s")]
            yield f"| {words.replace(chr(10), ' ')} | {adding} | {noise(adding):.2f} | " + " | ".join(found) + " |"
