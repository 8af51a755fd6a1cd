"""What the paper leaves open of its Fashion-MNIST runs, searched once on a validation split.

    python -m experiments.open_parameters --data-root DIR [--jobs 2] [--out sweeps/open]

1. `open_parameters.yaml`: batch size, clip norm and step size. The best is the highest mean validation accuracy of the
   last 20 intervals of h2fdp with p_c = 0.5, over two seeds. No other method is looked at.
2. With these, the same of the methods of fig4.yaml: reported, not chosen by.
3. `open_alphas.yaml`: the weights of energy and delay, alpha3 being 1. The best is the smallest geometric mean of
   energy and delay until the highest validation accuracy that all candidates reach.
4. For each study with control, the factor on the formula's noise with which the account of all observers is epsilon at
   most, whatever the controller does: that of the longest intervals, which amplify least.

The seeds are not those of the figures. Writes open_parameters.json; tests compare fig4.yaml to fig10.yaml with it.
An hour and a half on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import h2fdp
from h2fdp import Experiment
from h2fdp.experiment.privacy_report import privacy_report
from h2fdp.reproduction.measures import cost_until, smoothed

FOLDER = Path(__file__).parent
RESULT = FOLDER / "open_parameters.json"
OPEN = ("training.batch_size", "training.clip_norm", "training.step_size")
ALPHAS = ("control.alpha1", "control.alpha2")
CONTROLLED = ("fig5", "fig8", "fig10")
LAST = 20


def last_validation(table: pd.DataFrame) -> pd.Series[float]:
    """Mean validation accuracy of the last intervals of each run."""
    rows = table.sort_values("interval").groupby("run").tail(LAST)
    return rows.groupby("run")["validation_accuracy"].mean()


def scores(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Mean over seeds of the last validation accuracy, by the values of keys, the best first."""
    values = table.groupby("run")[list(keys)].first().assign(validation_accuracy=last_validation(table))
    means = values.groupby(list(keys), sort=False)["validation_accuracy"].agg(["mean", "min", "max", "count"])
    return means.sort_values("mean", ascending=False).reset_index()


def costs(table: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Geometric mean over seeds of energy times delay, rooted, until the target; the best first; and the target."""
    runs = {run: rows.sort_values("interval") for run, rows in _on_validation(table).groupby("run")}
    target = min(float(smoothed(rows).max()) for rows in runs.values())
    logs = {
        run: sum(math.log(cost_until(rows, target, column)) for column in ("energy_j", "delay_s")) / 2
        for run, rows in runs.items()
    }
    values = table.groupby("run")[list(ALPHAS)].first().assign(cost=pd.Series(logs))
    means = values.groupby(list(ALPHAS), sort=False)["cost"].mean().map(math.exp)
    return means.sort_values().reset_index(), target


def _on_validation(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(accuracy=table["validation_accuracy"])


def factor(figure: str, data_root: Path | None) -> float:
    """On the formula's noise, so that the account at the longest intervals is epsilon."""
    changes = ["method=h2fdp", "privacy.calibration=accounted"]
    experiment = Experiment.from_file(FOLDER / f"{figure}.yaml", changes)
    longest = f"training.local_steps={experiment.config.control.tau_max}"
    run = Experiment.from_file(FOLDER / f"{figure}.yaml", [*changes, longest]).prepare(data_root)
    return float(privacy_report(run)["factor"])


def main() -> None:
    """Search, then write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/open"))
    asked = parser.parse_args()

    def table(name: str, *settings: str) -> pd.DataFrame:
        done = h2fdp.sweep(
            FOLDER / f"{name}.yaml", settings, asked.out / name, data_root=asked.data_root, jobs=asked.jobs
        )
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        return done.table

    searched = scores(table("open_parameters"), OPEN)
    best = searched.iloc[0]
    chosen: dict[str, Any] = {key: float(best[key]) for key in OPEN} | {OPEN[0]: int(best[OPEN[0]])}
    settings = [f"{key}={value}" for key, value in chosen.items()]
    others = ["data.validation=0.1", "sweep.seed=[101, 102]"]
    methods = ("method", "topology.trust.probability")
    contrast = scores(table("fig4", *settings, *others), methods)
    weights, target = costs(table("open_alphas", *settings))
    found = {
        "chosen": chosen | {key: float(weights.iloc[0][key]) for key in ALPHAS},
        "factors": {figure: round(factor(figure, asked.data_root), 3) for figure in CONTROLLED},
        "validation_accuracy": searched.round(4).to_dict("records"),
        "methods": contrast.round(4).to_dict("records"),
        "target": round(target, 2),
        "costs": weights.round(3).to_dict("records"),
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
