"""Results of a search: its directory, the table of its trials, and files with the best values."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from h2fdp.config.parsing import text_of
from h2fdp.costs.kinds import bounded
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import Setting
from h2fdp.records import noise_key
from h2fdp.records.atomic import read_checked_json, replacing, write_checked_json, write_text
from h2fdp.records.directory import LOCK, Inside, has_content, in_use
from h2fdp.records.tables import read_table, write_table
from h2fdp.sweeps.conduct import column_of
from h2fdp.sweeps.grid import word
from h2fdp.sweeps.plan import written_out
from h2fdp.sweeps.task import DirectoryOfRuns
from h2fdp.tuning.plan import Drawn, TunePlan
from h2fdp.tuning.price import TUNE, within
from h2fdp.wording import SCORES

SCHEMA_VERSION = 2  # 1 had no checksum
COLUMNS = bounded()


@dataclass(frozen=True)
class TuneDirectory(DirectoryOfRuns):
    """Paths of one tuning's directory, whose runs have the names of their trials."""

    plan = Inside("tune.yaml")  # the file, settings written in
    state = Inside("tune.json")  # the parts of the search, and its results
    journal = Inside("optuna.log")  # Optuna's storage: the trials that have ended
    secret = Inside("secret")  # the key of secret draws, readable by its owner alone
    best = Inside("best.yaml")  # with the best values, ready to run
    front = Inside("front")  # the folder of the files of all trials that no other one beats
    table = Inside("trials.parquet")  # a row for each trial; a `.csv` stands next to it

    def facts(self, name: str) -> Path:
        """The file of a trial's facts from before it ran."""
        return self.path / "facts" / f"{name}.json"


def name_of(number: int) -> str:
    """A trial as files call it.

    >>> name_of(7)
    'trial-0007'
    """
    return f"trial-{number:04d}"


@dataclass(frozen=True)
class Trial:
    """The end of a trial.

    Attributes:
        drawn: axis -> what was drawn.
        state: `done`, `pruned`, `over a limit` or `failed`.
        score: on validation records, at the end, the larger the better (see `signed`); with the noise of the account
            where there is one.
        costs: joules, seconds and bytes of the whole run.
        checks: score at the quarters of its intervals that were reached.
        reason: why it failed.
    """

    number: int
    drawn: Mapping[str, Drawn]
    state: str
    score: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    checks: Sequence[float] = ()
    reason: str = ""


LEAST = -1e300  # a score of nothing; Optuna takes no infinite ones


def signed(measure: str, value: float) -> float:
    """A value of a measure as a score: the larger the better; the least where it is no number.

    >>> signed("accuracy", 0.5), signed("rmse", 3.0), signed("rmse", math.inf)
    (0.5, -3.0, -1e+300)
    """
    score = SCORES[measure].signed(value)
    return LEAST if math.isnan(score) else max(score, LEAST)


