"""`check`: a run directory, or that of a sweep or a search with all of its runs."""

from __future__ import annotations

from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.integrity.findings import Findings
from h2fdp.integrity.runs import check_run, is_run
from h2fdp.integrity.searches import check_search
from h2fdp.integrity.sweeps import check_sweep


def check(path: str | Path) -> Findings:
    """Whether a run directory is whole: every file by its checksums, the privacy accounts recomputed from the ledger.

    Nothing is written. What needs no file that is damaged is still checked.

    Args:
        path: of a run; of a sweep or of a search: then of all runs that it has begun.

    Raises:
        UserError: it is none of these; a process is writing to it.
    """
    directory = Path(path)
    if (directory / "sweep.json").is_file():
        return check_sweep(directory)
    if (directory / "tune.json").is_file():
        return check_search(directory)
    if not directory.is_dir():
        raise UserError("no such directory", str(directory))
    if not is_run(directory):
        text = "neither a run directory nor a sweep's or a search's (expected config.yaml, sweep.json or tune.json)"
        raise UserError(text, str(directory))
    return check_run(directory)
