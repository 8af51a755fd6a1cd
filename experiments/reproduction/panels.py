"""The panels of figures: curves with bands, bars, and levels, distinguished by style, marker and colour."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from experiments.reproduction.evaluation import LEAST_TARGET, numbers_at, target_of
from experiments.reproduction.figures_file import Bars, Curves, LadderPanel
from experiments.reproduction.measures import MEASURES, PERCENT
from experiments.reproduction.points import points_of
from experiments.reproduction.results import Results
from h2fdp.reports.sweep_numbers import MeanIntervals, means_with_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#222222", "#0072B2", "#D55E00", "#009E73", "#CC79A7")  # black, and four of Okabe and Ito's
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)))
_SHORT = 18  # letters of a legend's labels that stand three in a row
_MARKERS, _HATCHES = "osD^v", ("", "////", "....", "xxxx", "\\\\\\\\")
_SYMBOLS = {"alpha1": r"$\alpha_1$", "alpha2": r"$\alpha_2$", "alpha3": r"$\alpha_3$", "p_c": "$p_c$", "s_c": "$s_c$",
            "epsilon": r"$\epsilon$"}  # fmt: skip


def symbols(text: str) -> str:
    """Letters of the paper as it prints them."""
    for word, symbol in _SYMBOLS.items():
        text = text.replace(word, symbol)
    return text


def draw_panel(axes: Axes, panel: Curves | Bars | LadderPanel, results: Results) -> None:
    """Draw a panel of a study's results."""
    if isinstance(panel, Curves):
        _curves(axes, panel, results)
    elif isinstance(panel, Bars):
        _bars(axes, panel, results)
    else:
        _levels(axes, panel, results)


def _curves(axes: Axes, panel: Curves, results: Results) -> None:
    for number, (line, style) in enumerate(zip(panel.lines, _styles(), strict=False)):
        runs = list(results.runs_at(line.at).values())
        rows = results.table[results.table["run"].isin(runs)].dropna(subset="accuracy")
        if rows.empty:
            continue
        by_run = rows.pivot(index="run", columns="interval", values="accuracy")
        found = means_with_intervals(PERCENT * by_run.to_numpy())
        axes.plot(by_run.columns, found.mean, label=symbols(line.label), linewidth=1.2, zorder=9 - number, **style)
        axes.fill_between(by_run.columns, found.low, found.high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_xlabel("global aggregation $k$")
    axes.set_ylabel("test accuracy, %")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes)


def _bars(axes: Axes, panel: Bars, results: Results) -> None:
    target = target_of(panel.target, results, [line.at for line in panel.lines])
    if target is not None and target < LEAST_TARGET * panel.target:
        text = f"the runs have no more than\n{target:.1f} % in common:\ntoo little to compare"
        axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=8, transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    numbers = numbers_at(panel.measure, [line.at for line in panel.lines], results, target)
    found = means_with_intervals(numbers)
    for place, (mean, colour, hatch) in enumerate(zip(found.mean, cycle(COLOURS), cycle(_HATCHES), strict=False)):
        axes.bar(place, mean, width=0.65, color="white", edgecolor=colour, hatch=hatch, linewidth=1.2)
    axes.errorbar(range(len(panel.lines)), found.mean, _errors(found), fmt="none", ecolor="#222222", capsize=3)
    axes.set_xticks(range(len(panel.lines)), [symbols(line.label) for line in panel.lines], fontsize=8)
    axes.set_ylabel(MEASURES[panel.measure].title.replace("the target", f"{target:.1f} %"))
    axes.set_ylim(bottom=0)


def _levels(axes: Axes, panel: LadderPanel, results: Results) -> None:
    for line, style, marker in zip(panel.lines, _styles(), cycle(_MARKERS), strict=False):
        numbers = numbers_at(panel.measure, points_of(line.points), results)
        found = means_with_intervals(numbers)
        axes.errorbar(panel.x, found.mean, _errors(found), label=symbols(line.label), marker=marker, markersize=4,
                      capsize=2, linewidth=1.2, **style)  # fmt: skip
    if panel.log:
        axes.set_xscale("log")
    else:
        axes.set_xticks(panel.x)
    axes.set_xlabel(symbols(panel.axis))
    axes.set_ylabel(MEASURES[panel.measure].title)
    if len(panel.lines) > 1:
        _legend(axes)


def _legend(axes: Axes) -> None:
    """Below the panel, where it hides nothing."""
    labels = axes.get_legend_handles_labels()[1]
    columns = 3 if len(labels) == 3 and max(map(len, labels)) <= _SHORT else 2
    axes.legend(
        fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, frameon=False, handlelength=3
    )


def _styles() -> Any:
    return ({"color": colour, "linestyle": dash} for colour, dash in cycle(zip(COLOURS, _DASHES, strict=True)))


def _errors(found: MeanIntervals) -> Any:
    """Lengths below and above the means; none where one run is all."""
    errors = np.array([found.mean - found.low, found.high - found.mean])
    return None if np.isnan(errors).all() else np.maximum(np.nan_to_num(errors), 0)
