"""`report`: run directories in, one HTML file out, and pictures where they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from h2fdp.errors import Problem, UserError
from h2fdp.records import versions
from h2fdp.records.atomic import write_text
from h2fdp.reports.decisions import decision_table, participation
from h2fdp.reports.figures import ReportSection, Series, Table
from h2fdp.reports.network import MOST_DRAWN, network, networks_of
from h2fdp.reports.observers import noise, privacy
from h2fdp.reports.page import page
from h2fdp.reports.publication import published, published_sweep
from h2fdp.reports.results import configuration, results
from h2fdp.reports.run_view import RunView, read_runs
from h2fdp.reports.series import series_of
from h2fdp.reports.sweep_view import SweepView, is_sweep
from h2fdp.reports.sweeping import sweep_sections
from h2fdp.reports.training import fairness, schedule, training
from h2fdp.topology import Topology

REPORT = "report.html"


@dataclass(frozen=True)
class _Content:
    title: str
    sections: Sequence[ReportSection]
    every: Sequence[Series]
    networks: Sequence[Topology]


def report(
    runs: Sequence[str | Path] | str | Path,
    out: str | Path | None = None,
    png: str | Path | None = None,
    *,
    with_private: bool = False,
) -> Path:
    """Write a report of one run, of several together, or of a sweep.

    Of runs with a guarantee it leaves out what no epsilon covers, unless that is asked for: such a page is not to be
    passed on.

    Args:
        runs: run directories, or one sweep's directory.
        out: the HTML file; by default `report.html` in the single directory.
        png: a folder for every figure as PNG and PDF; None for none.
        with_private: show seeds, the accuracy on each device's own records and on a validation split of them, too.

    Returns:
        The file that was written.

    Raises:
        UserError: no such runs, a damaged file, or a place that cannot be written.
    """
    paths = [Path(runs)] if isinstance(runs, (str, Path)) else [Path(each) for each in runs]
    if not paths:
        raise UserError("expected at least one run directory", "report")
    if out is None and len(paths) > 1:
        raise UserError("a report of several runs needs a file to be written to", "report", "--out")
    target = Path(out) if out is not None else paths[0] / REPORT
    if target.is_dir():
        raise UserError("expected a file for the report, found a directory", str(target), "--out")
    if any(map(is_sweep, paths)):
        sweep = _the_sweep(paths)
        shown = sweep if with_private else published_sweep(sweep)
        content = _Content(f"Sweep: {sweep.name}", *sweep_sections(shown, withheld=shown is not sweep), [])
    else:
        runs_read = read_runs(paths)
        content = _of_runs(runs_read if with_private else [published(run) for run in runs_read])
    text = page(content.title, content.sections, content.every, datetime.now(), versions()["h2fdp"])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(target), "--out") from None
    if png is not None:
        _write_pictures(content, Path(png))
    return target


def _write_pictures(content: _Content, folder: Path) -> None:
    from h2fdp.reports.pictures import SUFFIXES, write_pictures  # matplotlib, for those who want pictures
    from h2fdp.topology import draw

    write_pictures([figure for part in content.sections for figure in part.figures], content.every, folder)
    for number, topology in enumerate(content.networks[:MOST_DRAWN]):
        for suffix in SUFFIXES:
            draw(topology, folder / f"network-{number}{suffix}")


def _the_sweep(paths: Sequence[Path]) -> SweepView:
    if len(paths) > 1:
        sweeps = [path for path in paths if is_sweep(path)]
        raise UserError(Problem("a sweep has its own report; pass it alone", str(path)) for path in sweeps)
    return SweepView.read(paths[0])


def _of_runs(runs: Sequence[RunView]) -> _Content:
    every = [series_of(run) for run in runs]
    names = dict.fromkeys((runs[0].summary.get("name", runs[0].name), runs[0].name))
    title = ": ".join(names) if len(runs) == 1 else "Runs compared"
    sections = [
        results(runs),
        training(every, ""),
        privacy(runs, every),
        _schedule(runs, every),
        noise(every),
        network(runs),
        fairness(every),
        configuration(runs),
    ]
    return _Content(title, sections, every, [topology for topology, _ in networks_of(runs)])


def _schedule(runs: Sequence[RunView], every: Sequence[Series]) -> ReportSection:
    controlled = [(at, run) for at, run in enumerate(runs) if run.decisions]
    heats = [
        participation(at, run.name, run.decisions) for at, run in controlled if "participation" in run.decisions[0]
    ]
    folded: dict[str, Table | str] = {
        f"The controller's decisions in {run.name}, with its reasons": decision_table(run.decisions)
        for _, run in controlled
    }
    return schedule(every, "", heats, folded)
