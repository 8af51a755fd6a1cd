"""`check`: a run directory, or that of a sweep or a search with all of its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from h2fdp.config import read_document
from h2fdp.errors import UserError
from h2fdp.integrity.runs import Findings, check_run, is_run
from h2fdp.records import in_use
from h2fdp.records.tables import read_table
from h2fdp.run.state import FINISHED
from h2fdp.sweeps.directory import SweepDirectory, SweepEntry, read_entries
from h2fdp.tuning.results import TuneDirectory, name_of, read_state


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
        return _check_sweep(directory)
    if (directory / "tune.json").is_file():
        return _check_search(directory)
    if not directory.is_dir():
        raise UserError("no such directory", str(directory))
    if not is_run(directory):
        text = "neither a run directory nor a sweep's or a search's (expected config.yaml, sweep.json or tune.json)"
        raise UserError(text, str(directory))
    return check_run(directory)


def _check_sweep(path: Path) -> Findings:
    findings, directory = _of_several(path, "sweep"), SweepDirectory(path)
    entries: dict[str, SweepEntry] = {}
    with findings.noting():
        entries = read_entries(directory)
    for name in entries.keys() - findings.runs.keys():
        if entries[name].state in FINISHED:
            findings.expect(False, f"missing; {directory.state.name} says that it is done", directory.run(name))
    findings.waiting = [name for name in entries if name not in findings.runs and entries[name].state not in FINISHED]
    for table in (directory.table, directory.summary):
        with findings.noting():
            if table.is_file():
                read_table(table)
    return findings


def _check_search(path: Path) -> Findings:
    findings, directory = _of_several(path, "search"), TuneDirectory(path)
    state: dict[str, Any] = {}
    with findings.noting():
        state = read_state(directory)
    finished, best = bool(state.get("finished")), state.get("best")
    with findings.noting():
        _check_trials(directory, finished, findings)
    with findings.noting():
        _check_journal(directory, findings)
    files = [directory.plan]
    if finished:
        files += [directory.best] if best else []
        files += [directory.front / f"{name_of(each['trial'])}.yaml" for each in state.get("front") or []]
    for file in files:
        with findings.noting():
            if findings.expect(file.is_file(), "missing", file):
                read_document(file)
    if state and not finished:
        findings.waiting.append("trials that are left")
    return findings


def _of_several(path: Path, kind: str) -> Findings:
    """What is found of all runs that a sweep or a search has begun.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError(f"a {kind} is writing to this directory; check it when that has ended", str(path))
    findings = Findings(path, kind)
    findings.runs = {each.name: check_run(each) for each in sorted((path / "runs").glob("*")) if is_run(each)}
    return findings


def _check_trials(directory: TuneDirectory, finished: bool, findings: Findings) -> None:
    """Each trial in the table has a run, but one that failed."""
    if not directory.table.is_file():
        findings.expect(not finished, "missing", directory.table)
        return
    for row in read_table(directory.table).to_pylist():
        there = name_of(row["trial"]) in findings.runs or row["state"] == "failed"
        findings.expect(there, "missing; its trial has ended", directory.run(row["trial"]))


def _check_journal(directory: TuneDirectory, findings: Findings) -> None:
    """Each line of Optuna's storage is JSON; the last one may be cut, as by a kill, and is left out when it goes on."""
    if not findings.expect(directory.journal.is_file(), "missing", directory.journal):
        return
    *whole, rest = directory.journal.read_bytes().split(b"\n")
    if rest:
        findings.unknown.append("the last trial of the journal: its line is cut, and the trial will be made again")
    for number, line in enumerate(whole, start=1):
        _json(line, f"{directory.journal}:{number}")
    for path in sorted(directory.path.glob("facts/*.json")):
        _json(path.read_bytes(), str(path))


def _json(text: bytes, where: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise UserError(f"damaged ({error})", where) from None
