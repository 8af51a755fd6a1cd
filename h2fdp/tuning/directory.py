"""A tuning's directory: its file, its state, its trials, and what was found."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2fdp.errors import Problem, UserError
from h2fdp.records import RunDirectory, in_use
from h2fdp.records.atomic import write_text
from h2fdp.records.json_lines import json_values
from h2fdp.run import noise_key
from h2fdp.tuning.plan import TunePlan

SCHEMA_VERSION = 1
_KEY_BYTES = 16


@dataclass(frozen=True)
class TuneDirectory:
    """Paths of one tuning's directory."""

    path: Path

    @property
    def plan(self) -> Path:
        """The file, settings written in."""
        return self.path / "tune.yaml"

    @property
    def state(self) -> Path:
        """What the search is made of, and what it found."""
        return self.path / "tune.json"

    @property
    def journal(self) -> Path:
        """Optuna's storage: the trials that have ended."""
        return self.path / "optuna.log"

    @property
    def secret(self) -> Path:
        """The key of draws that nobody may know, readable by its owner alone."""
        return self.path / "secret"

    @property
    def best(self) -> Path:
        """The file with the best values, ready to run."""
        return self.path / "best.yaml"

    @property
    def front(self) -> Path:
        """The folder of the files of all trials that no other one beats."""
        return self.path / "front"

    @property
    def table(self) -> Path:
        """A row for each trial; `.csv` beside it."""
        return self.path / "trials.parquet"

    @property
    def picture(self) -> Path:
        """Accuracy over cost."""
        return self.path / "pareto.png"

    def run(self, number: int) -> Path:
        """The run directory of a trial."""
        return self.path / "runs" / name_of(number)

    def facts(self, number: int) -> Path:
        """What was known of a trial before it ran."""
        return self.path / "facts" / f"{name_of(number)}.json"

    def failure(self, number: int) -> Path:
        """What a trial failed with."""
        return self.path / "failures" / f"{name_of(number)}.txt"


def name_of(number: int) -> str:
    """A trial as files call it.

    >>> name_of(7)
    'trial-0007'
    """
    return f"trial-{number:04d}"


def default_directory(plan: TunePlan) -> Path:
    """The default directory of a tuning."""
    return Path("tunes") / plan.name


def check_usable(directory: TuneDirectory, plan: TunePlan, *, overwrite: bool) -> None:
    """Refuse a directory of something else or of another search; with `overwrite`, one of another search gives way.

    Raises:
        UserError: see above, or a trial in it is being computed.
    """
    where, path = str(directory.path), directory.path
    if path.exists() and not path.is_dir():
        raise UserError("expected a directory for the search, found a file", where)
    if not directory.state.is_file():
        if path.is_dir() and any(each.name != ".lock" for each in path.iterdir()):
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
        if each.name != ".lock":
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def read_state(directory: TuneDirectory) -> dict[str, Any]:
    """What `tune.json` says.

    Raises:
        UserError: it is not there, or damaged.
    """
    try:
        values: dict[str, Any] = json.loads(directory.state.read_text())
        return values
    except FileNotFoundError:
        raise UserError("not the directory of a search (expected tune.json)", str(directory.path)) from None
    except (OSError, ValueError) as error:
        raise UserError(f"damaged ({error}); choose another --out", str(directory.state)) from None


def write_state(directory: TuneDirectory, values: dict[str, Any]) -> None:
    """Replace `tune.json`."""
    write_text(directory.state, json.dumps(json_values({"schema_version": SCHEMA_VERSION} | values), indent=1) + "\n")


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


def rows_of_run(run: Path) -> list[dict[str, Any]]:
    """The recorded metrics of a run, interval by interval; empty where there are none."""
    from h2fdp.records.tables import read_table

    path = RunDirectory(run).metrics
    rows: list[dict[str, Any]] = read_table(path).to_pylist() if path.is_file() else []
    return rows
