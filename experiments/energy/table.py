"""Batteries for 60 % of the joules, and turns that follow the sun: five seeds at equal accounts.

    python -m experiments.energy.table --data-root DIR [--jobs 2] [--out sweeps]   # all runs, a quarter of an hour
    python -m experiments.energy.table --page                                      # README.md from runs.csv alone

`runs.csv` has a row for each run: what it ended with, and for batteries the best accuracy on the way, and who was left.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import h2fdp
from experiments.programs import between_markers

HERE = Path(__file__).parent
BATTERY = "topology.devices.battery_j"
STUDIES = {
    "equal": ("batteries", ()),
    "unequal": ("batteries", [f"{BATTERY}={{uniform: [0.03, 0.32]}}"]),
    "a quarter": ("batteries", [f"{BATTERY}=0.073", "sweep.training.device_turns=[1, 2, 4, battery]"]),
    "sun": ("sun", ()),
}
COMMAND = "python -m experiments.energy.table --page"


def row_of(study: str, run: Path) -> dict[str, object]:
    """The numbers of a run, from its directory."""
    settings, metrics = h2fdp.Experiment.from_file(run / "config.yaml").config, pd.read_parquet(run / "metrics.parquet")
    last, accuracy, control = metrics.iloc[-1], metrics["accuracy"].dropna(), settings.control
    turns = f"{'gco2' if control.gco2 else 'joules'} {control.turns:g}" if control.enabled else None
    return {
        "study": study,
        "turns": turns or settings.training.device_turns,
        "seed": settings.seed,
        "accuracy": accuracy.iloc[-1],
        "best": accuracy.max(),
        "epsilon": max(last[f"epsilon_{observer}"] for observer in ("edge", "peer", "cloud", "public")),
        "last interval": metrics["interval"][metrics["participants"] > 0].max(),
        "participants": metrics["participants"].mean(),
        "in the last ten": metrics["participants"].iloc[-10:].mean(),
        "energy_j": last["energy_j"],
        "gco2": last.get("gco2", np.nan),
    }


def interval_of(values: pd.Series, digits: int) -> str:
    """The mean over seeds and half of its 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.{digits}f} ± {half:.{digits}f}"


def tables(runs: pd.DataFrame) -> list[str]:
    """The page's two tables."""
    names = {"1": "all until empty", "2": "two groups in turns", "4": "four groups in turns", "battery": "by battery"}
    heads = ("batteries", "participation", "last accuracy, %", "best on the way, %")
    heads += ("devices", "in the last ten", "last interval", "J")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for study in ("equal", "unequal", "a quarter"):
        for turns, name in names.items():
            of = runs[(runs.study == study) & (runs.turns == turns)]
            if of.empty:
                continue
            cells = [interval_of(100 * of[key], 1) for key in ("accuracy", "best")]
            cells += [
                f"{of[key].mean():.1f}" for key in ("participants", "in the last ten", "last interval", "energy_j")
            ]
            lines.append(f"| {study} | {name} | {' | '.join(cells)} |")
    lines += ["", "| at a time | a round | g CO2, turns by channel | by grid | saved, % | accuracy, % | by grid |"]
    lines.append("|---|---|---|---|---|---|---|")
    for share in (0.0834, 0.1667, 0.3334):
        plain, follows = (
            runs[runs.turns == f"{key} {share:g}"].set_index("seed").sort_index() for key in ("joules", "gco2")
        )
        servers = round(share * 12)
        cells = [f"{plain.gco2.mean():.0f}", f"{follows.gco2.mean():.0f}"]
        cells += [interval_of(100 * (1 - follows.gco2 / plain.gco2), 1)]
        cells += [interval_of(100 * each.accuracy, 1) for each in (plain, follows)]
        lines.append(f"| {servers} | {24 // servers} h | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    """Run what is asked for, store the table, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps"))
    parser.add_argument("--page", action="store_true", help="write the page alone")
    asked = parser.parse_args()
    stored, page = HERE / "runs.csv", HERE / "README.md"
    if not asked.page:
        rows = []
        for study, (file, settings) in STUDIES.items():
            out = asked.out / f"energy-{study.replace(' ', '-')}"
            h2fdp.sweep(HERE / f"{file}.yaml", settings, out, data_root=asked.data_root, jobs=asked.jobs)
            rows += [row_of(study, run) for run in sorted((out / "runs").iterdir())]
        pd.DataFrame(rows).to_csv(stored, index=False, float_format="%.6g")
    runs = pd.read_csv(stored, dtype={"turns": str})
    page.write_text(between_markers(page.read_text(), COMMAND, tables(runs)))


if __name__ == "__main__":
    main()
