"""A paper's figures run and drawn, its claims judged.

    python -m experiments.reproduce fig4 --quick

NAME is a figure of figures.yaml, or all, settings or stored; --help has the options.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.main import Command, main
from h2fdp.cli.sweep import watched
from h2fdp.cli.terminal import (
    AsJson,
    DataRoot,
    Jobs,
    OverwriteRuns,
    Quiet,
    interruptible,
    print_facts,
    print_json,
    print_table,
)
from h2fdp.errors import UserError, not_one_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from experiments.reproduction.evaluation import JudgedClaim, Row
    from h2fdp.cli.terminal import Interrupt
    from h2fdp.sweeps.pool import WorkOptions

ALL, SETTINGS, STORED = "all", "settings", "stored"
PAGE = "README.md"
FOLDER = Path(__file__).parent / "reproduction"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _told(judged: JudgedClaim) -> str:
    """The verdict with what it leaves out."""
    from experiments.reproduction.verdict import OPEN

    if judged.remark in OPEN:
        return judged.remark
    more = judged.remark or judged.why
    return f"{judged.verdict} ({more})" if more else str(judged.verdict)


@app.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A figure of figures.yaml, as fig4; all; settings; or stored.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer intervals and seeds.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Write the page with all claims.")] = False,
    data_set: Annotated[
        list[str] | None, typer.Option(help="Data set; may be repeated.", show_default="fashion-mnist")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs and pictures go.")] = Path("reproductions"),
    data_root: DataRoot = None,
    jobs: Jobs = None,
    overwrite: OverwriteRuns = False,
    experiments: Annotated[Path, typer.Option(help="Folder with figures.yaml and claims.yaml.")] = FOLDER,
    page: Annotated[
        Path | None, typer.Option(help="The page of --check; with --data-set it has these data sets only.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a figure of a paper, draw it, and judge its claims; repeat the command to continue.

    `settings` judges the claims in many settings of what the paper leaves open (settings.yaml).
    `stored` runs nothing: what was found before is judged by the claims as they are now.
    --check writes all claims into README.md beside figures.yaml; with --quick into the folder of --out.
    """
    from experiments.reproduction.plan import read_reproduction
    from experiments.reproduction.session import Session
    from experiments.reproduction.settings.command import reproduce_settings, settings_of
    from h2fdp.sweeps.plan import SharedInputs

    of = read_reproduction(experiments)
    if name == SETTINGS and (quick or data_set):
        raise UserError("settings have the length and the data set that settings.yaml says", "--quick, --data-set")
    ours = [figure for figure, shown in of.file.figures.items() if not shown.apart]
    if name == STORED and (quick or overwrite):
        text = "nothing is run, and quick runs are not stored; expected stored without them"
        raise UserError(text, "--quick, --overwrite")
    several = {ALL: ours, SETTINGS: ours, STORED: []}
    figures = several[name] if name in several else _known([name], of.file.figures, "NAME", *several)
    data_sets = _known(data_set or [next(iter(of.file.data_sets))], of.file.data_sets, "--data-set")
    only = tuple(data_sets) if page is not None and data_set else None
    folder, shared = out / ("quick" if quick else "full"), SharedInputs(data_root)
    session = Session(of, folder, quick, _command(), only, name == STORED, shared)
    if check:
        page = _page(session, experiments, quick, page)
    elif page is not None:
        raise UserError("needs --check, which writes the page", "--page")
    # Verdicts are kept for pages to come where this one stands beside the experiments.
    keeps = page is not None and not quick and page.resolve().parent == experiments.resolve()
    settings = None if quick else settings_of(session, stored=not (overwrite and name == SETTINGS))

    def watching(interrupt: Interrupt) -> AbstractContextManager[WorkOptions]:
        return watched(interrupt, jobs, overwrite=overwrite, quiet=quiet)

    if name == SETTINGS:
        reproduce_settings(session, settings, watching, page if check else None, keeps=keeps, as_json=as_json)
        return
    planned = session.plan(figures, data_sets)
    tables = [figure for figure in figures if of.table(figure) is not None]
    shown_on = of.file.figures[figures[0]].data_sets if figures else []
    if figures and not planned and not (tables and (data_set is None or {*data_set} & {*shown_on})):
        raise UserError(f"{name} uses the data sets {', '.join(shown_on)}; found {', '.join(data_sets)}", "--data-set")
    failed: list[str] = []
    with interruptible() as interrupt:
        for part, study in planned.items():
            if not quiet:
                print(f"{part.figure}, {part.data_set}, {part.column}: {len(study.runs)} runs", file=sys.stderr)
            with watching(interrupt) as options:
                outcomes = session.make(part, study, options)
            failed += [f"{part.path(session.out) / 'failures' / run}.txt" for run in outcomes if outcomes[run].error]
            if interrupt.asked():
                break
    if interrupt.asked():
        print("stopped; run the same command to continue", file=sys.stderr)
        raise typer.Exit(interrupt.exit_code)
    pictures = session.draw(figures)
    rows = session.evaluate()
    if check and page is not None:
        session.write_page(page, rows, settings)
        if keeps:
            session.store(rows)
    shown = [
        row
        for row in (session.complete(rows) if name == STORED else rows)
        if (row.claim.figure in figures or (name == STORED and row.claim.figure in ours))
        and (row.data_set in data_sets or (data_set is None and row.claim.figure in tables))
    ]
    if name == STORED and not shown:
        raise UserError(f"expected data sets of which anything is stored, found {', '.join(data_sets)}", "--data-set")
    if as_json:
        print_json([_as_json(row) for row in shown])
    else:
        _show(shown, pictures, page if check else None)
    for path in failed:
        print(f"a run failed: see {path}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _known(names: list[str], known: Any, where: str, *more: str) -> list[str]:
    for name in names:
        if name not in known:
            raise UserError(not_one_of(name, [*known, *more]), where)
    return names


def _command() -> str:
    return shlex.join(["python", "-m", "experiments.reproduce", *sys.argv[1:]])


def _page(session: Any, folder: Path, quick: bool, page: Path | None) -> Path:
    """Where --check writes; an unwritable place is reported before hours of runs, not after them."""
    if page is None:
        return session.out / PAGE if quick else folder.resolve() / PAGE
    if page.is_dir() or not page.absolute().parent.is_dir():
        raise UserError("expected a file in an existing folder", str(page), "--page")
    return page


def _as_json(row: Row) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for column, judged in row.columns.items():
        columns[column] = {key: getattr(judged, key) for key in ("verdict", "remark", "why", "target")}
        if judged.finding:
            finding = judged.finding
            columns[column] |= vars(finding.size) | {"seeds": finding.seeds, "direction": vars(finding.direction)}
    return {"id": row.claim.id, "data_set": row.data_set, "paper": row.claim.paper[row.data_set], **columns}


def _show(rows: list[Row], pictures: list[Path], page: Path | None) -> None:
    from experiments.reproduction.wording import found_words, paper_words

    print_table(
        [
            {
                "claim": f"{row.claim.id}, {row.data_set}",
                "paper": paper_words(row),
                **{
                    column: f"{found_words(row.claim, judged)}: {_told(judged)}"
                    for column, judged in row.columns.items()
                },
            }
            for row in rows
        ],
        title="claims: noise by the paper's formula (claimed) and by account (accounted)",
    )
    facts: dict[str, Any] = {"picture" if len(pictures) == 1 else f"picture {number}": path
                             for number, path in enumerate(pictures, 1)}  # fmt: skip
    if page is not None:
        facts["page"] = page
    if facts:
        print_facts(facts)


if __name__ == "__main__":
    main(app)
