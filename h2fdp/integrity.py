"""`check`: whether the files of runs match their checksums, and whether accounts are those of the ledger."""

from __future__ import annotations

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
from h2fdp.records import noise_key
from h2fdp.records.checkpoint import read_checkpoint
from h2fdp.records.directory import SCHEMA_VERSION, SUMMARY, RunDirectory, in_use, read_summary, state_of
from h2fdp.records.json_lines import Mark, check_lines, check_start, read_json_lines, sums_path
from h2fdp.records.tables import read_table
from h2fdp.run.privacy import RunPrivacy, releases_of_ledger
from h2fdp.run.result import FINISHED


@dataclass
class Findings:
    """The findings of a check of one directory.

    Attributes:
        state: how the run stands, or `sweep`, or `search`.
        confirmed: what is as it should be, a phrase each.
        problems: what is not, each with its file, and its line where it has one.
        unknown: what could not be checked, and why.
        runs: of a sweep or a search, the findings of each of its runs, by name.
    """

    directory: Path
    state: str = "unknown"
    confirmed: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    runs: dict[str, Findings] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether there is no problem, here or in one of the runs."""
        return not self.problems and all(run.whole for run in self.runs.values())

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
        """The findings as `h2fdp runs --check --json` prints them."""
        return vars(self) | {
            "directory": str(self.directory),
            "whole": self.whole,
            "problems": [{"where": each.where, "text": each.text} for each in self.problems],
            "runs": {name: run.as_json() for name, run in self.runs.items()},
        }


ENDED = (*FINISHED, "interrupted", "stopped")  # states of runs that wrote their results; one that failed tried to
_TOLERANCE = 1e-9  # relative: sums in another order
_MOST_NAMED = 5  # epsilons that do not agree
_SEVERAL = {"sweep.json": "sweep", "tune.json": "search"}


def is_checked(path: Path) -> bool:
    """Whether `check` takes this directory."""
    return any((path / name).is_file() for name in ("config.yaml", SUMMARY, *_SEVERAL))


def check(path: str | Path) -> Findings:
    """Every file of a run by its checksums, and its privacy accounts recomputed from the ledger. Nothing is written.

    What needs no file that is damaged is still checked.

    Args:
        path: of a run; of a sweep or of a search: then of its tables, and of all runs that it has begun.

    Raises:
        UserError: it is none of these; a process is writing to it.
    """
    directory = Path(path)
    if not is_checked(directory):
        text = "not a run, sweep or tuning directory (expected config.yaml, sweep.json or tune.json)"
        raise no_directory(text, directory)
    if in_use(directory):
        raise UserError("a process is writing to this directory; check it when that has ended", str(directory))
    several = next((kind for name, kind in _SEVERAL.items() if (directory / name).is_file()), None)
    if several is None:
        return found_in(directory)
    findings = Findings(directory, several)
    for table in sorted(directory.glob("*.parquet")):
        with findings.noting():
            read_table(table)
    findings.runs = {each.name: check(each) for each in sorted((directory / "runs").glob("*")) if is_checked(each)}
    return findings


def found_in(path: Path) -> Findings:
    """The findings of `check` about a run, whether or not a process is writing to the directory."""
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
    if not wrong:
        findings.confirmed.append(f"{len(stated):,} epsilons with their accounts by the ledger")


def _epsilons(privacy: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The epsilons of a statement, each with its accountant, observer and device in words."""
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
