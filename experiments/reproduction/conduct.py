"""Make the remaining runs of a part, and record the code and the command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from experiments.reproduction.decisions import decide
from experiments.reproduction.plan import FigurePart, Reproduction
from experiments.reproduction.results import NO_RUNS, Results
from experiments.reproduction.reuse import borrow
from h2fdp.records.atomic import write_text
from h2fdp.run.identity import package_digest
from h2fdp.sweeps.conduct import conduct
from h2fdp.sweeps.plan import SharedInputs, SweepPlan
from h2fdp.sweeps.pool import WorkOptions
from h2fdp.sweeps.task import Outcome, SweepDirectory, read_entries

MADE = "made.json"


def make(
    of: Reproduction,
    part: FigurePart,
    study: SweepPlan,
    out: Path,
    command: str,
    shared: SharedInputs,
    options: WorkOptions,
) -> dict[str, Outcome]:
    """Carry out a part's study in its directory; runs that other parts have are not made again.

    Returns:
        what came of the runs that were made, by name; nothing where none was left.

    Raises:
        UserError: the directory holds something else, or is in use; runs are there that would differ now.
    """
    path = part.path(out)
    if of.file.figures[part.figure].decided:
        outcomes = decide(study, path, shared, options)
    else:
        borrowed = borrow(study, SweepDirectory(path.absolute()), _others(out, path))
        _note(path, {name: made_by(run.parents[1]).get(run.name, "") for name, run in borrowed.items()})
        outcomes = conduct(study, path, shared, options)
    note = f"`{command}` at {commit_of(of.folder)}"
    _note(path, {name: note for name, outcome in outcomes.items() if not outcome.error})
    return outcomes


def _note(path: Path, notes: dict[str, str]) -> None:
    """Write down how runs were made."""
    if notes:
        write_text(path / MADE, json.dumps(made_by(path) | notes, indent=1) + "\n")


def _others(out: Path, path: Path) -> Iterable[SweepDirectory]:
    found = sorted(each.parent.absolute() for each in out.glob("*/*/*/sweep.json"))
    return (SweepDirectory(each) for each in found if each != path.absolute())


def commit_of(folder: Path) -> str:
    """The commit of a checkout, and whether it was changed since; words, where it is none."""

    def git(*arguments: str) -> str:
        asked = ["git", "-C", str(folder), *arguments]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def made_by(path: Path) -> dict[str, str]:
    """Run -> the command and the commit that made it, of the runs of a part's directory."""
    try:
        return dict(json.loads((path / MADE).read_text()))
    except (OSError, ValueError):
        return {}


def results_of(part: FigurePart, study: SweepPlan, out: Path) -> Results | str:
    """What the runs of a part found, or why there is nothing to say."""
    directory = SweepDirectory(part.path(out).absolute())
    if not directory.table.is_file():
        return NO_RUNS
    entries, code = read_entries(directory), package_digest()
    wanted = {planned.point.name: planned for planned in study.runs}
    for name, planned in wanted.items():
        if name in entries and (entries[name].digest, entries[name].code) != (planned.digest, code):
            return "the configuration or code has changed since its runs were made; repeat them with --overwrite"
    table = pd.read_parquet(directory.table)
    return Results({name: each.point.values for name, each in wanted.items()}, table[table["run"].isin(wanted)])
