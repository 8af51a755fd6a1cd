"""The Python interface of a sweep."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from h2fdp.config import Document
from h2fdp.data.federated import FederatedData
from h2fdp.data.source import Given, Pool
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting, named_document, parse_setting
from h2fdp.records.atomic import replacing
from h2fdp.records.tables import read_table
from h2fdp.reports.paper import over_key, paper_table
from h2fdp.reports.sweep_numbers import sweep_numbers
from h2fdp.run.api import Experiment
from h2fdp.run.result import Run
from h2fdp.sweeps.conduct import conduct
from h2fdp.sweeps.grid import SWEEP
from h2fdp.sweeps.plan import SharedInputs, SweepPlan, planned_sweep
from h2fdp.sweeps.pool import SilentWatcher, WorkOptions
from h2fdp.sweeps.task import Outcome, SweepDirectory
from h2fdp.wording import COLUMNS, LEFT, advance, progress_bar, table_html, words_of

if TYPE_CHECKING:
    import pandas as pd
    from tqdm import tqdm


WHERE = "sweep"


def sweep_of_experiment(
    experiment: Experiment, grid: Mapping[str, Sequence[Any]], folder: Path, shared: SharedInputs
) -> SweepPlan:
    """The grid of an experiment's settings.

    Args:
        grid: dotted key -> values, as under `sweep:` in a file.
        folder: where records that only Python has are written, for the runs to read.

    Raises:
        UserError: an experiment of a run directory; keys of a network that is given as drawn; wrong values.
    """
    document, settings = document_of(experiment, folder)
    inside = [key for each in grid for key in map(str.strip, each.split(",")) if key.startswith("topology.")]
    if experiment.written and experiment.written.drawn and inside:
        text = "this network is given as it was drawn; expected topology=FILE in the experiment, whose keys can vary"
        raise UserError(text, WHERE, inside[0])
    return planned_sweep(document, [*settings, grid_setting(grid)], shared)


def document_of(experiment: Experiment, folder: Path) -> tuple[Document, tuple[Setting, ...]]:
    """The file that an experiment is of, with its settings.

    Args:
        folder: where records that only Python has are written.

    Raises:
        UserError: an experiment of a run directory.
    """
    written = experiment.written
    if written is None:
        raise UserError("expected an experiment of a file or of Experiment(...), found one of a run", key=WHERE)
    document = written.document.copy()
    if isinstance(experiment.config.data, Given) or getattr(experiment.config.data, "from_python", False):
        document.set("data", _in_a_file(experiment, folder), WHERE)
    return document, written.settings


def grid_setting(grid: Mapping[str, Sequence[Any]]) -> Setting:
    """The setting that replaces a document's grid.

    Raises:
        UserError: values of a key that are no sequence; a text is one of letters, which is never meant.
    """
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UserError(f"expected a list of values, [{values!r}], found {values!r}", WHERE, key)
    return Setting(SWEEP, {key: list(values) for key, values in grid.items()}, WHERE)


def _in_a_file(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """The `data:` section of an archive with the experiment's records."""
    section = experiment.config.data
    if isinstance(section, Given):
        pool = section.load()
        spread = section.partition_of(pool)
        stated = section.model_dump(mode="json", exclude_none=True, exclude={"name", "partition"})
    else:
        data = experiment.records(None)
        assert isinstance(data, FederatedData), "a function's records are held"
        owners = np.empty(len(data.train), dtype=np.int64)
        owners[data.order] = np.repeat(np.arange(data.devices), data.sizes)
        pool = Pool(data.train, data.test, data.classes, data.scaling, owners=owners, target=data.target)
        spread, stated = "natural", {}
    arrays: dict[str, np.ndarray] = {}
    for part, records in (("train", pool.train), ("test", pool.test), ("validation", pool.validation)):
        if records is not None:
            arrays |= {f"x_{part}": _stored(pool, records.x), f"y_{part}": records.y}
    if spread == "natural" and pool.owners is not None:
        arrays["device_train"] = pool.owners
        if pool.test_owners is not None:
            arrays["device_test"] = pool.test_owners
    written = spread if isinstance(spread, str) else spread.model_dump(mode="json", exclude_none=True)
    digest = blake2b(digest_size=6)
    for name, array in arrays.items():
        digest.update(name.encode() + str(array.shape).encode() + np.ascontiguousarray(array).view(np.uint8).data)
    path = (folder / f"data-{digest.hexdigest()}.npz").absolute()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    labels: dict[str, Any] = {"classes": pool.classes}
    if (target := pool.target).task == "regression":
        labels = {"ranges": {"y": [target.shift - target.scale, target.shift + target.scale]}}
    return {"name": "npz", "path": str(path), **labels, "task": target.task, "partition": written, **stated}


