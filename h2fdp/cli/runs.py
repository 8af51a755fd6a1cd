"""Commands after runs: runs side by side, their integrity, a page about them; a sweep as a paper's table or figure."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.terminal import AsJson, fitted, print_json, print_problem, print_table, print_text
from h2fdp.errors import UserError, no_directory
from h2fdp.wording import SCORES, note

if TYPE_CHECKING:
    from h2fdp.integrity import Findings

_COLUMNS = ("method", "seed", "state", "intervals")
_DAMAGED = 1  # exit code
_GOES_ON = ("interrupted", "killed", "failed")
_GIVEN_UP = "stopped"  # by its callback, which meant it; it can be resumed all the same
HALF = "and half of their 95 % intervals (Student's t)"
SweepPath = Annotated[Path, typer.Argument(metavar="SWEEP", help="A sweep's directory.")]
Target = Annotated[
    float | None, typer.Option(help="A test accuracy (0.7) or RMSE: what it took to reach it.", show_default=False)
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="KEY=VALUE", help="Only points of the grid with this value.")
]


def _with_state(path: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """The present state, how many intervals there are to be, and whether `h2fdp resume` can continue the run.

    Raises:
        UserError: the configuration or the metrics of a run that has not ended are damaged.
    """
    from h2fdp.config import read_document
    from h2fdp.records.directory import RunDirectory, reached, state_of
    from h2fdp.records.tables import read_table

    state, directory = state_of(path, summary), RunDirectory(path)
    resumable = state in (*_GOES_ON, _GIVEN_UP)
    row = {**summary, "state": state, "resumable": resumable}
    if state in ("running", "killed") and directory.metrics.is_file():
        row |= reached(read_table(directory.metrics).to_pydict())
    if resumable:
        configuration = read_document(directory.config).values()
        training = configuration.get("training") if isinstance(configuration, dict) else None
        row["planned_intervals"] = training.get("intervals") if isinstance(training, dict) else None
    return row


def _folders(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []


def _name(run: Path, directories: list[Path]) -> str:
    """The name of a run, in a sweep of a folder with its sweep; the path where several folders are listed."""
    if len(directories) > 1:
        return str(run)
    inside = run.relative_to(directories[0]).parts
    return f"{inside[0]}/{run.name}" if len(inside) == 3 else run.name


def _row(name: str, summary: dict[str, Any], scores: Iterable[str]) -> dict[str, Any]:
    """The row of a run: its scores, the epsilon of the worst observer by `pld`, its time."""
    from h2fdp.records.directory import worst_epsilons

    planned, since = summary.get("planned_intervals"), summary.get("not_finite_from")
    epsilons = [math.inf if each is None else each for each in worst_epsilons(summary).values()]
    return {
        "run": name,
        **{key: summary.get(key) for key in _COLUMNS},
        **({"intervals": f"{summary['intervals']} of {planned}"} if planned else {}),
        **({} if since is None else {"state": f"{summary['state']}, not finite from {since}"}),
        **{score: summary.get(score) for score in scores},
        "pld": "leaks" if summary.get("leaking") else max(epsilons, default=None),
        "wall s": summary.get("wall_s"),
    }


def runs_command(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", help="Where run directories are; or runs, or sweeps.", show_default="runs"),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check files by checksums, accounts by the ledger; exit code 1 for damage."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List and compare the runs in a directory, or check that they are intact."""
    paths = directories or [Path("runs")]
    for each in paths:
        if not each.is_dir():
            raise no_directory("expected a directory, found a file", each)
    if check:
        _check(paths, as_json)
        return
    summaries = {path: summary for home in paths for path, summary in _summaries(home)}
    if as_json:
        print_json([{"directory": str(path), **summary} for path, summary in summaries.items()])
    elif not summaries:
        typer.echo(f"no runs in {', '.join(map(str, paths))}")
    else:
        known = [name for name in SCORES if any(each.get(name) is not None for each in summaries.values())]
        rows = [_row(_name(path, paths), each, known or ["accuracy"]) for path, each in summaries.items()]
        print_table(rows, title="pld: the largest accounted epsilon")
        if any(summary["state"] in _GOES_ON for summary in summaries.values()):
            print_text(f"runs that are {', '.join(_GOES_ON[:-1])} or {_GOES_ON[-1]} continue with: h2fdp resume RUN")
        if by_seed := [path.name for path, summary in summaries.items() if summary.get("noise_key") == "seed"]:
            text = "noise drawn by the seed: a guess of the seed removes it (privacy.noise_key: seed)"
            print_text(f"{text}: {', '.join(by_seed)}")


