"""What a search leaves: the table of its trials, a picture, and files with the best values that are ready to run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.tables import write_table
from h2fdp.sweeps.directory import column_of
from h2fdp.sweeps.grid import word
from h2fdp.sweeps.study import SharedInputs, written_out
from h2fdp.tuning.directory import TuneDirectory, name_of, write_state
from h2fdp.tuning.noise_of_trials import within
from h2fdp.tuning.plan import TunePlan, values_of
from h2fdp.tuning.space import TUNE
from h2fdp.tuning.trials import Trial, best_of, front_of

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


COSTS = ("joules", "seconds", "bytes")


@dataclass(frozen=True)
class Found:
    """A file that is ready to run.

    Attributes:
        trial: whose values it has.
        values: searched key -> value.
        epsilon: `privacy.epsilon` in it, where the account of the search sets that; else None.
    """

    trial: Trial
    values: dict[str, Any]
    file: Path
    epsilon: float | None

    def told(self) -> dict[str, Any]:
        """For machines."""
        return {
            "trial": self.trial.number,
            "validation_accuracy": self.trial.accuracy,
            **{cost: self.trial.costs[cost] for cost in COSTS},
            "values": self.values,
            "file": str(self.file),
            "epsilon": self.epsilon,
        }


def write_results(
    plan: TunePlan,
    directory: TuneDirectory,
    trials: Sequence[Trial],
    shared: SharedInputs,
    data_root: Path | None,
    *,
    finished: bool,
) -> None:
    """Write the table of the trials that have ended, and once all have, the rest.

    Raises:
        UserError: no trial is within the limits; no noise of a final run keeps to the account.
    """
    _write_table(plan, directory, trials)
    best = best_of(trials, plan.section)
    front = front_of(trials, plan.section, plan.section.costs or ("joules",))
    draw(plan, trials, front, best, directory.picture)
    if not finished:
        return
    state = {"digest": plan.digest(), "name": plan.name, "finished": True, "price": plan.price.sentences()}
    if best is None:
        write_state(directory, state | {"best": None, "front": []})
        raise UserError(_why_none(trials), str(directory.path))
    found = _written(plan, directory.best, best, shared, data_root)
    shutil.rmtree(directory.front, ignore_errors=True)
    others = []
    if plan.section.costs:
        directory.front.mkdir()
        others = [
            _written(plan, directory.front / f"{name_of(each.number)}.yaml", each, shared, data_root) for each in front
        ]
    write_state(directory, state | {"best": found.told(), "front": [each.told() for each in others]})


def _why_none(trials: Sequence[Trial]) -> str:
    over = sum(trial.state == "over a limit" for trial in trials)
    failed = [trial for trial in trials if trial.state == "failed"]
    text = f"no trial is best: of {len(trials)}, {over} exceeded a limit and {len(failed)} failed"
    return f"{text}; the first failure: {failed[0].reason}" if failed else f"{text}; expected higher tune.limits"


def _written(plan: TunePlan, path: Path, trial: Trial, shared: SharedInputs, data_root: Path | None) -> Found:
    """Write the file of a trial's values."""
    settings = plan.final_settings(dict(trial.drawn))
    epsilon = _final_epsilon(plan, settings, shared, data_root)
    if epsilon is not None:
        settings = (*settings, Setting("privacy.epsilon", epsilon, "tune"))
    values = written_out(plan.document, settings)
    del values[TUNE]
    sweep = values.pop("sweep", {}) if plan.price.covered else {}  # its runs would all be releases
    found = Found(trial, values_of(plan, dict(trial.drawn)), path, epsilon)
    accuracy = "unknown" if trial.accuracy is None else f"{100 * trial.accuracy:.2f} %"
    secret = plan.price.law is not None  # then the best trial may be shown, but not which one it was
    which = "the best trial" if secret else f"trial {trial.number}"
    comment = [f"{which} of the search of {plan.name}: validation accuracy {accuracy}"]
    comment += [f"{key}: {word(value)}" for key, value in found.values.items()]
    comment += plan.price.sentences()
    if epsilon is not None:
        comment.append("so privacy.epsilon is what is left for one run; a second one is not covered")
    if sweep:
        comment.append("so the sweep: section of the search's file is left out")
    text = "".join(f"# {line}\n" for line in comment)
    write_text(path, text + yaml.safe_dump(values, sort_keys=False, width=120))
    return found


def _final_epsilon(
    plan: TunePlan, settings: tuple[Setting, ...], shared: SharedInputs, data_root: Path | None
) -> float | None:
    """The epsilon of a final run of a trial's values under the account of the search; None where there is none."""
    if plan.price.budget is None:
        return None
    config, topology = shared.experiment(plan.document, settings)
    setup = within(shared.prepare(config, topology, data_root), plan.price.budget.bounds)
    return setup.target


def _write_table(plan: TunePlan, directory: TuneDirectory, trials: Sequence[Trial]) -> None:
    table = table_of(plan, trials)
    write_table(directory.table, pa.Table.from_pandas(table, preserve_index=False))
    with replacing(directory.table.with_suffix(".csv")) as file:
        file.write(table.to_csv(index=False).encode())


def table_of(plan: TunePlan, trials: Sequence[Trial]) -> pd.DataFrame:
    """A row for each trial: its number and state, accuracy and costs, and a column for each key that is searched."""
    columns: dict[str, Any] = {
        "trial": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "validation_accuracy": pd.array([trial.accuracy for trial in trials], dtype="Float64"),
    }
    for cost in COSTS:
        columns[cost] = pd.array([trial.costs.get(cost) for trial in trials], dtype="Float64")
    values = [values_of(plan, dict(trial.drawn)) for trial in trials]
    for key in plan.space.keys:
        columns[key] = column_of([each[key] for each in values]).to_pandas()
    columns["reason"] = [trial.reason or None for trial in trials]
    return pd.DataFrame(columns)
