"""`check` of one run directory."""

from __future__ import annotations

from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.integrity.accounts import check_accounts
from h2fdp.integrity.files import check_files
from h2fdp.integrity.findings import Findings
from h2fdp.records import RunDirectory, in_use
from h2fdp.records.summary import SUMMARY


def is_run(path: Path) -> bool:
    """Whether there is anything of a run."""
    return (path / "config.yaml").is_file() or (path / SUMMARY).is_file()


def check_run(path: Path) -> Findings:
    """The files of a run, and whether its numbers agree with its ledger.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("a run is writing to this directory; check it when that has ended", str(path))
    findings = Findings(path)
    files = check_files(RunDirectory(path), findings)
    with findings.noting():
        check_accounts(RunDirectory(path), files, findings)
    return findings
