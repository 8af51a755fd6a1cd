"""Non-iid data against noise: which costs more, and whether they add up."""

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
    SELDOM,
    Question,
    accounted,
    by_seed,
    difference,
    ends,
    mean,
    picture,
    rhythm_word,
    values_at,
)
from experiments.reproduction.panels import COLOURS

NO_NOISE, EPSILON = "no noise", "epsilon 0.3"


class Labels(Question):
    """1, 3 or 10 labels on each of 50 devices, with and without noise."""

    name = "labels"
    alternative = "Accuracy by labels on a device, with and without noise, for two rhythms"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run."""
        noisy = values["method"] != "hfl"
        yield {
            "rhythm": rhythm_word(values["training.local_steps"]),
            "noise": EPSILON if noisy else NO_NOISE,
            "labels": values["data.partition.labels_per_device"],
            "seed": values["seed"],
            **ends(run),
            "accounted": accounted(run) if noisy else np.nan,
        }

    def at(self, table: pd.DataFrame, rhythm: str, noise: str, labels: float) -> dict[int, float]:
        """Accuracy by seed."""
        return by_seed(table, rhythm=rhythm, noise=noise, labels=labels)

    def noises(self, table: pd.DataFrame) -> list[str]:
        """Without noise first."""
        return sorted(table["noise"].unique(), key=lambda each: (each != NO_NOISE, each))

    def lost(self, table: pd.DataFrame, rhythm: str, noise: str) -> Mean:
        """Points lost by one label on a device instead of ten."""
        least, *_, most = values_at(table, "labels")
        return difference(self.at(table, rhythm, noise, most), self.at(table, rhythm, noise, least))

    def answer(self, table: pd.DataFrame) -> str:
        """The two losses, alone and together, in both rhythms."""
        plain, noisy = self.noises(table)
        by_noise = {(rhythm, labels): difference(*(self.at(table, rhythm, each, labels) for each in (plain, noisy)))
                    for rhythm in (OFTEN, SELDOM) for labels in values_at(table, "labels")}  # fmt: skip
        by_data = difference(*(self.at(table, SELDOM, plain, labels) for labels in (10, 3)))
        together = difference(self.at(table, SELDOM, plain, 10), self.at(table, SELDOM, noisy, 1))
        lost = {(rhythm, each): self.lost(table, rhythm, each) for rhythm in (OFTEN, SELDOM) for each in (plain, noisy)}
        return (
            f"**With a message after each step noise is what costs: {by_noise[OFTEN, 10]} points at {noisy}, against "
            f"{lost[OFTEN, plain]} for one label on a device instead of all ten. With ten steps between messages both "
            f"cost about as much, {lost[SELDOM, plain]} for one label and {by_noise[SELDOM, 10]} for noise, and "
            f"together {together}, far more than their sum.** With three labels, as in most of our runs, noise costs "
            f"{by_noise[SELDOM, 3]} there and the labels {by_data}. With noise and a message after each step one label "
            f"costs {lost[OFTEN, noisy]}."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Bars: a panel for each rhythm."""
        figure, panels = picture(2)
        labels, noises = values_at(table, "labels"), self.noises(table)
        for axes, rhythm in zip(panels, (OFTEN, SELDOM), strict=True):
            for number, noise in enumerate(noises):
                found = [mean(self.at(table, rhythm, noise, each)) for each in labels]
                axes.bar(
                    np.arange(len(labels)) + 0.4 * number - 0.2, [each.value for each in found], 0.38,
                    yerr=[each.half for each in found], color=COLOURS[1 + number], capsize=3, label=noise,
                    hatch=("", "////")[number], edgecolor="white",
                )  # fmt: skip
            axes.set_xticks(range(len(labels)), [f"{each:g}" for each in labels])
            axes.set_xlabel("labels on a device")
            axes.set_title(rhythm, fontsize=10)
            axes.set_ylim(0, 100)
        panels[0].set_ylabel("test accuracy, %")
        handles, words = panels[0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncols=2, frameon=False)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each rhythm and noise."""
        labels = values_at(table, "labels")
        yield "| rhythm | noise | " + " | ".join(f"{each:g} labels" for each in labels) + " | joules |"
        yield "|---" * (len(labels) + 3) + "|"
        for rhythm in (OFTEN, SELDOM):
            for noise in self.noises(table):
                cells = [str(mean(self.at(table, rhythm, noise, each))) for each in labels]
                joules = mean(by_seed(table, "energy_j", rhythm=rhythm, noise=noise, labels=labels[0]))
                yield f"| {rhythm} | {noise} | " + " | ".join(cells) + f" | {joules} |"
