"""`report`: run directories in, one self-contained HTML file out.

The page asks nothing of any network, and every text from outside is escaped.

Of runs with a guarantee the page carries no seed, and nothing about private records outside every account. Under
`noise_key: seed` the seed is as good as the noise. The accuracy on each device's own records, and on a validation split
of them, is computed without noise, and no account covers it. Nor does one cover the accuracy on test records, where
these belong to devices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from h2fdp.config.parsing import text_of, values_of
from h2fdp.errors import Problem, UserError
from h2fdp.network import Topology
from h2fdp.privacy import noise_placement_of
from h2fdp.records.atomic import json_values, output_file, write_text
from h2fdp.records.directory import versions
from h2fdp.reports.decisions import decision_table, schedule
from h2fdp.reports.figures import (
    AXES,
    DASHES,
    UNITS,
    Column,
    CurveChart,
    Drawing,
    Figure,
    ReportSection,
    Series,
    Table,
    marker_of,
    number,
)
from h2fdp.reports.network import network, networks_of
from h2fdp.reports.results import configuration, fairness, noise, privacy, results, training
from h2fdp.reports.run_view import RunView, read_runs, series_of
from h2fdp.reports.sweep_view import SEED, GridPoint, SweepView, is_sweep, sweep_sections
from h2fdp.wording import SCORED, SCORES, Score, judged_by

# Devices' own models are not in the ledger, and their scores are weighed by the labels of devices' training records.
_OF_DEVICES = ("validation_", "device_accuracy_", "device_rmse_", "personal_")
_OF_TESTS = (*SCORED, *(f"best_{name}" for name in SCORES))
_LEFT_OUT = "left out"
_SEED_IN_NAME = re.compile(r"(?<![\w.])seed=\d+")


def is_guaranteed(run: RunView) -> bool:
    """Whether somebody adds noise, so that a guarantee is asked for."""
    section = run.setting("method", "privacy")
    return section is not None and noise_placement_of(section).private


def published(run: RunView) -> RunView:
    """The run without numbers that no epsilon covers; all of it where no guarantee was asked for."""
    if not is_guaranteed(run):
        return run
    return replace(
        run,
        summary=_without(run.summary, _private_names(run.summary)) | {SEED: None},
        configuration={key: value for key, value in run.configuration.items() if key != SEED},
        configuration_text=without_seeds(run.configuration_text),
        metrics=_public(run.metrics, _private_names(run.summary)),
        devices={},
        withheld=True,
    )


def published_sweep(sweep: SweepView) -> SweepView:
    """The sweep without numbers that no epsilon covers; all of it where no run has an account."""
    if not any(summary.get("privacy") for point in sweep.points for summary in point.summaries):
        return sweep
    points = [_published_point(point) for point in sweep.points]
    errors = {_SEED_IN_NAME.sub(f"seed {_LEFT_OUT}", name): error for name, error in sweep.errors.items()}
    return replace(sweep, points=points, errors=errors, study=without_seeds(sweep.study))


def without_seeds(text: str) -> str:
    """A configuration or a study as it is written, with its seeds left out.

    >>> print(without_seeds("name: trust\\nseed: 17\\nsweep: {seed: [1, 2]}\\n"), end="")
    name: trust
    seed: left out
    sweep:
      seed: left out
    """
    values = values_of(text)
    if not isinstance(values, dict):
        return text
    swept = values.get("sweep")
    places = [(values, SEED)] if SEED in values else []
    places += [(swept, key) for key in swept if SEED in _keys(key)] if isinstance(swept, dict) else []
    for section, key in places:
        section[key] = _LEFT_OUT
    return text_of(values) if places else text


def _keys(linked: Any) -> Sequence[str]:
    """The keys of a line of a sweep, which may link several."""
    return [key.strip() for key in str(linked).split(",")]


def _published_point(point: GridPoint) -> GridPoint:
    private = max((_private_names(summary) for summary in point.summaries), key=len, default=())
    columns = _public(point.series.columns, private)
    summaries = [_without(summary, private) for summary in point.summaries]
    return replace(point, series=replace(point.series, columns=columns), summaries=summaries)


def _private_names(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The prefixes of scores that are measured on devices' records."""
    return (*_OF_DEVICES, *_OF_TESTS) if summary.get("tested_on_devices") else _OF_DEVICES


def _without(summary: Mapping[str, Any], private: tuple[str, ...]) -> dict[str, Any]:
    return {name: None if name.startswith(private) else value for name, value in summary.items()}


def _public(columns: Mapping[str, Column], private: tuple[str, ...]) -> dict[str, Column]:
    return {name: values for name, values in columns.items() if not name.startswith(private)}


REPORT = "report.html"


Content = tuple[str, list[ReportSection], list[Series], list[Topology]]


def report(
    runs: Sequence[str | Path] | str | Path, out: str | Path | None = None, *, with_private: bool = False
) -> Path:
    """Write a report of one run, of several together, or of a sweep.

    Of runs with a guarantee it leaves out what no epsilon covers, unless that is asked for: such a page is not to be
    passed on.

    Args:
        runs: run directories, or one sweep's directory.
        out: the HTML file; by default `report.html` in the single directory.
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
    title, sections, every, _ = content(paths, with_private)
    with output_file(target, "--out"):
        write_text(target, page(title, sections, every, datetime.now(), versions()["h2fdp"]))
    return target


def content(paths: Sequence[Path], with_private: bool) -> Content:
    """Title, sections, curves' series and networks of a report; see `report`."""
    if any(map(is_sweep, paths)):
        sweep = _the_sweep(paths)
        public = sweep if with_private else published_sweep(sweep)
        return f"Sweep: {sweep.name}", *sweep_sections(public, withheld=public is not sweep), []
    views = [view if with_private else published(view) for view in read_runs(paths)]
    every = [series_of(view) for view in views]
    return _title(views), _sections(views, every), every, [topology for topology, _ in networks_of(views)]


