"""A self-contained HTML page, which asks nothing of any network; every text from outside is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from h2fdp.records.json_lines import json_values
from h2fdp.reports.figures import (
    AXES,
    DARK,
    DASHES,
    LIGHT,
    CurveChart,
    Drawing,
    Figure,
    ReportSection,
    Series,
    Table,
    Theme,
    marker_of,
    number,
)

_DIGITS = 6
_SCRIPTS = ("look.js", "curves.js", "shapes.js", "explorer.js", "controls.js")


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
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # by default it sorts keys
    templates.filters["number"] = number
    return templates.get_template("page.html").render(
        title=title,
        made=f"{made:%Y-%m-%d %H:%M}",
        version=version,
        light=_properties(LIGHT),
        dark=_properties(DARK),
        axes=[name for name in AXES if choice and all(name in each.columns for each in every if each.columns)],
        sections=sections,
        figures=figures,
        every=every,
        dashes=DASHES,
        marker_of=marker_of,
        numbers_of=numbers_of,
        plotly=get_plotlyjs(),
        data=json_values(_data(figures, every)),
        scripts=_SCRIPTS,
    )


def _properties(theme: Theme) -> str:
    return "".join(f"--{name}:{value};" for name, value in theme.tokens().items())


def numbers_of(chart: CurveChart, every: Sequence[Series]) -> Table:
    """What a figure shows, for those who do not see it."""
    rows = []
    for curve in chart.curves:
        values = [value for value in every[curve.series].columns[curve.column] if isinstance(value, (int, float))]
        values = [value for value in values if math.isfinite(value)]
        if values:
            name = every[curve.series].name
            rows.append([name, curve.label, values[0], values[-1], min(values), max(values)])
    return Table(("run", chart.y_title, "first", "last", "smallest", "largest"), rows)


def _data(figures: Sequence[Figure], every: Sequence[Series]) -> dict[str, Any]:
    """What the scripts draw: the figures that are no drawings, and the columns that these show."""
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
    known = [name for name in dict.fromkeys(names) if name in series.columns]
    return {name: [_rounded(value) for value in series.columns[name]] for name in known}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
