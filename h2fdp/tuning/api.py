"""The Python interface of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2fdp.records.tables import read_table
from h2fdp.sweeps.pool import WorkOptions
from h2fdp.sweeps.study import SharedInputs
from h2fdp.tuning.plan import read_plan
from h2fdp.tuning.results import TuneDirectory, read_state
from h2fdp.tuning.search import conduct

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Tuned:
    """A search that has ended, read from its directory."""

    directory: Path

    @property
    def trials(self) -> pd.DataFrame:
        """A row for each trial: state, validation accuracy, joules, seconds, bytes, and the values that it tried."""
        frame: pd.DataFrame = read_table(TuneDirectory(self.directory).table).to_pandas()
        return frame

    @property
    def best(self) -> dict[str, Any] | None:
        """The best trial: its number, accuracy, costs, `values` by key and `file`; None where there is none."""
        best: dict[str, Any] | None = read_state(TuneDirectory(self.directory)).get("best")
        return best

    @property
    def front(self) -> list[dict[str, Any]]:
        """With several objectives: the trials that no other one beats in all of them, each like `best`."""
        front: list[dict[str, Any]] = read_state(TuneDirectory(self.directory)).get("front", [])
        return front

    @property
    def price(self) -> list[str]:
        """What the search reveals, and what that costs."""
        price: list[str] = read_state(TuneDirectory(self.directory)).get("price", [])
        return price

    @property
    def file(self) -> Path:
        """The experiment file with the best values, ready to run."""
        return TuneDirectory(self.directory).best

    @property
    def picture(self) -> Path:
        """Accuracy over cost."""
        return TuneDirectory(self.directory).picture


def tune(
    file: str | Path,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    *,
    data_root: str | Path | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
) -> Tuned:
    """Search the ranges of a file's `tune:` section, or go on with that.

    Args:
        settings: as `--set` takes them; `tune.trials=50` changes the search.
        out: its directory, by default `tunes/<name>`.
        jobs: trials at a time, by default one for each CPU; with 1, one after another in this process.
        overwrite: begin again where the directory has another search.

    Raises:
        UserError: a wrong value; a search that is not covered by the account that it asks for; a directory of something
            else, or in use; no trial within the limits.
    """
    shared = SharedInputs()
    plan = read_plan(Path(file), settings, shared)
    directory = plan.directory if out is None else Path(out)
    root = None if data_root is None else Path(data_root)
    conduct(plan, directory, shared, WorkOptions(root, jobs, overwrite))
    return Tuned(directory)
