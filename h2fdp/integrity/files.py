"""Whether the files of a run are there and whole, each by its checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa

from h2fdp.config import read_document
from h2fdp.errors import UserError
from h2fdp.integrity.findings import Findings
from h2fdp.records import Mark, RunDirectory, check_lines, check_start, read_json_lines, read_summary, state_of
from h2fdp.records.checked_json import read_checked_json
from h2fdp.records.checkpoint import read_checkpoint
from h2fdp.records.line_sums import sums_path
from h2fdp.records.summary import SUMMARY
from h2fdp.records.tables import read_table
from h2fdp.run import noise_key
from h2fdp.run.fingerprint import IDENTITY
from h2fdp.run.summary import FINISHED
from h2fdp.topology import Topology
from h2fdp.topology import read as read_topology

ENDED = (*FINISHED, "interrupted", "stopped")  # states of runs that wrote their results; one that failed tried to


@dataclass
class RunFiles:
    """What could be read of a run's files: None, or empty, where a file is missing or damaged."""

    summary: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] | None = None
    topology: Topology | None = None
    metrics: pa.Table | None = None

    @property
    def state(self) -> str:
        """How the run stands; `unknown` without a summary."""
        return str(self.summary.get("state", "unknown"))


def check_files(directory: RunDirectory, findings: Findings) -> RunFiles:
    """Read every file of a run but TensorBoard's, and note which are missing or damaged."""
    files = RunFiles()
    begun = any(path.exists() for path in (directory.ledger, directory.metrics, directory.model, directory.devices))
    with findings.noting():
        summary = read_summary(directory.path)
        if summary is None and not begun:  # it ended when its inputs were written
            files.summary = {"state": "killed"}
        elif findings.expect(summary is not None, "missing", directory.path / SUMMARY) and summary is not None:
            files.summary = summary | {"state": state_of(directory.path, summary)}
    findings.state = files.state
    steps: list[Callable[[RunDirectory, RunFiles, Findings], None]] = [
        _inputs, _topology, _metrics, _devices, _rows, _decisions, _model, _checkpoints, _log,
    ]  # fmt: skip
    before = len(findings.problems)
    for step in steps:
        with findings.noting():
            step(directory, files, findings)
    if len(findings.problems) == before:
        by = "the checksums that there are" if findings.unknown else "their checksums"
        findings.confirmed.append(f"inputs, tables, ledger, decisions, log, model and checkpoints, by {by}")
    return files


def _inputs(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    if findings.expect(directory.config.is_file(), "missing", directory.config):
        check_lines(directory.config)
        files.configuration = read_document(directory.config).values()
        if not sums_path(directory.config).is_file():
            findings.unknown.append("bytes of the inputs: the run is of a version without checksums")


def _topology(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    if findings.expect(directory.topology.is_file(), "missing", directory.topology):
        check_lines(directory.topology)
        files.topology = read_topology(directory.topology, seed=0)


def _metrics(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    where = directory.metrics
    if not where.is_file():
        findings.expect(files.state not in ENDED, "missing", where)
        return
    files.metrics = table = read_table(where)
    intervals = table.column("interval").to_pylist()
    findings.expect(intervals == list(range(1, len(intervals) + 1)), "its intervals are not 1, 2, 3, ...", where)
    if files.state not in ENDED:
        return
    found = files.summary.get("intervals")
    findings.expect(found == len(intervals), f"has {len(intervals)} intervals, {SUMMARY} says {found}", where)
    for column in ("energy_j", "delay_s", "clock_s"):
        values = table.column(column).to_pylist() or [0.0]
        same = values[-1] == files.summary.get(column)
        findings.expect(same, f"ends with {column} {values[-1]}, {SUMMARY} says {files.summary.get(column)}", where)
    best = max((each for each in table.column("accuracy").to_pylist() if each is not None), default=None)
    same = best == files.summary.get("best_accuracy")
    findings.expect(same, f"its best accuracy is {best}, {SUMMARY} says {files.summary.get('best_accuracy')}", where)


def _devices(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    if directory.devices.is_file():
        rows = read_table(directory.devices).num_rows
        expected = files.summary.get("devices", rows)
        findings.expect(rows in (0, expected), f"has {rows} rows, expected {expected}", directory.devices)
    else:
        findings.expect(files.state not in ENDED, "missing", directory.devices)


def _rows(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    if not directory.ledger.is_file():
        findings.expect(files.state not in ENDED, "missing", directory.ledger)
        return
    for _ in read_json_lines(directory.ledger):
        pass
    if not sums_path(directory.ledger).is_file() and directory.ledger.stat().st_size:
        findings.unknown.append("bytes of the ledger: there are no checksums of its lines")


def _decisions(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    if directory.decisions.is_file():
        last = 0
        for number, row in enumerate(read_json_lines(directory.decisions), start=1):
            found = row.get("interval") if isinstance(row, dict) else None
            if not isinstance(found, int) or found <= last:
                raise UserError(f"expected a later interval than {last}", f"{directory.decisions}:{number}")
            last = found


def _model(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    stated = files.summary.get("model_sha256")
    if not directory.model.is_file():
        findings.expect(stated is None, "missing", directory.model)
    elif stated is not None:
        found = sha256(directory.model.read_bytes()).hexdigest()
        findings.expect(found == stated, f"does not match its SHA-256 in {SUMMARY}", directory.model)
    elif files.state in ENDED:
        findings.unknown.append(f"bytes of the model: {SUMMARY} has no digest of it")


def _checkpoints(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    paths = sorted(directory.checkpoints.glob("*.ckpt"), reverse=True)
    read = {path: read_checkpoint(path) for path in paths}
    whole = [values for values in read.values() if values is not None]
    for path, values in read.items():
        use = "a resume uses the other one" if whole else "no other is left"
        findings.expect(values is not None, f"damaged; {use}", path)
    for values in whole:
        check_start(directory.ledger, Mark(**values["ledger"]))
    if paths:
        path = directory.checkpoints / IDENTITY
        findings.expect(read_checked_json(path) is not None, "missing", path)
    if files.state in FINISHED or not paths:
        return
    section = (files.configuration or {}).get("privacy")
    keyed = isinstance(section, dict) and section.get("noise_key") == "system" and files.summary.get("noise_key_id")
    if keyed:
        key = noise_key.stored(directory)
        known = key is not None and noise_key.id_of(key) == keyed
        findings.expect(known, "the noise key is lost or damaged; a resume would draw fresh noise", directory.noise_key)


def _log(directory: RunDirectory, files: RunFiles, findings: Findings) -> None:
    if findings.expect(directory.log.is_file() or files.state not in ENDED, "missing", directory.log):
        check_lines(directory.log, grows=True)
        if files.state in ENDED and not sums_path(directory.log).is_file():
            findings.unknown.append("bytes of the log: there are no checksums of its lines")
