"""What control saves until an accuracy: table and picture of README.md, from the sweep of controlled.yaml.

    python -m experiments.control.table sweeps/controlled --data-root DIR [--png FILE]

For each network, the accuracy is the highest that control, with and without chosen powers, H2FDP without control,
HFL-DP and PEDPFL all reach in every seed. Cost is joules + 0.2 x seconds, as the controlled runs are told. The best
fixed schedule is, of those of the grid that reach the accuracy in every seed, the one that costs least on average,
known in hindsight; below it the same at the one power for all devices that costs least on average (`fixed_power`).
Savings are means over seeds of 1 - control / other, with 95 % intervals by Student's t.
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

from experiments.control.fixed_power import POWERS_DBM, costs_at
from experiments.reproduction.panels import COLOURS
from h2fdp import Run

LEAST = 0.7
POWER, CONTROL = "control with power", "control"
METHODS = (POWER, CONTROL, "H2FDP without control", "HFL-DP", "PEDPFL")
METERED = ("energy_j", "delay_s")
COSTS = {"energy_j": "energy, J", "delay_s": "delay, s", "cost": "cost"}
SAVED = ("control saves energy, %", "delay", "cost", "with power energy, %", "delay", "cost")
SECOND = 0.2  # what a second weighs beside a joule, in the controlled runs of the sweep
BEST, BEST_POWER = "best fixed", "at its best power"
WITHOUT = {POWER: CONTROL, BEST_POWER: BEST}  # where power is chosen: the same without
DRAWN = (CONTROL, *METHODS[2:], BEST)  # one colour each


def name_of(values: dict[str, object]) -> str:
    """The method of a point of the sweep; of a fixed schedule of the grid its numbers."""
    method, control = values["method"], values["control"]
    assert isinstance(method, dict)
    assert isinstance(control, dict)
    if control["enabled"]:
        return POWER if control.get("least_dbm") is not None else CONTROL
    every, extends = values["training.aggregate_every"], method["extends"]
    if extends == "pedpfl":
        return METHODS[4]
    if (values["training.local_steps"], values["training.intervals"]) == (20, 3) and every != 40:
        return METHODS[2] if extends == "h2fdp" else METHODS[3]
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
        part = run.metrics[["interval", "accuracy", *METERED]].copy()
        part["cost"] = part["energy_j"] + SECOND * part["delay_s"]
        part["run"] = str(folder / "runs" / point)
        part["network"] = Path(values["topology"]).stem
        part["method"], part["seed"] = name_of(values), values["seed"]
        parts.append(part)
    return pd.concat(parts)


def costs_until(runs: pd.DataFrame, accuracy: float) -> pd.DataFrame:
    """Joules, seconds and cost where each run first has this accuracy, the interval and the run, by method and seed.

    None where it never has.
    """
    reached = runs[runs["accuracy"] >= accuracy]
    return reached.sort_values("interval").groupby(["method", "seed"])[[*COSTS, "interval", "run"]].first()


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean, and half of its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(half)


def target_of(runs: pd.DataFrame) -> float:
    """The highest accuracy, in whole per mille, that all of `METHODS` reach in every seed."""
    best = runs[runs["method"].isin(METHODS)].groupby(["method", "seed"])["accuracy"].max()
    return float(np.floor(best.min() * 1000) / 1000)


def at_best_power(best: pd.DataFrame, data_root: Path | None) -> tuple[float, pd.DataFrame]:
    """The power at which a fixed schedule costs least on average, and its costs there by seed."""
    found = {power: best[list(COSTS)].astype(float).copy() for power in POWERS_DBM}
    for seed, row in best.iterrows():
        told = costs_at(Path(row["run"]), int(row["interval"]), POWERS_DBM, data_root)
        assert np.isclose(told[max(POWERS_DBM)]["energy_j"], row["energy_j"], rtol=1e-9), "as the run wrote it down"
        for power, spent in told.items():
            cost = spent["energy_j"] + SECOND * spent["delay_s"]
            found[power].loc[seed] = [spent["energy_j"], spent["delay_s"], cost]
    power = min(found, key=lambda each: found[each]["cost"].mean())
    return power, found[power]


def table_of(runs: pd.DataFrame, accuracy: float, data_root: Path | None) -> tuple[list[str], dict[str, pd.DataFrame]]:
    """Lines of a table for one network, and the costs of its methods by seed."""
    costs, seeds = costs_until(runs, accuracy), runs["seed"].nunique()
    by_method = {name: part.droplevel(0).sort_index() for name, part in costs.groupby(level=0) if len(part) == seeds}
    fixed = {name: part for name, part in by_method.items() if name not in METHODS}
    shown = {name: by_method[name] for name in METHODS if name in by_method}
    words = {name: name for name in shown}
    if fixed:
        best = min(fixed, key=lambda name: fixed[name]["cost"].mean())
        shown[BEST], words[BEST] = fixed[best], f"{BEST}: {best}"
        if data_root is not None:
            power, shown[BEST_POWER] = at_best_power(fixed[best], data_root)
            words[BEST_POWER] = f"the same with {power:g} dBm"
    lines = []
    for name, found in shown.items():
        cells = [told(found[column].to_numpy(), 2) for column in COSTS]
        for saver in (CONTROL, POWER):
            own, other = shown[saver], found
            saved = [100 * (1 - (own[column] / other[column]).to_numpy(float)) for column in COSTS]
            cells += ["" if name in (saver, POWER) else told(each, 1) for each in saved]
        lines.append(f"| {words[name]} | " + " | ".join(cells) + " |")
    return lines, shown


def told(values: np.ndarray, digits: int) -> str:
    """Mean and half of the interval."""
    mean, half = interval(values.astype(float))
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def draw(found: dict[str, dict[str, pd.DataFrame]], titles: dict[str, str], path: Path) -> None:
    """Bars of energy and delay for each network, from 0."""
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(found), squeeze=False)
    labels = {
        METHODS[2]: "H2FDP,\nno control",
        POWER: "control,\npower",
        BEST: "best\nfixed",
        BEST_POWER: "best fixed,\nbest power",
    }
    for column, (network, shown) in enumerate(found.items()):
        for row, (cost, label) in enumerate((cost, COSTS[cost]) for cost in METERED):
            of = axes[row, column]
            means = [interval(part[cost].to_numpy()) for part in shown.values()]
            colours = [COLOURS[DRAWN.index(WITHOUT.get(name, name)) % len(COLOURS)] for name in shown]
            places = np.arange(len(shown))
            bars = of.bar(
                places, [mean for mean, _ in means], yerr=[half for _, half in means], color=colours, capsize=3
            )
            for name, bar in zip(shown, bars, strict=True):
                bar.set_alpha(0.5 if name in WITHOUT else 1.0)
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
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--png", type=Path, default=None)
    parser.add_argument("--accuracy", type=float, default=None, help="instead of the highest that all reach")
    asked = parser.parse_args()
    runs = pd.concat([runs_of(folder).assign(order=order) for order, folder in enumerate(asked.folder)])
    runs = runs[runs["order"] == runs.groupby(["network", "method", "seed"])["order"].transform("max")]
    found, titles = {}, {}
    for network, part in runs.groupby("network", sort=False):
        accuracy = target_of(part) if asked.accuracy is None else asked.accuracy
        lines, shown = table_of(part, accuracy, asked.data_root)
        print(
            f"\n{network}: {accuracy:.1%}"
            + ("" if accuracy >= LEAST else f", below the {LEAST:.0%} that were asked for")
        )
        print(f"\n| schedule | {' | '.join([*COSTS.values(), *SAVED])} |\n|{'---|' * 10}")
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
