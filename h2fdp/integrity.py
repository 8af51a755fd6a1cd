"""`check`: whether run directories, sweeps and searches are whole, and whether accounts are those of the ledger."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from h2fdp.config import read_document
from h2fdp.errors import Problem, UserError, no_directory
from h2fdp.network import read as read_topology
from h2fdp.records import (
    SCHEMA_VERSION,
    Mark,
    RunDirectory,
    check_lines,
    check_start,
    in_use,
    noise_key,
    read_json_lines,
    read_summary,
    state_of,
)
from h2fdp.records.checkpoint import read_checkpoint
from h2fdp.records.directory import SUMMARY
from h2fdp.records.json_lines import sums_path
from h2fdp.records.tables import read_table
from h2fdp.run.privacy import RunPrivacy, releases_of_ledger
from h2fdp.run.result import FINISHED
from h2fdp.sweeps.task import SweepDirectory, SweepEntry, read_entries
from h2fdp.tuning.results import TuneDirectory, name_of, read_state


@dataclass
class Findings:
    """What a check of one directory found.

    Attributes:
        state: how the run stands, or `sweep`, or `search`.
        confirmed: what is as it should be, a phrase each.
        problems: what is not, each with its file, and its line where that is known.
        unknown: what could not be checked, and why.
        runs: of a sweep or a search, what was found of each of its runs, by name.
        waiting: of a sweep or a search, what has not begun.
    """

    directory: Path
    state: str = "unknown"
    confirmed: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    runs: dict[str, Findings] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether there is a problem, here or in one of the runs."""
        return bool(self.problems) or any(run.damaged for run in self.runs.values())

    @property
    def whole(self) -> bool:
        """Whether there is no problem, and nothing that has not begun."""
        return not self.damaged and not self.waiting

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A step of the check, which ends with the first damage."""
        try:
            yield
        except UserError as error:
            self.problems += [each for each in error.problems if each not in self.problems]

    def expect(self, holds: bool, text: str, where: Path | str) -> bool:
        """Note a problem unless `holds`."""
        if not holds:
            self.problems.append(Problem(text, str(where)))
        return holds

    def as_json(self) -> dict[str, Any]:
        """As `h2fdp runs --check --json` prints it."""
        return vars(self) | {
            "directory": str(self.directory),
            "whole": self.whole,
            "problems": [{"where": each.where, "text": each.text} for each in self.problems],
            "runs": {name: run.as_json() for name, run in self.runs.items()},
        }


ENDED = (*FINISHED, "interrupted", "stopped")  # states of runs that wrote their results; one that failed tried to
_TOLERANCE = 1e-9  # relative: sums in another order
_MOST_NAMED = 5  # epsilons that do not agree


def is_run(path: Path) -> bool:
    """Whether there is anything of a run."""
    return (path / "config.yaml").is_file() or (path / SUMMARY).is_file()


def check_run(path: Path) -> Findings:
    """The files of a run, and whether its accounts are those of its ledger.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("a run is writing to this directory; check it when that has ended", str(path))
    return found_in(path)


def found_in(path: Path) -> Findings:
    """What `check_run` finds, whether or not a process is writing to the directory."""
    directory, findings = RunDirectory(path), Findings(path)
    summary: dict[str, Any] = {}
    with findings.noting():
        summary = _summary(directory, findings)
    findings.state = str(summary.get("state", "unknown"))
    _files(directory, summary, findings)
    with findings.noting():
        _checkpoints(directory, summary, findings)
    if not findings.problems:
        by = "the checksums that there are" if findings.unknown else "their checksums"
        findings.confirmed.append(f"inputs, tables, ledger, decisions, log, model and checkpoints, by {by}")
    with findings.noting():
        _accounts(directory, summary, findings)
    return findings


def _summary(directory: RunDirectory, findings: Findings) -> dict[str, Any]:
    has_files = any(path.exists() for path in (directory.ledger, directory.metrics, directory.model, directory.devices))
    summary = read_summary(directory.path)
    if summary is None:
        findings.expect(not has_files, "missing", directory.path / SUMMARY)
        return {} if has_files else {"state": "killed"}  # it ended when its inputs were written
    if (version := summary.get("schema_version")) != SCHEMA_VERSION:
        findings.unknown.append(f"what changed since the version of this run's files ({version}, now {SCHEMA_VERSION})")
    return summary | {"state": state_of(directory.path, summary)}


