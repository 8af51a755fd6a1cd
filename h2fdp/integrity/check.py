"""`check`: a run directory, or a sweep's with all of its runs."""

from __future__ import annotations

from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.integrity.accounts import check_accounts
from h2fdp.integrity.files import ENDED, check_files
from h2fdp.integrity.findings import Findings
from h2fdp.records import RunDirectory, in_use
from h2fdp.records.summary import SUMMARY
from h2fdp.records.tables import read_table
from h2fdp.sweeps.directory import SweepDirectory, read_entries


def check(path: str | Path) -> Findings:
    """Whether a run directory is whole: every file by its checksums, the privacy accounts recomputed from the ledger.

    Nothing is written. What needs no file that is damaged is still checked.

    Args:
        path: of a run, or of a sweep: then of all runs that it has begun.

    Raises:
        UserError: it is neither; a process is writing to it.
    """
    directory = Path(path)
    if (directory / "sweep.json").is_file():
        return _of_sweep(directory)
    if not directory.is_dir():
        raise UserError("no such directory", str(directory))
    if (directory / "tune.json").is_file():
        text = "a search, whose trials are runs; expected one of these, as"
        raise UserError(f"{text} {directory / 'runs' / 'trial-0000'}", str(directory))
    if not (directory / "config.yaml").is_file() and not (directory / SUMMARY).is_file():
        raise UserError("neither a run directory nor a sweep's (expected config.yaml or sweep.json)", str(directory))
    return _of_run(directory)


def _of_run(path: Path) -> Findings:
    if in_use(path):
        raise UserError("a run is writing to this directory; check it when that has ended", str(path))
    findings = Findings(path)
    files = check_files(RunDirectory(path), findings)
    with findings.noting():
        check_accounts(RunDirectory(path), files, findings)
    return findings


def _of_sweep(path: Path) -> Findings:
    if in_use(path):
        raise UserError("a sweep is writing to this directory; check it when that has ended", str(path))
    findings, directory = Findings(path, "sweep"), SweepDirectory(path)
    names: list[str] = []
    with findings.noting():
        names = list(read_entries(directory))
    begun = sorted(each.name for each in (path / "runs").iterdir()) if (path / "runs").is_dir() else []
    for name in dict.fromkeys([*names, *begun]):
        if (directory.run(name) / "config.yaml").is_file() or (directory.run(name) / SUMMARY).is_file():
            findings.runs[name] = _of_run(directory.run(name))
    with findings.noting():
        _compare_tables(directory, findings)
    return findings


def _compare_tables(directory: SweepDirectory, findings: Findings) -> None:
    """The sweep's table against the metrics that it was made from."""
    if not directory.table.is_file():
        findings.unknown.append("tables of the sweep: not written yet")
        return
    table = read_table(directory.table)
    read_table(directory.summary)
    if "run" not in table.column_names:
        return
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(table.column("run").to_pylist()):
        rows.setdefault(name, []).append(row)
    for name, own in rows.items():
        run = findings.runs.get(name)
        if run is None or run.state not in ENDED or any("metrics.parquet" in each.where for each in run.problems):
            continue
        metrics = read_table(RunDirectory(directory.run(name)).metrics)
        shared = [column for column in metrics.column_names if column in table.column_names]
        same = all(table.column(each).take(own).to_pylist() == metrics.column(each).to_pylist() for each in shared)
        findings.expect(same, f"its rows of the run {name} are not those of {name}'s metrics", directory.table)
    findings.confirmed.append(f"tables of {len(rows)} runs")
