"""A picture of problem P's objective over tau and participation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from h2fdp.errors import UserError
from h2fdp.run.controller_preview import Plan


def draw(plan: Plan, path: Path) -> None:
    """Draw the map of a plan's objective, the best level marked at each tau, and the chosen tau.

    Raises:
        UserError: the file cannot be written, or its ending names no picture format.
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    values = np.maximum(np.array(plan.map.objective), 1e-300)
    positions = np.arange(len(plan.map.level))
    mesh = axes.pcolormesh(
        plan.map.tau,
        positions,
        values,
        norm=LogNorm() if values.min() < values.max() else None,
        cmap="viridis_r",
        shading="nearest",
    )
    axes.plot(plan.map.tau, values.argmin(axis=0), "o", color="white", markersize=3, label="best level for this tau")
    axes.axvline(plan.tau, color="tab:red", linewidth=1.5, label=f"chosen tau = {plan.tau}")
    shown = positions[:: max(1, len(positions) // 10)]
    axes.set_yticks(shown, [str(plan.map.level[position]) for position in shown])
    axes.set_xlabel("interval length tau (slots)")
    axes.set_ylabel("devices taking part in each subnet")
    axes.set_title("objective of problem P at mean costs")
    axes.legend(loc="upper right", fontsize=8, facecolor="0.6", labelcolor="black")
    figure.colorbar(mesh, label="objective (lower is better)")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"no picture can be written: {error}", str(path)) from None
