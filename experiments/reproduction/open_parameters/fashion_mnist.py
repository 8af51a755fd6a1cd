"""What the paper leaves open of its Fashion-MNIST runs, searched once on a validation split.

    python -m experiments.reproduction.open_parameters.fashion_mnist --data-root DIR [--jobs 2] [--out sweeps/open]

1. `open_parameters.yaml`: batch size, clip norm and step size. The best is the highest mean validation accuracy of the
   last 20 intervals of h2fdp with p_c = 0.5, over two seeds. No other method is looked at.
2. With these, the same of the methods of fig4.yaml: reported, not chosen by.
3. `open_alphas.yaml`: the weights of energy and delay, alpha3 being 1. The best is the smallest geometric mean of
   energy and delay until 97 % of the highest validation accuracy of any candidate; those that stay below drop out.
4. The factor on the formula's noise with which the account of all observers, by `pld`, is epsilon at most under
   control: that of what the controller will decide in the runs of fig5.yaml, for each of its seeds.

The seeds are not those of the figures. Writes open_parameters.json; tests compare fig4.yaml to fig10.yaml with it.
About an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import h2fdp
from experiments.reproduction.measures import cost_until, smoothed
from h2fdp import Experiment
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.calibration import scaled, smallest_factor
from h2fdp.run.forecast import planned_accounts

FOLDER = Path(__file__).parent
RESULT = FOLDER / "open_parameters.json"
OPEN = ("training.batch_size", "training.clip_norm", "training.step_size")
ALPHAS = ("control.alpha1", "control.alpha2")
METHODS = ("method", "topology.trust.probability")
LAST = 20
NEAR = 0.97
LOOKED_AT = 12


@dataclass(frozen=True)
class Table:
    """The rows of a study's finished runs, and how many of how many these are."""

    rows: pd.DataFrame
    runs: str


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
    target = NEAR * max(float(smoothed(rows).max()) for rows in runs.values())
    logs = {
        run: sum(math.log(cost_until(rows, target, column)) for column in ("energy_j", "delay_s")) / 2
        for run, rows in runs.items()
    }
    values = table.groupby("run")[list(ALPHAS)].first().assign(cost=pd.Series(logs))
    means = values.groupby(list(ALPHAS), sort=False)["cost"].mean().map(math.exp)  # one that never gets there: NaN
    return means.sort_values(na_position="last").reset_index(), target


def _on_validation(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(accuracy=table["validation_accuracy"])


def decided_factor(file: Path, settings: Sequence[str], seed: int, data_root: Path | None) -> float:
    """That of what the controller decides under a seed of a file.

    Every device has an account of its own here, which takes seconds by `pld`: those that are worst by `rdp`, at the
    noise that `rdp` asks for, are looked at.
    """
    run = Experiment.from_file(file, ["method=h2fdp-adaptive", *settings], seed).prepare(data_root)
    privacy, accounts = run.config.privacy, planned_accounts(run)
    rough, close = (partial(_epsilon, ACCOUNTANTS[name], privacy.delta) for name in ("rdp", privacy.accountant))
    held = [each.composition for name in privacy.target_observers for each in accounts.classes(name)]
    safe = smallest_factor(held, privacy.epsilon, rough)
    distinct = {tuple(sorted(each.items())): scaled(each, safe) for each in held}
    worst = sorted(distinct.values(), key=rough, reverse=True)[:LOOKED_AT]
    return safe * smallest_factor(worst, privacy.epsilon, close)


def _epsilon(accountant: Any, delta: float, composition: Any) -> float:
    return float(accountant.epsilon(composition, delta))


def summed_up(searched: Table, contrast: Table | None, weighed: Table, data_root: Path | None) -> dict[str, Any]:
    """Everything that is written down, from the tables of the three studies."""
    chosen = best_of(searched)
    weights, target = costs(weighed.rows)
    alphas = {key: float(weights.iloc[0][key]) for key in ALPHAS}
    settings = settings_of(chosen)
    file = FOLDER.parent / "fig5.yaml"
    seeds = yaml.safe_load(file.read_text())["sweep"]["seed"]
    factors = {seed: decided_factor(file, [*settings, *settings_of(alphas)], seed, data_root) for seed in seeds}
    return {
        "chosen": chosen | alphas,
        "factors": {seed: math.ceil(1000 * factor) / 1000 for seed, factor in factors.items()},  # of fig5.yaml
        "runs": {"open_parameters": searched.runs, "open_alphas": weighed.runs},
        "validation_accuracy": scores(searched.rows, OPEN).round(4).to_dict("records"),
        "methods": [] if contrast is None else scores(contrast.rows, METHODS).round(4).to_dict("records"),
        "target": round(target, 2),
        "costs": weights.round(3).astype(object).where(weights.notna(), None).to_dict("records"),
    }


def best_of(searched: Table) -> dict[str, Any]:
    """Batch size, clip norm and step size of the best candidate."""
    best = scores(searched.rows, OPEN).iloc[0]
    return {key: float(best[key]) for key in OPEN} | {OPEN[0]: int(best[OPEN[0]])}


def settings_of(chosen: dict[str, Any]) -> list[str]:
    """As `--set` takes them."""
    return [f"{key}={value}" for key, value in chosen.items()]


def main() -> None:
    """Search, then write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/open"))
    asked = parser.parse_args()

    def table(name: str, *settings: str) -> Table:
        done = h2fdp.sweep(
            FOLDER / f"{name}.yaml", settings, asked.out / name, data_root=asked.data_root, jobs=asked.jobs
        )
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        return Table(done.table, f"{len(done.runs)} of {len(done.names)}")

    searched = table("open_parameters")
    settings = settings_of(best_of(searched))
    contrast = table("fig4", *settings, "data.validation=0.1", "sweep.seed=[101, 102]")
    found = summed_up(searched, contrast, table("open_alphas", *settings), asked.data_root)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