def _summaries(directory: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The summaries of the directory itself, of runs in it, and of runs of sweeps in it; a damaged one is noted."""
    from h2fdp.records.directory import read_summary

    homes = [directory, directory / "runs", *(path / "runs" for path in _folders(directory))]
    summaries: list[tuple[Path, dict[str, Any]]] = []
    for path in dict.fromkeys([directory, *(path for home in homes for path in _folders(home))]):
        try:
            summary = read_summary(path)
            summaries += [] if summary is None else [(path, _with_state(path, summary))]
        except UserError as error:  # the others are listed all the same
            if (path / "config.yaml").is_file():
                print_problem(f"note: {error}")
                summaries.append((path, {"state": "damaged", "resumable": False}))
    return summaries


def _check(directories: list[Path], as_json: bool) -> None:
    """Check runs, sweeps and searches, or all that are in a folder."""
    from h2fdp.integrity import check, is_checked

    inside = [[] if is_checked(home) else list(filter(is_checked, _folders(home))) for home in directories]
    homes = [each for home, found in zip(directories, inside, strict=True) for each in found or [home]]
    checks = [check(each) for each in dict.fromkeys(homes)]
    if as_json:
        print_json([each.as_json() for each in checks])
    else:
        for each in checks:
            _show(each)
    if not all(each.whole for each in checks):
        raise typer.Exit(_DAMAGED)


def _show(check: Findings) -> None:
    """A line about the directory, then what is wrong; runs of a sweep that are intact are counted only."""
    lines = [f"agree: {'; '.join(check.confirmed)}"] if check.confirmed else []
    lines += [f"not checked: {text}" for text in check.unknown] + [str(problem) for problem in check.problems]
    if check.runs:
        lines.append(f"{sum(run.whole for run in check.runs.values())} of {len(check.runs)} runs are intact")
    typer.echo(f"{check.directory}: {'intact' if check.whole else 'DAMAGED'} ({check.state})")
    for line in lines:
        typer.echo(fitted(f"  {line}", sys.stdout))
    for run in check.runs.values():
        if not run.whole:
            _show(run)


def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, or one sweep's directory.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="The page; by default report.html in a single directory.")
    ] = None,
    with_private: Annotated[
        bool,
        typer.Option("--with-private", help="Show seeds and results on private records, which no epsilon covers."),
    ] = False,
) -> None:
    """Write one self-contained page about runs: accuracy, epsilon of each observer, cost, schedule, noise, network."""
    from h2fdp.reports import report

    typer.echo(str(report(runs, out, with_private=with_private)))


def table_command(
    sweep: SweepPath,
    show: Annotated[
        list[str] | None, typer.Option(metavar="MEASURE", help="A column: accuracy, epsilon, energy_j, ...")
    ] = None,
    target: Target = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE", help="Differences from the runs with this value, seed by seed."),
    ] = None,
    where: Where = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it: .tex, .csv or .md.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the table of a sweep: means over seeds with 95 % intervals, costs to reach an accuracy."""
    from h2fdp.records.atomic import output_file, write_text
    from h2fdp.reports.paper import FORMATS, paper_table
    from h2fdp.reports.sweep_numbers import sweep_numbers

    numbers = sweep_numbers(sweep, target, against).where(where or [])
    table = paper_table(numbers, show or [])
    if out is not None:
        with output_file(out, "--out", list(FORMATS)):
            write_text(out, FORMATS[out.suffix](table))
        typer.echo(str(out))
    elif as_json:
        print_json(table.values())
    else:
        of = "means over seeds" + ("" if against is None else f" of the differences from {against}")
        print_table(table.texts(), title=f"{of}, {HALF}")
    if numbers.footnote:
        note(numbers.footnote)


def plot_command(
    sweep: SweepPath,
    x: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="A swept key; or interval, energy_j, clock_s, bytes.", show_default=False),
    ] = None,
    line: Annotated[str | None, typer.Option(metavar="KEY", help="A swept key with a line for each value.")] = None,
    y: Annotated[
        str | None, typer.Option(metavar="MEASURE", help="accuracy, rmse, loss, epsilon, energy_j, ...")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".pdf, .png or .svg.", show_default="in SWEEP")
    ] = None,
    target: Target = None,
    where: Where = None,
) -> None:
    """Draw a figure of a sweep: a measure over a swept key, with 95 % error bars."""
    from h2fdp.reports.figures import AXES
    from h2fdp.reports.paper import along_runs, axes_of, over_key
    from h2fdp.reports.pictures import write_figure
    from h2fdp.reports.sweep_numbers import sweep_numbers
    from h2fdp.reports.sweep_view import SweepView

    numbers = sweep_numbers(sweep, target).where(where or [])
    if x in AXES:
        if line is not None:
            raise UserError(f"means nothing with --x {x}, where each point of the grid has a line", "--line")
        figure = along_runs(SweepView.read(sweep), numbers, x, y)
    else:
        keys = axes_of(numbers, x, line)
        figure = over_key(numbers, *keys, y)
        if line is None and keys[1] is not None:
            note(f"{keys[0]} along x, and a line for each {keys[1]}; --x {keys[1]} exchanges them")
    typer.echo(str(write_figure(figure, out or sweep / f"{y or numbers.score.column}.pdf")))
    if numbers.footnote:
        note(numbers.footnote)
