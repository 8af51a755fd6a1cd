"""How many devices does a network need: accuracy against the number of devices, each with as many records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.questions.study import (
    STYLES,
    Question,
    accounted,
    by_seed,
    ends,
    line,
    logarithmic,
    mean,
    picture,
    trust_word,
    values_at,
)

NETWORKS = ("none", "all")
WANTED = 75.0  # per cent


class Devices(Question):
    """10 to 100 devices of 600 records."""

    name = "devices"
    alternative = "Accuracy over the number of devices, at two epsilons"

    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """The end of the run."""
        yield {
            "trust": trust_word(values["topology.trust"]),
            "epsilon": values["privacy.epsilon"],
            "devices": run.summary["devices"],
            "seed": values["seed"],
            **ends(run),
            "accounted": accounted(run),
        }

    def at(self, table: pd.DataFrame, trust: str, epsilon: float, devices: float, column: str = "accuracy") -> Mean:
        """Over seeds."""
        return mean(by_seed(table, column, trust=trust, epsilon=epsilon, devices=devices))

    def needed(self, table: pd.DataFrame, trust: str, epsilon: float, accuracy: float) -> float | None:
        """The smallest network whose whole interval is above an accuracy in per cent; None where there is none."""
        for devices in values_at(table, "devices"):
            found = self.at(table, trust, epsilon, devices)
            if found.value - found.half >= accuracy:
                return devices
        return None

    def answer(self, table: pd.DataFrame) -> str:
        """Devices that are needed with and without trust."""

        def word(trust: str, epsilon: float) -> str:
            found = self.needed(table, trust, epsilon, WANTED)
            return "more than " + f"{values_at(table, 'devices')[-1]:g}" if found is None else f"{found:g}"

        low, high = values_at(table, "epsilon")
        pairs = [f"{self.at(table, 'all', each, 20)} and {self.at(table, 'none', each, 100)} %" for each in (low, high)]
        return (
            f"**For {WANTED:g} % at an accounted epsilon of {high:g} it takes {word('none', high)} devices "
            "where nobody is "
            f"trusted and {word('all', high)} where every edge server is: to trust servers of five devices is "
            "worth five "
            "times the network.** 20 devices below trusted servers and 100 below untrusted ones end at "
            f"{pairs[1]}, and at "
            f"{pairs[0]} at epsilon {low:g}. At equal epsilon the noise in the cloud's average falls as "
            "$1/\\sqrt N$ with "
            "the number $N$ of devices where nobody is trusted, and is $1/\\sqrt s$ times that below trusted "
            "servers of $s$ "
            "devices each. (Of the sizes that were run, the smallest whose 95 % interval lies above the accuracy.)"
        )

    def draw(self, table: pd.DataFrame) -> Figure:
        """A panel for each epsilon."""
        epsilons, devices = values_at(table, "epsilon"), values_at(table, "devices")
        figure, panels = picture(len(epsilons))
        low = min(
            self.at(table, trust, epsilon, each).value for trust in NETWORKS for epsilon in epsilons for each in devices
        )
        for axes, epsilon in zip(panels, epsilons, strict=True):
            for trust in NETWORKS:
                points = {each: self.at(table, trust, epsilon, each) for each in devices}
                line(axes, f"{trust} of the edge servers trusted", STYLES[trust], points)
            logarithmic(axes, devices)
            axes.set_ylim(low - 5, 85)
            axes.set_title(rf"accounted $\epsilon$ = {epsilon:g}", fontsize=10)
            axes.set_xlabel("devices, 600 records each")
        panels[0].set_ylabel("test accuracy, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        return figure

    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """A row for each epsilon and network."""
        devices = values_at(table, "devices")
        yield "| epsilon | trusted | " + " | ".join(f"{each:g} devices" for each in devices) + " |"
        yield "|---" * (len(devices) + 2) + "|"
        for epsilon in values_at(table, "epsilon"):
            for trust in NETWORKS:
                cells = [str(self.at(table, trust, epsilon, each)) for each in devices]
                yield f"| {epsilon:g} | {trust} | " + " | ".join(cells) + " |"
        cells = [str(self.at(table, "none", values_at(table, "epsilon")[0], each, "energy_j")) for each in devices]
        yield "| | joules | " + " | ".join(cells) + " |"
