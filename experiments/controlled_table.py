"""What control saves until an accuracy: table and picture of docs/control.md, from the sweep of controlled.yaml.

    python -m experiments.controlled_table sweeps/controlled [--png docs/figures/control.png]

For each network, the accuracy is the highest that control, H2FDP without control, HFL-DP and PEDPFL all reach in every
seed. The best fixed schedule is, of those of the grid that reach it in every seed, the one that costs least on average,
known in hindsight. Savings are means over seeds of 1 - control / other, with 95 % intervals by Student's t.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

from h2fdp import Run
from h2fdp.reproduction.panels import COLOURS

LEAST = 0.7
METHODS = ("control", "H2FDP without control", "HFL-DP", "PEDPFL")
COSTS = {"energy_j": "energy, J", "delay_s": "delay, s"}
BEST = "best fixed"


def name_of(values: dict[str, object]) -> str:
    """The method of a point of the sweep; of a fixed schedule of the grid its numbers."""
    method, control = values["method"], values["control"]
    assert isinstance(method, dict)
    assert isinstance(control, dict)
    if control["enabled"]:
        return METHODS[0]
    every, extends = values["training.aggregate_every"], method["extends"]
    if extends == "pedpfl":
        return METHODS[3]
    if (values["training.local_steps"], values["training.intervals"]) == (20, 3) and every != 40:
        return METHODS[1] if extends == "h2fdp" else METHODS[2]
    share = "" if values["training.participation"] == 1 else f", {values['training.participation']:.0%} of devices"
    whom = "nobody trusted" if extends == "hfl-dp" else "trusted servers after each step"
    return (
        f"{values['training.intervals']} intervals of {values['training.local_steps']}, "
        f"step size {values['training.step_size']:g}{share}, {whom}"
    )


def runs_of(folder: Path) -> pd.DataFrame:
    """A row for each interval of each finished run: network, method, seed, accuracy and costs."""
    parts = []
    for point, facts in json.loads((folder / "sweep.json").read_text())["points"].items():
        if facts["state"] not in ("done", "accuracy reached"):
            continue
        values, run = facts["values"], Run(folder / "runs" / point)
        part = run.metrics[["interval", "accuracy", *COSTS]].copy()
        part["network"] = Path(values["topology"]).stem
        part["method"], part["seed"] = name_of(values), values["seed"]
        parts.append(part)
    return pd.concat(parts)


def costs_until(runs: pd.DataFrame, accuracy: float) -> pd.DataFrame:
    """Joules and seconds where each run first has this accuracy, by method and seed; none where it never has."""
    reached = runs[runs["accuracy"] >= accuracy]
    return reached.sort_values("interval").groupby(["method", "seed"])[list(COSTS)].first()


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean, and half of its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(half)


def target_of(runs: pd.DataFrame) -> float:
    """The highest accuracy, in whole per mille, that the four methods reach in every seed."""
    best = runs[runs["method"].isin(METHODS)].groupby(["method", "seed"])["accuracy"].max()
    return float(np.floor(best.min() * 1000) / 1000)


def table_of(runs: pd.DataFrame, accuracy: float) -> tuple[list[str], dict[str, pd.DataFrame]]:
    """Lines of a table for one network, and the costs of its methods by seed."""
    costs, seeds = costs_until(runs, accuracy), runs["seed"].nunique()
    by_method = {name: part.droplevel(0).sort_index() for name, part in costs.groupby(level=0) if len(part) == seeds}
    fixed = {name: part for name, part in by_method.items() if name not in METHODS}
    best = min(fixed, key=lambda name: fixed[name]["energy_j"].mean(), default=None)
    shown = {name: by_method[name] for name in METHODS if name in by_method}
    if best is not None:
        shown[BEST] = fixed[best]
    lines = []
    for name, found in shown.items():
        words = f"{BEST}: {best}" if name == BEST else name
        cells = []
        for column in COSTS:
            mean, half = interval(found[column].to_numpy())
            cells.append(f"{mean:.2f} ± {half:.2f}")
        for column in COSTS:
            if name == METHODS[0]:
                cells.append("")
                continue
            mean, half = interval(100 * (1 - (shown[METHODS[0]][column] / found[column]).to_numpy()))
            cells.append(f"{mean:.1f} ± {half:.1f}")
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return lines, shown


def draw(found: dict[str, dict[str, pd.DataFrame]], titles: dict[str, str], path: Path) -> None:
    """Bars of energy and delay for each network, from 0."""
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(found), squeeze=False)
    labels = {METHODS[1]: "H2FDP,\nno control", BEST: "best\nfixed"}
    for column, (network, shown) in enumerate(found.items()):
        for row, (cost, label) in enumerate(COSTS.items()):
            of = axes[row, column]
            means = [interval(part[cost].to_numpy()) for part in shown.values()]
            colours = [COLOURS[place % len(COLOURS)] for place in range(len(shown))]
            places = np.arange(len(shown))
            of.bar(places, [mean for mean, _ in means], yerr=[half for _, half in means], color=colours, capsize=3)
            of.set_xticks(places, [labels.get(name, name) for name in shown] if row else [""] * len(shown), fontsize=7)
            if row:
                of.tick_params(axis="x", rotation=60)
            else:
                of.set_title(titles[network], fontsize=9)
            if column == 0:
                of.set_ylabel(label)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the tables, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+", help="of sweeps; of equal points the last one counts")
    parser.add_argument("--png", type=Path, default=None)
    parser.add_argument("--accuracy", type=float, default=None, help="instead of the highest that all reach")
    asked = parser.parse_args()
    runs = pd.concat([runs_of(folder).assign(order=order) for order, folder in enumerate(asked.folder)])
    runs = runs[runs["order"] == runs.groupby(["network", "method", "seed"])["order"].transform("max")]
    found, titles = {}, {}
    for network, part in runs.groupby("network", sort=False):
        accuracy = target_of(part) if asked.accuracy is None else asked.accuracy
        lines, shown = table_of(part, accuracy)
        print(
            f"\n{network}: {accuracy:.1%}"
            + ("" if accuracy >= LEAST else f", below the {LEAST:.0%} that were asked for")
        )
        print("\n| schedule | energy, J | delay, s | control saves energy, % | and delay, % |\n|---|---|---|---|---|")
        print("\n".join(lines))
        last = part.sort_values("interval").groupby(["method", "seed"])["accuracy"].last().groupby(level=0)
        for name, values in last:
            mean, half = interval(100 * values.to_numpy())
            print(f"  ends at {mean:.1f} ± {half:.1f} % (least {100 * values.min():.1f}): {name}")
        found[str(network)], titles[str(network)] = shown, f"{network}, {accuracy:.1%}"
    if asked.png is not None:
        draw(found, titles, asked.png)


if __name__ == "__main__":
    main()
