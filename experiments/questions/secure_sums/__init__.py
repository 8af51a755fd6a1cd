"""Where do secure sums replace trust: by the size of a subnet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.questions.study import (
    SECURE,
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
    trust_word,
    values_at,
)

KINDS = {kind: STYLES[kind] for kind in ("none", SECURE, "all")}


def noise(kind: str, devices: int) -> float:
    """Noise on the average of a subnet, in that of a trusted edge server, at equal account of the worst observer.

    Where nobody is trusted every device hides its own upload from its edge server. In a secure sum the worst observer
    is a device of the same subnet, which knows its own share of the noise.

    >>> noise("none", 4), round(noise("secure sums", 5) ** 2, 6)
    (2.0, 1.25)
    """
    return {"none": math.sqrt(devices), "all": 1.0}.get(kind, math.sqrt(devices / (devices - 1)))


class SecureSums(Question):
    """Subnets of 2 to 25 devices."""

    name = "secure-sums"
    alternative = "Accuracy over the size of subnets, and the noise on their averages"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run, and its noise."""
        ledger = pd.read_json(run.directory / "privacy.jsonl", lines=True)
        cloud = ledger[(ledger["observer"] == "cloud") & (ledger["interval"] == 1)]
        yield {
            "kind": trust_word(values["topology.trust"]),
            "size": run.summary["devices"] // run.summary["edges"],
            "seed": values["seed"],
            **ends(run),
            "noise": (cloud["noise_std"] / cloud["sensitivity"]).mean(),
            "accounted": accounted(run),
        }

    def at(self, table: pd.DataFrame, kind: str, size: float, column: str = "accuracy") -> dict[int, float]:
        """By seed."""
        return by_seed(table, column, kind=kind, size=size)

    def answer(self, table: pd.DataFrame) -> str:
        """The price of a secure sum at either end."""
        sizes = values_at(table, "size")
        lost = {size: difference(self.at(table, SECURE, size), self.at(table, "all", size)) for size in sizes}
        won = {size: difference(self.at(table, SECURE, size), self.at(table, "none", size)) for size in sizes}
        words = [
            f"with {size:g} devices they end {lost[size]} points from trusted servers and {won[size]} above none"
            for size in sizes
        ]
        return (
            f"**The larger a subnet, the more nearly secure sums replace trust: {'; '.join(words)}.** At equal epsilon "
            r"they need $\sqrt{s/(s-1)}$ times the noise of a trusted server of $s$ devices, because one "
            r"device knows its "
            r"own share, where untrusted servers make devices add $\sqrt s$ times; for $s = 2$ that is the same."
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """Accuracy, and noise measured and by formula."""
        figure, (left, right) = picture(2)
        sizes = values_at(table, "size")
        for kind, style in KINDS.items():
            line(left, kind, style, {size: mean(self.at(table, kind, size)) for size in sizes})
            ratios = {
                size: mean(self.at(table, kind, size, "noise")).value / mean(self.at(table, "all", size, "noise")).value
                for size in sizes
            }
            right.plot(list(ratios), list(ratios.values()), style[2], color=style[0], markersize=4)
            formula = [noise(kind, int(size)) for size in sizes]
            right.plot(sizes, formula, color=style[0], linestyle=style[1], linewidth=1)
        for axes in (left, right):
            logarithmic(axes, sizes)
            axes.set_xlabel("devices of a subnet (50 in all)")
        left.set_ylabel("test accuracy, %")
        right.set_ylabel("noise on a subnet's average,\nin that of a trusted server")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each size."""
        sizes = values_at(table, "size")
        yield "| trusted | " + " | ".join(f"subnets of {size:g}" for size in sizes) + " |"
        yield "|---" * (len(sizes) + 1) + "|"
        for kind in KINDS:
            cells = [str(mean(self.at(table, kind, size))) for size in sizes]
            yield f"| {kind}, accuracy % | " + " | ".join(cells) + " |"
        for kind in KINDS:
            cells = [str(mean(self.at(table, kind, size, "energy_j"))) for size in sizes]
            yield f"| {kind}, joules | " + " | ".join(cells) + " |"
        cells = [str(difference(self.at(table, SECURE, size), self.at(table, "all", size))) for size in sizes]
        yield f"| {SECURE}, less trusted servers, points | " + " | ".join(cells) + " |"