def _the_sweep(paths: Sequence[Path]) -> SweepView:
    if len(paths) > 1:
        sweeps = [path for path in paths if is_sweep(path)]
        raise UserError(Problem("a sweep has its own report; pass it alone", str(path)) for path in sweeps)
    return SweepView.read(paths[0])


def _title(runs: Sequence[RunView]) -> str:
    names = dict.fromkeys((runs[0].summary.get("name", runs[0].name), runs[0].name))
    return ": ".join(names) if len(runs) == 1 else "Runs compared"


def _sections(runs: Sequence[RunView], every: Sequence[Series]) -> list[ReportSection]:
    return [
        results(runs),
        training(every, ""),
        privacy(runs, every),
        _schedule(runs, every),
        noise(runs, every),
        network(runs),
        fairness(every),
        configuration(runs),
    ]


def _schedule(runs: Sequence[RunView], every: Sequence[Series]) -> ReportSection:
    folded: dict[str, Table | str] = {
        f"The controller's decisions in {run.name}, with its reasons": decision_table(run.decisions)
        for run in runs
        if run.decisions
    }
    return schedule(every, "", folded)


_DIGITS = 6
_MOST_TICKED = 8  # curves that a page shows at first
_SCRIPTS = ("look.js", "curves.js", "explorer.js", "controls.js")


def page(title: str, sections: Sequence[ReportSection], every: Sequence[Series], made: datetime, version: str) -> str:
    """The report as HTML.

    Args:
        sections: in order; those without any content are left out.
        every: the series that curves name by number.
        made: when, as the page says.
    """
    from jinja2 import Environment, FileSystemLoader
    from plotly.offline import get_plotlyjs

    sections = [each for each in sections if each.lead or each.figures or each.tables or each.folded]
    figures = [each for part in sections for each in part.figures]
    choice = any(each.kind == "curves" and each.x is None for each in figures)
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    score = judged_by({name: True for series in every for name in SCORES if any(series.columns.get(name, ()))})
    ticked = sorted(range(len(every)), key=lambda at: -_last(every[at], score))[:_MOST_TICKED]
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # by default it sorts keys
    templates.filters["number"] = number
    return templates.get_template("page.html").render(
        title=title,
        made=f"{made:%Y-%m-%d %H:%M}",
        version=version,
        axes=[name for name in AXES if choice and all(name in each.columns for each in every if each.columns)],
        units=UNITS,
        sections=sections,
        figures=figures,
        every=every,
        ticked=ticked,
        dashes=DASHES,
        marker_of=marker_of,
        numbers_of=numbers_of,
        plotly=get_plotlyjs(),
        data=json_values(_data(figures, every)),
        scripts=_SCRIPTS,
    )


def _last(series: Series, score: Score) -> float:
    """The last value, signed so that larger is better; below all others where there is none."""
    known = (value for value in reversed(series.columns.get(score.column, [])) if value is not None)
    return next(map(score.signed, known), -math.inf)


def numbers_of(chart: CurveChart, every: Sequence[Series]) -> Table:
    """The numbers of a figure, for readers who do not see it."""
    rows = []
    for curve in chart.curves:
        values = [value for value in every[curve.series].columns[curve.column] if isinstance(value, (int, float))]
        values = [value for value in values if math.isfinite(value)]
        if values:
            name = every[curve.series].name
            rows.append([name, curve.label, values[0], values[-1], min(values), max(values)])
    return Table(("run", chart.y_title, "first", "last", "smallest", "largest"), rows)


def _data(figures: Sequence[Figure], every: Sequence[Series]) -> dict[str, Any]:
    """The data that the scripts draw: the figures that are no drawings, and the columns that these show."""
    drawn = []
    for each in figures:
        if not isinstance(each, Drawing):
            values = {"kind": each.kind} | {key: value for key, value in vars(each).items() if key != "caption"}
            curves = {"curves": list(map(vars, each.curves))} if isinstance(each, CurveChart) else {}
            drawn.append(values | curves)
    series = [
        {"name": each.name, "marker": marker_of(at), "columns": _shown(at, each, figures)}
        for at, each in enumerate(every)
    ]
    return {"axes": AXES, "dashes": DASHES, "series": series, "figures": drawn}


def _shown(at: int, series: Series, figures: Sequence[Figure]) -> dict[str, list[Any]]:
    """The columns of a series that a figure draws, and the axes."""
    names = list(AXES)
    for chart in figures:
        if isinstance(chart, CurveChart):
            drawn = [curve for curve in chart.curves if curve.series == at]
            names += [name for each in drawn for name in (chart.x, each.column, each.words, *(each.band or ())) if name]
    existing = [name for name in dict.fromkeys(names) if name in series.columns]
    return {name: [_rounded(value) for value in series.columns[name]] for name in existing}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
