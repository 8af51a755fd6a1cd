"""`check` of a sweep: its runs, which of them there should be, and its tables."""

from __future__ import annotations

from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.integrity.files import ENDED
from h2fdp.integrity.findings import Findings
from h2fdp.integrity.runs import check_run, is_run
from h2fdp.records import RunDirectory, in_use
from h2fdp.records.tables import read_table
from h2fdp.run.summary import FINISHED
from h2fdp.sweeps.directory import SweepDirectory, SweepEntry, read_entries


def check_sweep(path: Path) -> Findings:
    """Every run of a sweep, and its tables against their metrics.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("a sweep is writing to this directory; check it when that has ended", str(path))
    findings, directory = Findings(path, "sweep"), SweepDirectory(path)
    entries: dict[str, SweepEntry] = {}
    with findings.noting():
        entries = read_entries(directory)
    begun = sorted(each.name for each in (path / "runs").iterdir()) if (path / "runs").is_dir() else []
    for name in dict.fromkeys([*entries, *begun]):
        if is_run(directory.run(name)):
            findings.runs[name] = check_run(directory.run(name))
        elif name in entries and entries[name].state in FINISHED:
            findings.expect(False, f"missing; {directory.state.name} says that it is done", directory.run(name))
        else:
            findings.waiting.append(name)
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
