"""The Python interface of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from h2fdp.records.tables import read_table
from h2fdp.run.result import Run
from h2fdp.sweeps.conduct import SweepOptions, conduct, default_directory, jobs_of
from h2fdp.sweeps.directory import SweepDirectory
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.study import read_study

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sweep:
    """A sweep, read from its directory.

    Attributes:
        names: the points of the grid, by the names of their folders.
    """

    directory: Path
    names: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each finished run and interval: the run, the swept values, the metrics."""
        frame: pd.DataFrame = read_table(SweepDirectory(self.directory).table).to_pandas()
        return frame

    @property
    def summary(self) -> pd.DataFrame:
        """Means over seeds with Student's 95 % intervals, for each combination of the other values and each interval."""
        frame: pd.DataFrame = read_table(SweepDirectory(self.directory).summary).to_pandas()
        return frame

    @property
    def runs(self) -> dict[str, Run]:
        """The finished runs by point, in the order of the grid."""
        directory = SweepDirectory(self.directory)
        return {name: Run(directory.run(name)) for name in directory.finished(self.names)}

    @property
    def failures(self) -> dict[str, str]:
        """What runs failed with, by point."""
        paths = {name: SweepDirectory(self.directory).failure(name) for name in self.names}
        return {name: path.read_text() for name, path in paths.items() if path.is_file()}


def sweep(
    file: str | Path,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    *,
    data_root: str | Path | None = None,
    jobs: int | None = None,
    inline: bool = False,
    overwrite: bool = False,
) -> Sweep:
    """Run the grid of a file's `sweep:` section, or what is left of it.

    Args:
        settings: as `--set` takes them; `sweep.seed=[1, 2]` changes the grid.
        out: the sweep's directory, by default `sweeps/<name>`.
        jobs: runs at a time, by default one for each CPU.
        inline: one after another, in this process.
        overwrite: replace runs whose configuration or code has changed.

    Returns:
        The sweep; runs that failed are in its `failures`.

    Raises:
        UserError: a wrong value in any run of the grid; runs that are there and would differ now; a directory that
            holds something else, or is in use.
    """
    shared = SharedInputs()
    study = read_study(Path(file), settings, shared)
    directory = default_directory(study) if out is None else Path(out)
    root = None if data_root is None else Path(data_root)
    conduct(study, directory, shared, SweepOptions(root, jobs_of(jobs, inline), overwrite))
    return Sweep(directory, tuple(planned.point.name for planned in study.runs))
