"""`check` of a search (`h2fdp tune`): its state, its journal, its trials, and the table of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from h2fdp.config import read_document
from h2fdp.errors import UserError
from h2fdp.integrity.findings import Findings
from h2fdp.integrity.runs import check_run, is_run
from h2fdp.records import RunDirectory, in_use
from h2fdp.records.tables import read_table
from h2fdp.tuning.directory import TuneDirectory, name_of, read_state
from h2fdp.tuning.trials import COLUMNS

_ACCURACY = "validation_accuracy"


def check_search(path: Path) -> Findings:
    """Every trial of a search as a run, and the table of the trials against their metrics.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("a search is writing to this directory; check it when that has ended", str(path))
    findings, directory = Findings(path, "search"), TuneDirectory(path)
    state: dict[str, Any] = {}
    with findings.noting():
        state = read_state(directory)
    for each in sorted((path / "runs").glob("*")):
        if is_run(each):
            findings.runs[each.name] = check_run(each)
    for step in (_check_file, _check_journal):
        with findings.noting():
            step(directory, findings)
    with findings.noting():
        _compare_table(directory, state, findings)
    if state.get("finished"):
        _check_results(directory, state, findings)
    elif state:
        findings.waiting.append("trials that are left")
    return findings


def _check_file(directory: TuneDirectory, findings: Findings) -> None:
    if findings.expect(directory.plan.is_file(), "missing", directory.plan):
        read_document(directory.plan)
    for path in sorted(directory.path.glob("facts/*.json")):
        _json(path.read_bytes(), str(path))


def _check_journal(directory: TuneDirectory, findings: Findings) -> None:
    """Each line of Optuna's storage is JSON; the last one may be cut, as by a kill, and is left out when it goes on."""
    if not findings.expect(directory.journal.is_file(), "missing", directory.journal):
        return
    *whole, rest = directory.journal.read_bytes().split(b"\n")
    for number, line in enumerate(whole, start=1):
        _json(line, f"{directory.journal}:{number}")
    if rest:
        findings.unknown.append("the last trial of the journal: its line is cut, and the trial will be made again")
    findings.confirmed.append(f"{len(whole)} lines of the journal")


def _json(text: bytes, where: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise UserError(f"damaged ({error})", where) from None


def _compare_table(directory: TuneDirectory, state: dict[str, Any], findings: Findings) -> None:
    """What the table says of each trial against the trial's metrics; exact accuracies where no noise hides them."""
    if not directory.table.is_file():
        findings.expect(not state.get("finished"), "missing", directory.table)
        findings.unknown.append("table of the trials: not written yet")
        return
    exact = (state.get("best") or {"epsilon": ""})["epsilon"] is None
    rows = read_table(directory.table).to_pylist()
    compared = 0
    for row in rows:
        name = name_of(row["trial"])
        if row["state"] == "failed":
            continue
        if not findings.expect(name in findings.runs, "missing; its trial has ended", directory.run(row["trial"])):
            continue
        if findings.runs[name].damaged:
            continue
        metrics = read_table(RunDirectory(directory.run(row["trial"])).metrics)
        told = _ends(metrics)
        compared += 1
        for column in (*COLUMNS, *([_ACCURACY] if exact else [])):
            text = f"{column} of {name} is {row[column]}, its metrics say {told[column]}"
            findings.expect(row[column] == told[column], text, directory.table)
    findings.confirmed.append(f"the table's rows of {compared} trials")


def _ends(metrics: pa.Table) -> dict[str, Any]:
    """What a run had come to, by the columns of a search's table."""
    found = {name: metrics.column(column).to_pylist()[-1] for name, column in COLUMNS.items()}
    known = [each for each in metrics.column(_ACCURACY).to_pylist() if each is not None]
    return found | {_ACCURACY: known[-1] if known else None}


def _check_results(directory: TuneDirectory, state: dict[str, Any], findings: Findings) -> None:
    """The files of the best values can be read; a model that was taken over is that of a trial."""
    best = state.get("best")
    files = [directory.best] if best else []
    files += [Path(directory.front / f"{name_of(each['trial'])}.yaml") for each in state.get("front") or []]
    for path in files:
        with findings.noting():
            if findings.expect(path.is_file(), "missing", path):
                read_document(path)
    model = directory.released / "model.pt"
    if model.is_file():
        models = {path.read_bytes() for path in directory.path.glob("runs/*/model.pt")}
        findings.expect(model.read_bytes() in models, "is the model of no trial", model)
