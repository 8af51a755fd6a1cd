"""The picture of a search: accuracy of its trials over what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from h2fdp.records.atomic import replacing
from h2fdp.tuning.plan import TunePlan
from h2fdp.tuning.trials import Trial

_UNITS = {"joules": "energy, J", "seconds": "simulated time, s", "bytes": "sent by devices, bytes"}
_LOOKS = {"done": ("o", "#0072B2"), "pruned": ("x", "#999999"), "over a limit": ("v", "#D55E00")}


def draw(plan: TunePlan, trials: Sequence[Trial], front: Sequence[Trial], best: Trial | None, path: Path) -> None:
    """Draw the trials over the first cost that is an objective, or joules.

    Args:
        front: the trials that no other one beats in accuracy and this cost.
    """
    cost = (*plan.section.costs, "joules")[0]
    picture = Figure(figsize=(5.5, 3.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    for state, (marker, colour) in _LOOKS.items():
        at = [each for each in trials if each.state == state and each.accuracy is not None]
        if at:
            axes.scatter(*_points(at, cost), marker=marker, color=colour, s=22, linewidths=1, label=state)
    if front:
        axes.plot(*_points(sorted(front, key=lambda each: each.costs[cost]), cost), color="#0072B2", linewidth=1)
    if best is not None:
        axes.scatter(*_points([best], cost), marker="o", s=90, facecolors="none", edgecolors="#222222", label="best")
    if all(each.costs[cost] > 0 for each in trials if each.costs):
        axes.set_xscale("log")
    axes.set_xlabel(_UNITS[cost])
    axes.set_ylabel("validation accuracy, %")
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    with replacing(path) as file:
        picture.savefig(file, dpi=130, format="png")


def _points(trials: Sequence[Trial], cost: str) -> tuple[list[float], list[float]]:
    return [each.costs[cost] for each in trials], [100 * (each.accuracy or 0.0) for each in trials]