def _stored(pool: Pool, x: np.ndarray) -> np.ndarray:
    """Inputs as an archive's reader takes them: bytes, or what the model sees."""
    usual = pool.scaling.divisor == (255.0 if x.dtype == np.uint8 else 1.0)
    if usual and set(pool.scaling.mean) == {0.0} and set(pool.scaling.deviation) == {1.0}:
        return x
    return np.asarray(x * pool.scaling.scale + pool.scaling.shift, dtype=np.float32)


@dataclass(frozen=True)
class Sweep:
    """A sweep, read from its directory.

    Attributes:
        names: the points of the grid, by the names of their folders.
    """

    directory: Path
    names: tuple[str, ...]

    def __repr__(self) -> str:
        done = len(SweepDirectory(self.directory).finished(self.names))
        return f"{type(self).__name__}({str(self.directory)!r}: {done} of {len(self.names)} runs done)"

    @property
    def table(self) -> pd.DataFrame:
        """A row for each finished run and interval: the run, the swept values, the metrics."""
        frame: pd.DataFrame = read_table(SweepDirectory(self.directory).table).to_pandas()
        return frame

    @property
    def summary(self) -> pd.DataFrame:
        """Means over seeds, with Student's 95 % intervals: for each combination of the other values, each interval."""
        frame: pd.DataFrame = read_table(SweepDirectory(self.directory).summary).to_pandas()
        return frame

    @property
    def runs(self) -> dict[str, Run]:
        """The finished runs by point, in the order of the grid."""
        directory = SweepDirectory(self.directory)
        return {name: Run(directory.run(name)) for name in directory.finished(self.names)}

    def results(self, target: float | None = None, against: str | None = None) -> pd.DataFrame:
        """The results of each point: means over seeds with half of their 95 % intervals, as texts.

        Args:
            target: a test accuracy, RMSE or perplexity, of what the runs are judged by; adds what it took to reach it.
            against: `key=value`: the differences from the runs that have this value, seed by seed.
        """
        import pandas as pd

        return pd.DataFrame(paper_table(sweep_numbers(self.directory, target, against)).texts())

    def plot(self, path: str | Path, x: str | None = None, line: str | None = None, y: str | None = None) -> Path:
        """Draw a measure over a swept key with 95 % error bars into a .pdf, .png or .svg file.

        Args:
            x, line: a swept key along the axis, and one with a line for each value; chosen by what varies.
        """
        from h2fdp.reports.pictures import write_figure

        return write_figure(over_key(sweep_numbers(self.directory), x, line, y), Path(path))

    def report(self, out: str | Path | None = None, *, with_private: bool = False) -> Path:
        """Write a page about this sweep; see `h2fdp.report`. By default it is `report.html` in its directory."""
        from h2fdp.reports import report

        return report(self.directory, out, with_private=with_private)

    def _repr_html_(self) -> str:
        """The view in notebooks: a row for each point."""
        done = self.runs
        rows = paper_table(sweep_numbers(self.directory)).texts() if done else []
        return table_html(f"sweep {self.directory}: {len(done)} of {len(self.names)} runs", rows)

    @property
    def failures(self) -> dict[str, str]:
        """The errors of failed runs, by point."""
        paths = {name: SweepDirectory(self.directory).failure(name) for name in self.names}
        return {name: path.read_text() for name, path in paths.items() if path.is_file()}


_SECONDS_BETWEEN_LINES = 30.0