def _in_order(trial: Trial) -> float:
    return LEAST if trial.score is None else trial.score


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The best one that came to its end within the limits; of equal ones the first. None where none did."""
    done = [trial for trial in trials if trial.state == "done"]
    return max(done, key=lambda trial: (_in_order(trial), -trial.number), default=None)


def front_of(trials: Sequence[Trial], costs: Sequence[str]) -> list[Trial]:
    """The trials that came to their ends and that no other one beats in score and all costs, the best first."""
    done = [trial for trial in trials if trial.state == "done"]
    of_each = [(-_in_order(trial), *(trial.costs[name] for name in costs)) for trial in done]
    values = np.array(of_each).reshape(len(done), 1 + len(costs))
    beaten = (values <= values[:, None]).all(axis=2) & (values != values[:, None]).any(axis=2)  # the row by the column
    best = np.flatnonzero(~beaten.any(axis=1)).tolist()
    return [done[at] for at in sorted(best, key=of_each.__getitem__)]


def check_usable(directory: TuneDirectory, plan: TunePlan, *, overwrite: bool) -> None:
    """Refuse a directory of something else or of another search; with `overwrite`, one of another search gives way.

    Raises:
        UserError: see above, or a trial in it is being computed.
    """
    where, path = str(directory.path), directory.path
    taken = has_content(path, "search", where)
    if not directory.state.is_file():
        if taken:
            raise UserError("the directory contains something other than a search; choose another --out", where)
        return
    before = read_state(directory)
    if before.get("digest") == plan.digest():
        return
    if not overwrite:
        text = "the search in this directory is of another file, other settings or other code"
        hint = "add --overwrite (overwrite=True) to begin again, or choose another --out"
        raise UserError([Problem(text, where), Problem(hint)])
    if any(in_use(run) for run in (path / "runs").glob("*")):
        raise UserError("another search is writing to this directory", where)
    for each in path.iterdir():
        if each.name != LOCK:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def read_state(directory: TuneDirectory) -> dict[str, Any]:
    """The contents of `tune.json`.

    Raises:
        UserError: it is not there, or damaged.
    """
    values = read_checked_json(directory.state)
    if values is None:
        raise UserError("not the directory of a search (expected tune.json)", str(directory.path))
    return values


def write_state(directory: TuneDirectory, values: dict[str, Any]) -> None:
    """Replace `tune.json`."""
    write_checked_json(directory.state, {"schema_version": SCHEMA_VERSION} | values, indent=1)


def secret_of(directory: TuneDirectory, plan: TunePlan) -> bytes:
    """The key under which an account needs the number of trials, their settings and the noise of scores to be drawn.

    It is new for each search; empty where nothing must be secret, or where the file has its noise drawn by the seed.
    """
    if not plan.price.covered or plan.config.privacy.noise_key == "seed":
        return b""
    try:
        return bytes.fromhex(directory.secret.read_text())
    except FileNotFoundError:
        key = noise_key.drawn()
        write_text(directory.secret, key.hex() + "\n", private=True)
        return key


def write_results(plan: TunePlan, directory: TuneDirectory, trials: Sequence[Trial], *, finished: bool) -> None:
    """Write the table of the trials that have ended, and once all have, the rest.

    Raises:
        UserError: no trial is within the limits; no noise of a final run keeps to the account.
    """
    table = table_of(plan, trials)
    write_table(directory.table, pa.Table.from_pandas(table, preserve_index=False))
    with replacing(directory.table.with_suffix(".csv")) as file:
        file.write(table.to_csv(index=False).encode())
    best = best_of(trials)
    front = front_of(trials, plan.section.costs or ("joules",))
    if not finished:
        return
    state = {"digest": plan.digest(), "name": plan.name, "finished": True, "price": plan.price.sentences()}
    if best is None:
        write_state(directory, state | {"best": None, "front": []})
        raise UserError(_why_none(trials), str(directory.path))
    written = _written(plan, directory.best, best)
    shutil.rmtree(directory.front, ignore_errors=True)
    others = []
    if plan.section.costs:
        directory.front.mkdir()
        others = [_written(plan, directory.front / f"{name_of(each.number)}.yaml", each) for each in front]
    write_state(directory, state | {"best": written, "front": others})


def _why_none(trials: Sequence[Trial]) -> str:
    over = sum(trial.state == "over a limit" for trial in trials)
    failed = [trial for trial in trials if trial.state == "failed"]
    text = f"no trial is best: of {len(trials)}, {over} exceeded a limit and {len(failed)} failed"
    return f"{text}; the first failure: {failed[0].reason}" if failed else f"{text}; expected higher tune.limits"


def _written(plan: TunePlan, path: Path, trial: Trial) -> dict[str, Any]:
    """Write the file of a trial's values, ready to run; the answer says what it is, for machines."""
    settings = plan.final_settings(trial.drawn)
    epsilon = None
    if plan.price.budget is not None:  # what is left for a final run under the account of the search
        epsilon = within(plan.shared.prepare(*plan.experiment(settings)), plan.price.budget.bounds).target
    if epsilon is not None:
        settings = (*settings, Setting("privacy.epsilon", epsilon, "tune"))
    values = written_out(plan.document, settings)
    del values[TUNE]
    sweep = values.pop("sweep", {}) if plan.price.covered else {}  # its runs would all be releases
    tried = plan.space.values(trial.drawn)
    reached = f"{plan.measure} unknown"
    if (value := plan.measured(trial.score)) is not None:
        reached = f"accuracy {100 * value:.2f} %" if plan.measure == "accuracy" else f"{plan.measure} {value:.5g}"
    secret = plan.price.law is not None  # then the best trial may be shown, but not which one it was
    which = "the best trial" if secret else f"trial {trial.number}"
    comment = [f"{which} of the search of {plan.name}: validation {reached}"]
    comment += [f"{key}: {word(value)}" for key, value in tried.items()]
    comment += plan.price.sentences()
    if epsilon is not None:
        comment.append("so privacy.epsilon is what is left for one run; a second one is not covered")
    if sweep:
        comment.append("so the sweep: section of the search's file is left out")
    text = "".join(f"# {line}\n" for line in comment)
    write_text(path, text + text_of(values))
    found = {"trial": trial.number, f"validation_{plan.measure}": value, **trial.costs}
    return found | {"values": tried, "file": str(path), "epsilon": epsilon}


def table_of(plan: TunePlan, trials: Sequence[Trial]) -> pd.DataFrame:
    """A row for each trial: its number and state, its measure and costs, and a column for each key that is searched."""
    columns: dict[str, Any] = {
        "trial": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        f"validation_{plan.measure}": pd.array([plan.measured(trial.score) for trial in trials], dtype="Float64"),
    }
    for cost in COLUMNS:
        columns[cost] = pd.array([trial.costs.get(cost) for trial in trials], dtype="Float64")
    values = [plan.space.values(trial.drawn) for trial in trials]
    columns |= {key: column_of([each[key] for each in values]).to_pandas() for key in plan.space.keys}
    columns["reason"] = [trial.reason or None for trial in trials]
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Tuned:
    """A search that has ended, read from its directory."""

    directory: Path

    @property
    def _files(self) -> TuneDirectory:
        return TuneDirectory(self.directory)

    @property
    def trials(self) -> pd.DataFrame:
        """A row for each trial: state, validation accuracy (or RMSE), costs, and the values it tried."""
        frame: pd.DataFrame = read_table(self._files.table).to_pandas()
        return frame

    @property
    def best(self) -> dict[str, Any] | None:
        """The best trial: its number, measure, costs, `values` by key and `file`; None where there is none."""
        best: dict[str, Any] | None = read_state(self._files).get("best")
        return best

    @property
    def front(self) -> list[dict[str, Any]]:
        """The trials that no other one beats in all of several objectives, each like `best`."""
        front: list[dict[str, Any]] = read_state(self._files).get("front", [])
        return front

    @property
    def price(self) -> list[str]:
        """The sentences on what the search reveals, and on the cost of that."""
        price: list[str] = read_state(self._files).get("price", [])
        return price

    @property
    def file(self) -> Path:
        """The experiment file with the best values, ready to run."""
        return self._files.best
