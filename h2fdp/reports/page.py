"""The page: one file with everything in it, which asks nothing of any network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from h2fdp.records.json_lines import json_values
from h2fdp.reports.figures import AXES, CurveChart, Drawing, Explorer, Figure, Heatmap, ReportSection, Series
from h2fdp.reports.markup import marker_of, properties, run_sample, section
from h2fdp.reports.palette import DARK, DASHES, LIGHT

MOST_SHOWN_AT_FIRST = 8  # series whose curves are drawn before the reader chooses
_DIGITS = 6
_SCRIPTS = ("look.js", "curves.js", "shapes.js", "explorer.js", "controls.js")


def page(title: str, sections: Sequence[ReportSection], every: Sequence[Series], made: datetime, version: str) -> str:
    """The report as HTML.

    Args:
        sections: in order; those without any content are left out.
        every: the series that curves name by number.
        made: when, as the page says.
    """
    from plotly.offline import get_plotlyjs

    sections = [each for each in sections if each.lead or each.figures or each.tables or each.folded]
    figures = [each for part in sections for each in part.figures]
    parts = {
        "title": escape(title),
        "made": f"{made:%Y-%m-%d %H:%M}",
        "version": escape(version),
        "light": properties(LIGHT.tokens()),
        "dark": properties(DARK.tokens()),
        "style": _text("page.css"),
        "navigation": "".join(f'<a href="#{each.key}">{escape(each.title)}</a>' for each in sections),
        "axes": _axes(every, figures),
        "runs": _runs(every, figures),
        "sections": "\n".join(section(each, every) for each in sections),
        "plotly": get_plotlyjs(),
        "data": json_text(_data(figures, every)),
        "script": "\n".join(map(_text, _SCRIPTS)),
    }
    return Template(_text("page.html")).substitute(parts)


def json_text(values: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins a comment.

    >>> json_text({"name": "</script><!--", "loss": float("nan")})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--","loss":null}'
    """
    text = json.dumps(json_values(values), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(figures: Sequence[Figure], every: Sequence[Series]) -> dict[str, Any]:
    return {
        "axes": AXES,
        "dashes": DASHES,
        "series": [
            {
                "name": each.name,
                "marker": marker_of(at),
                "columns": {name: _rounded(each.columns[name]) for name in _used(at, each, figures)},
            }
            for at, each in enumerate(every)
        ],
        "figures": [_figure(each) for each in figures if not isinstance(each, Drawing)],
    }


def _used(at: int, series: Series, figures: Sequence[Figure]) -> list[str]:
    """The columns of a series that a figure draws, and the axes."""
    names = dict.fromkeys(AXES)
    drawn = [(each.x, curve) for each in figures if isinstance(each, CurveChart) for curve in each.curves]
    for x, curve in drawn:
        if curve.series == at:
            wanted = (x, curve.column, curve.words, *(curve.band or ()))
            names |= dict.fromkeys(name for name in wanted if name is not None)
    return [name for name in names if name in series.columns]


def _rounded(values: Sequence[Any]) -> list[Any]:
    return [float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value for value in values]


def _figure(content: Figure) -> dict[str, Any]:
    kinds = {CurveChart: "curves", Heatmap: "heat", Explorer: "explorer"}
    values = {key: value for key, value in vars(content).items() if key != "caption"}
    if isinstance(content, CurveChart):
        values["curves"] = [vars(curve) for curve in content.curves]
    return {"kind": kinds[type(content)], **values}


def _axes(every: Sequence[Series], figures: Sequence[Figure]) -> str:
    """Radio buttons for the axes that every curve can be drawn over; none where nothing can be."""
    if not any(isinstance(each, CurveChart) and each.x is None for each in figures):
        return ""
    found = [name for name in AXES if all(name in each.columns for each in every if each.columns)]
    buttons = "".join(
        f'<label><input type="radio" name="axis" value="{name}"{" checked" if at == 0 else ""}>{_SHORT[name]}</label>'
        for at, name in enumerate(found)
    )
    return f'<fieldset id="axis"><legend>Horizontal axis</legend>{buttons}</fieldset>'


_SHORT: Mapping[str, str] = {
    "interval": "intervals",
    "slot": "slots",
    "energy_j": "joules",
    "clock_s": "simulated seconds",
}


def _runs(every: Sequence[Series], figures: Sequence[Figure]) -> str:
    """A box for each series, which is the legend of all figures as well."""
    if len(every) < 2 or not figures:
        return ""
    boxes = "".join(
        f'<label title="{escape(each.name)}"><input type="checkbox" name="run" value="{at}"'
        f"{' checked' if at < MOST_SHOWN_AT_FIRST else ''}>{run_sample(at, alone=False)}"
        f"<span>{escape(each.name)}</span></label>"
        for at, each in enumerate(every)
    )
    buttons = '<button type="button" id="all">all</button><button type="button" id="none">none</button>'
    return f'<fieldset id="runs"><legend>Shown</legend>{boxes}{buttons}</fieldset>'


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