class SweepProgress(SilentWatcher):
    """Counts what a sweep has done and what is left; a line for each run that ends, and one now and then until then.

    Args:
        bar: a live line, which may be disabled.
        say: takes the other lines; null for none.
    """

    def __init__(self, bar: tqdm, say: Callable[[str], None] | None = None) -> None:
        self.runs = self.finished = self.failed = 0
        self.rows: dict[str, dict[str, Any]] = {}  # the newest row of each running run
        self._early: Counter[str] = Counter()  # why runs ended before their last interval
        self._write, self._bar, self._last = say, bar, time.monotonic()

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        self.runs, self.finished = runs, finished
        self._bar.reset(runs)
        if finished:
            self._say(f"{finished} of {runs} runs are finished already")

    def started(self, name: str, done: int, intervals: int) -> None:
        self.rows[name] = {}

    def interval(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row
        words = f"{self.words()}  {name} {row['interval']}  {words_of(row)}"
        self._show(words)
        if self._bar.disable and time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._say(words)

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        begun = f"{ending(name, outcome, again)}  "
        line = f"{begun}{words_of(self.rows.pop(name), most=COLUMNS - len(begun))}".rstrip()
        self.finished += outcome.finished or bool(outcome.ended_early)
        self.failed += bool(outcome.error) and not again
        if outcome.ended_early:
            self._early[outcome.ended_early] += 1
        self._say(f"{line}\n  {self.words()}")
        self._show(self.words())

    def words(self) -> str:
        """All of it in a line."""
        parts = [f"{self.finished}/{self.runs} runs done", *(f"{count} {why}" for why, count in self._early.items())]
        if self.rows:
            parts.append(f"{len(self.rows)} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return "  ".join(parts)

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        if self._write is not None:
            self._write(text)

    def _show(self, words: str) -> None:
        _, *parts = words.split("  ")  # the bar itself says how many are done
        while parts and len("  ".join(parts)) > shutil.get_terminal_size().columns - LEFT:  # no word is cut
            parts.pop()
        advance(self._bar, self.finished + self.failed, "  ".join(parts))


def ending(name: str, outcome: Outcome, again: bool) -> str:
    """The end of a run, in a line."""
    if not outcome.error:
        return f"{name}: {outcome.ended_early or outcome.state}"
    return f"{name}: failed ({outcome.reason})" + ("; it will be tried again" if again else "")


def sweep(
    file: str | Path | Experiment,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    data_root: str | Path | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Sweep:
    """Run the grid of a file's `sweep:` section, or of an experiment that Python made, or what is left of it.

    Args:
        file: a study's file, or an `Experiment`, whose records from Python are written next to the sweep's directory.
        grid: dotted key -> values, `{"seed": [1, 2, 3], "privacy.epsilon": [1, 4]}`; of a file, instead of its own.
        progress: show how many runs are done; null: in notebooks and on terminals.
        settings: as `--set` takes them; `sweep.seed=[1, 2]` changes the grid.
        out: the sweep's directory, by default `sweeps/<name>`.
        jobs: runs at a time, by default one for each CPU; with 1, one after another in this process.
        overwrite: replace runs whose configuration or code has changed.

    Returns:
        The sweep; runs that failed are in its `failures`.

    Raises:
        UserError: a wrong value in any run of the grid; runs that are there and would differ now; a directory that
            holds something else, or is in use.
    """
    shared = SharedInputs(None if data_root is None else Path(data_root))
    if isinstance(file, Experiment):
        if settings:
            raise UserError("an Experiment has its settings; expected none, or a file", key="settings")
        if not grid:
            raise UserError('expected grid={"seed": [1, 2, 3], ...}, what the runs differ in', key="grid")
        folder = Path("sweeps") if out is None else Path(out).parent
        study = sweep_of_experiment(file, grid, folder, shared)
    else:
        changes = [parse_setting(each) for each in settings] + ([] if grid is None else [grid_setting(grid)])
        study = planned_sweep(named_document(Path(file)), changes, shared)
    directory = study.directory if out is None else Path(out)
    with progress_bar(1, progress) as bar:
        conduct(study, directory, shared, WorkOptions(jobs, overwrite, SweepProgress(bar)))
    return Sweep(directory, tuple(planned.point.name for planned in study.runs))
