"""`python -m experiments.reproduce settings`: a paper's claims in many settings of what it leaves open."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from h2fdp.cli.terminal import interruptible, print_facts, print_json, print_table
from h2fdp.errors import UserError

if TYPE_CHECKING:
    from experiments.reproduction.session import Session
    from experiments.reproduction.settings.judged import ClaimOverSettings
    from experiments.reproduction.settings.session import SettingsSession
    from h2fdp.cli.terminal import Interrupt
    from h2fdp.sweeps.pool import WorkOptions


def settings_of(session: Session, *, stored: bool) -> SettingsSession | None:
    """The settings of a folder of experiments; None of one that has none."""
    from experiments.reproduction.settings.file import SETTINGS, read_settings
    from experiments.reproduction.settings.session import SettingsSession
    from experiments.reproduction.settings.studies import check_figures

    if not (session.of.folder / SETTINGS).is_file():
        return None
    file = read_settings(session.of.folder)
    check_figures(session.of, file)
    return SettingsSession(session.of, file, session.out.parent / "settings", session.command, stored, session.shared)


def reproduce_settings(
    session: Session,
    settings: SettingsSession | None,
    watching: Callable[[Interrupt], AbstractContextManager[WorkOptions]],
    page: Path | None,
    *,
    keeps: bool,
    as_json: bool,
) -> None:
    """Make the runs that are not stored, judge the claims in every setting, and write the page, with what there is.

    Args:
        page: where the verdicts are written; None writes none.
        keeps: the runs are stored beside the experiments.
    """
    from experiments.reproduction.settings.file import SETTINGS
    from experiments.reproduction.settings.session import RUNS

    if settings is None:
        raise UserError(f"no {SETTINGS} here; expected one beside figures.yaml", str(session.of.folder))
    failed: list[str] = []
    with interruptible() as interrupt:
        for study in settings.studies():
            if interrupt.asked():
                break
            left = settings.left(study)
            if left:
                print(f"{study.stage}, setting {study.setting}, {study.figure}: {left} runs", file=sys.stderr)
                with watching(interrupt) as options:
                    outcomes = settings.make(study, options)
                folder = study.path(settings.out) / "failures"
                failed += [f"{folder / run}.txt" for run, outcome in outcomes.items() if outcome.error]
    if keeps and (settings.out / RUNS).is_file():
        shutil.copyfile(settings.out / RUNS, session.of.folder / RUNS)
    if page is not None:
        session.write_page(page, session.evaluate(), settings)
    found = [_row(each) for each in settings.counted.values()]
    chosen: dict[str, Any] = {f"{role} setting": number for role, number in settings.results().chosen.items()}
    if as_json:
        print_json({"claims": found, "chosen": chosen})
    else:
        print_table(found, title="claims over the settings in which training works")
        if facts := chosen | ({} if page is None else {"page": page}):
            print_facts(facts)
    if interrupt.asked():
        print("stopped; run the same command to continue", file=sys.stderr)
        raise typer.Exit(interrupt.exit_code)
    for path in failed:
        print(f"a run failed: see {path}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _row(over: ClaimOverSettings) -> dict[str, Any]:
    return {
        "claim": over.claim.id,
        "settings": over.judged,
        "holds": over.holds,
        "fully": over.fully,
        "undecided": over.undecided,
        "sign by mean": over.signs,
        "as in the paper by mean": over.reached,
    }