def _files(directory: RunDirectory, summary: Mapping[str, Any], findings: Findings) -> None:
    """Read every file but TensorBoard's and the checkpoints, and note which are missing or damaged."""
    ended, model_sha256 = findings.state in ENDED, summary.get("model_sha256")
    files: list[tuple[Path, bool, Callable[[Path], object]]] = [
        (directory.config, True, lambda path: read_document(path).values()),
        (directory.topology, True, lambda path: read_topology(path, seed=0)),
        (directory.metrics, ended, read_table),
        (directory.devices, ended, read_table),
        (directory.ledger, ended, lambda path: deque(releases_of_ledger(path, None), maxlen=0)),
        (directory.decisions, False, lambda path: deque(read_json_lines(path), maxlen=0)),
        (directory.model, model_sha256 is not None, Path.read_bytes),
        (directory.log, ended, lambda path: check_lines(path, grows=True)),
    ]
    contents: dict[Path, Any] = {}
    for path, needed, read in files:
        with findings.noting():
            if path.is_file():
                if path in (directory.config, directory.topology):
                    check_lines(path)
                contents[path] = read(path)
            else:
                findings.expect(not needed, "missing", path)
    if ended and (metrics := contents.get(directory.metrics)) is not None:
        rows, stated = metrics.num_rows, summary.get("intervals")
        findings.expect(rows == stated, f"has {rows} intervals, {SUMMARY} says {stated}", directory.metrics)
    if model_sha256 is not None and (model := contents.get(directory.model)) is not None:
        same = sha256(model).hexdigest() == model_sha256
        findings.expect(same, f"does not match its SHA-256 in {SUMMARY}", directory.model)
    summed = [directory.config, directory.ledger, *([directory.log] if ended else [])]
    bare = [path.name for path in summed if path.is_file() and path.stat().st_size and not sums_path(path).is_file()]
    if bare:
        findings.unknown.append(f"bytes of {', '.join(bare)}: there are no checksums of their lines")


def _checkpoints(directory: RunDirectory, summary: Mapping[str, Any], findings: Findings) -> None:
    paths = sorted(directory.checkpoints.glob("*.ckpt"), reverse=True)
    read = {path: read_checkpoint(path) for path in paths}
    whole = [values for values in read.values() if values is not None]
    for path, values in read.items():
        use = "a resume uses the other one" if whole else "no other is left"
        findings.expect(values is not None, f"damaged; {use}", path)
    for values in whole:
        check_start(directory.ledger, Mark(**values["ledger"]))
    keyed = summary.get("noise_key_id") if summary.get("noise_key") == "system" else None
    if keyed and paths and findings.state not in FINISHED:
        key = noise_key.stored(directory)
        known = key is not None and noise_key.id_of(key) == keyed
        findings.expect(known, "the noise key is lost or damaged; a resume would draw fresh noise", directory.noise_key)


def _accounts(directory: RunDirectory, summary: Mapping[str, Any], findings: Findings) -> None:
    """The epsilons that the run ended with, by `rdp` and `pld`, against those that its ledger gives.

    Raises:
        UserError: the ledger is damaged, or has rows that no run of this network wrote.
    """
    if findings.state not in ENDED or summary.get("privacy") is None:
        findings.unknown.append("accounts: the run stored none")
        return
    stated = dict(_epsilons(summary["privacy"]))
    by_ledger = dict(_epsilons(RunPrivacy(directory.path).statement()))
    wrong = [name for name in {**by_ledger, **stated} if not _equal(stated.get(name), by_ledger.get(name))]
    for name in wrong[:_MOST_NAMED]:
        text = f"{name} is {_word(stated.get(name))}, its account by the ledger {_word(by_ledger.get(name))}"
        findings.expect(False, text, directory.path / SUMMARY)
    if len(wrong) > _MOST_NAMED:
        text = f"so are {len(wrong) - _MOST_NAMED:,} more epsilons"
        findings.expect(False, text, directory.path / SUMMARY)
    if not wrong:
        findings.confirmed.append(f"{len(stated):,} epsilons with their accounts by the ledger")


def _epsilons(privacy: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """What each epsilon of a statement is of, and its value."""
    about = {"": privacy["worst"], **{f" about {device}": epsilons for device, epsilons in privacy["devices"].items()}}
    for device, observers in about.items():
        for observer, numbers in observers.items():
            for accountant in ("rdp", "pld"):
                yield f"{accountant} of {observer}{device}", numbers[accountant]


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None or math.isinf(other):  # JSON has no infinity
        return (one is None or math.isinf(one)) and (other is None or math.isinf(other))
    return math.isclose(one, other, rel_tol=_TOLERANCE)


def _word(value: float | None) -> str:
    return "null" if value is None else f"{value:.6g}"


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
    if not is_run(directory):
        text = "not a run, sweep or tuning directory (expected config.yaml, sweep.json or tune.json)"
        raise no_directory(text, directory)
    return check_run(directory)


def is_checked(path: Path) -> bool:
    """Whether `check` takes this directory."""
    return is_run(path) or (path / "sweep.json").is_file() or (path / "tune.json").is_file()


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
        exists = name_of(row["trial"]) in findings.runs or row["state"] == "failed"
        findings.expect(exists, "missing; its trial has ended", directory.run(row["trial"]))


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
