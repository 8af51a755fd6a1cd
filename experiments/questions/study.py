"""What the questions share: a sweep's runs as a stored table, and a page between markers that the table makes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.reproduction.conduct import commit_of
from experiments.reproduction.panels import COLOURS
from h2fdp.records.atomic import write_text

FOLDER = Path(__file__).parent
END = "<!-- ends -->"
TRUST_WORDS = {0.0: "none", 0.5: "half", 1.0: "all"}
OFTEN, SELDOM = "a message after each step", "a message after ten steps"
SECURE = "secure sums"
STYLES: Mapping[str, tuple[str, Any, str]] = {  # colour, dash, marker
    "none": (COLOURS[0], (0, (6, 2)), "o"),
    "half": (COLOURS[4], (0, (6, 2, 1, 2)), "^"),
    "all": (COLOURS[1], "-", "s"),
    SECURE: (COLOURS[3], (0, (2, 1.5)), "D"),
}


def rhythm_word(local_steps: int) -> str:
    """How often messages go, by the local steps of an interval, of one or ten.

    >>> rhythm_word(1)
    'a message after each step'
    """
    return OFTEN if local_steps == 1 else SELDOM


def trust_word(trust: Mapping[str, Any]) -> str:
    """What a `topology.trust` of exact shares is called.

    >>> trust_word({"trusted": 1, "exact": True}), trust_word({"secure-sum": 1, "exact": True})
    ('all', 'secure sums')
    """
    return SECURE if "secure-sum" in trust else TRUST_WORDS[float(trust["trusted"])]


def accounted(run: h2fdp.Run) -> float:
    """The largest accounted epsilon of a run's observers, each by the tighter account."""
    return max(min(each["rdp"], each["pld"]) for each in run.summary["privacy"]["worst"].values())


def ends(run: h2fdp.Run) -> dict[str, float]:
    """Accuracy in per cent and costs at the end of a run."""
    last = run.metrics.iloc[-1]
    return {"accuracy": 100 * run.summary["accuracy"], "energy_j": last["energy_j"], "clock_s": last["clock_s"]}


def by_seed(rows: pd.DataFrame, column: str = "accuracy", **at: Any) -> dict[int, float]:
    """Seed -> a number of the runs at a point."""
    for key, value in at.items():
        rows = rows[rows[key] == value]
    assert not rows["seed"].duplicated().any(), f"several runs under one seed at {at}"
    return dict(zip(rows["seed"].tolist(), rows[column].tolist(), strict=True))


def mean(found: Mapping[int, float]) -> Mean:
    """Over seeds."""
    return Mean.of(list(found.values()))


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> Mean:
    """One less the other, seed by seed."""
    return Mean.of([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])


def clear(found: Mean) -> bool:
    """Whether the interval lies on one side of 0."""
    return abs(found.value) > found.half


def picture(columns: int, width: float = 7.4, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A white figure with panels side by side, as wide as the pages show it."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(1, columns, squeeze=False)[0])
    for axes in panels:
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.set_axisbelow(True)
    return figure, panels


def line(axes: Axes, label: str, style: tuple[str, Any, str], points: Mapping[float, Mean]) -> None:
    """Means with their intervals over the places of points."""
    colour, dash, marker = style
    axes.errorbar(
        list(points), [each.value for each in points.values()], [each.half for each in points.values()], label=label,
        color=colour, linestyle=dash, marker=marker, markersize=4, capsize=2, linewidth=1.3,
    )  # fmt: skip


def logarithmic(axes: Axes, places: list[float]) -> None:
    """Places on a logarithmic axis, in plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{each:g}" for each in places])
    axes.minorticks_off()


class Question(ABC):
    """A question: its runs, and what they say.

    Attributes:
        name: of the question, as the command takes it; its folder has underscores for hyphens.
    """

    name: str

    @abstractmethod
    def rows(self, values: Mapping[str, Any], run: h2fdp.Run) -> Iterator[dict[str, Any]]:
        """What a finished run at a point of the sweep adds to the table."""

    @abstractmethod
    def answer(self, table: pd.DataFrame) -> str:
        """The answer, with its numbers."""

    @abstractmethod
    def draw(self, table: pd.DataFrame) -> Figure:
        """The picture."""

    @abstractmethod
    def lines(self, table: pd.DataFrame) -> Iterator[str]:
        """The table of the page."""

    alternative = ""  # of the picture, in words

    @property
    def folder(self) -> Path:
        """The folder of its sweep, table, picture and page."""
        return FOLDER / self.name.replace("-", "_")

    @property
    def file(self) -> Path:
        """The sweep."""
        return self.folder / "sweep.yaml"

    @property
    def stored(self) -> Path:
        """The table of its runs."""
        return self.folder / "runs.csv"

    @property
    def page(self) -> Path:
        """Where the answer stands."""
        return self.folder / "README.md"

    @property
    def image(self) -> Path:
        """The picture of the page."""
        return self.folder / "picture.png"

    def run(self, out: Path, data_root: Path | None, jobs: int, settings: list[str]) -> pd.DataFrame:
        """Make what is left of its runs.

        Returns:
            the rows of all of them.
        """
        done = h2fdp.sweep(self.file, settings, out / self.name, data_root=data_root, jobs=jobs)
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        return self.gathered(done)

    def gathered(self, done: h2fdp.Sweep) -> pd.DataFrame:
        """The rows of a sweep's runs."""
        points = json.loads((done.directory / "sweep.json").read_text())["points"]
        return pd.DataFrame([row for name, run in done.runs.items() for row in self.rows(points[name]["values"], run)])

    def read(self) -> pd.DataFrame:
        """The stored table."""
        return pd.read_csv(self.stored, comment="#", keep_default_na=False, na_values=[""])

    def store(self, table: pd.DataFrame) -> None:
        """Write the table, and what made it."""
        made_by = f"# `python -m experiments.questions {self.name} --data-root DIR` at {commit_of(FOLDER)}\n"
        write_text(self.stored, made_by + table.to_csv(index=False, float_format="%.6g"))

    def block(self, table: pd.DataFrame) -> str:
        """What stands between the markers."""
        shown = f"![{self.alternative}]({self.image.name})"
        return "\n\n".join([self.answer(table), shown, "\n".join(self.lines(table))])

    def text(self, table: pd.DataFrame) -> str:
        """The page with the block of this table."""
        begin = f"<!-- begins: python -m experiments.questions {self.name} writes it -->"
        head, rest = self.page.read_text().split(begin)
        return head + begin + "\n\n" + self.block(table) + "\n\n" + END + rest.split(END, 1)[1]

    def write(self, table: pd.DataFrame) -> None:
        """Draw, and write the page."""
        self.draw(table).savefig(self.image, dpi=150)
        self.page.write_text(self.text(table))


def values_at(table: pd.DataFrame, key: str) -> list[float]:
    """The different numbers of a column, in order."""
    return [float(each) for each in np.sort(table[key].unique())]
