"""Runs that several figures share are made once: a finished run of another study serves where it would be the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from h2fdp.run.identity import package_digest
from h2fdp.sweeps.plan import SweepPlan
from h2fdp.sweeps.task import SweepDirectory, SweepEntry, read_entries, write_entries


def borrow(study: SweepPlan, directory: SweepDirectory, others: Iterable[SweepDirectory]) -> dict[str, Path]:
    """Give a study the finished runs of other sweeps that have its configurations and were made by this code.

    A run is equal when all that its bits depend on is: its files are linked, not copied, and its `config.yaml` has the
    name of the study that made it.

    Returns:
        the runs that it was given, by name -> where each is from.
    """
    code = package_digest()
    entries = read_entries(directory)
    missing = [planned for planned in study.runs if not directory.run(planned.point.name).exists()]
    offered = _offered(others, code) if missing else {}
    given = [planned for planned in missing if planned.digest in offered]
    for planned in given:
        path, entry = offered[planned.digest]
        _link(path, directory.run(planned.point.name))
        entries[planned.point.name] = replace(entry, values=planned.point.values)
    if given:
        write_entries(directory, study.name, study.keys, entries)
    return {planned.point.name: offered[planned.digest][0] for planned in given}


def _offered(others: Iterable[SweepDirectory], code: str) -> dict[str, tuple[Path, SweepEntry]]:
    """Digest of a configuration -> a finished run, and what its sweep says of it."""
    found: dict[str, tuple[Path, SweepEntry]] = {}
    for other in others:
        entries = read_entries(other)
        for name in other.finished(entries):
            if entries[name].code == code:
                found.setdefault(entries[name].digest, (other.run(name), entries[name]))
    return found


def _link(path: Path, to: Path) -> None:
    """The files of a finished run, none of which is written to again, under another path; as a whole or not at all."""
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(path, part, copy_function=_linked)
    part.rename(to)


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target
