"""A self-contained HTML page, which asks nothing of any network; every text from outside is escaped."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from h2fdp.records.json_lines import json_values
from h2fdp.reports.figures import (
    AXES,
    DARK,
    DASHES,
    LIGHT,
    MARKERS,
    CurveChart,
    Drawing,
    Explorer,
    Figure,
    Heatmap,
    ReportSection,
    Series,
    Table,
    number,
)

_MOST_ROWS = 100  # of a table that is shown as a whole
_GLYPHS = {"met": "✓", "open": "?"}
_SVG_DASHES = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3",
    "dashdot": "7 3 2 3",
    "longdash": "12 4",
    "longdashdot": "12 3 2 3",
}
_SHAPES = {
    "circle": '<circle cx="16" cy="7" r="4"/>',
    "square": '<rect x="12" y="3" width="8" height="8"/>',
    "diamond": '<path d="M16 2l5 5-5 5-5-5z"/>',
    "triangle-up": '<path d="M16 2l5 9h-10z"/>',
    "x": '<path d="M12 4.5l1.5-1.5 2.5 2.5 2.5-2.5 1.5 1.5-2.5 2.5 2.5 2.5-1.5 1.5-2.5-2.5-2.5 2.5-1.5-1.5 2.5-2.5z"/>',
    "cross": '<path d="M14.5 2h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z"/>',
}


def sample(colour: str, dash: str, marker: str = "") -> str:
    """A short line as a legend shows it."""
    shape = _SHAPES.get(marker, "")
    return (
        f'<svg class="sample" width="32" height="14" aria-hidden="true" fill="{colour}">'
        f'<path d="M0 7h32" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{_SVG_DASHES[dash]}"/>{shape}</svg>'
    )


def run_sample(at: int, alone: bool) -> str:
    """The colour and the marker of a series."""
    return sample(f"var(--curve{at % len(DASHES)})", "solid", "" if alone else marker_of(at))


def marker_of(at: int) -> str:
    """Series that share a colour have different markers."""
    return MARKERS[(at + at // len(MARKERS)) % len(MARKERS)]


def cell(value: Any, head: str = "") -> str:
    """A value in a table.

    >>> cell(None), cell(0.123456), cell("<b>"), cell("met", "verdict")
    ('<td class="unknown">–</td>', '<td class="number">0.1235</td>', '<td>&lt;b&gt;</td>', '<td class="met">✓ met</td>')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return '<td class="unknown">–</td>'
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, (int, float)):
        return f'<td class="number">{number(value) if isinstance(value, float) else f"{value:,}"}</td>'
    word = str(value).split(" ", 1)[0]
    if head == "verdict" and word in _GLYPHS:
        return f'<td class="{word}">{_GLYPHS[word]} {escape(str(value))}</td>'
    return f"<td>{escape(str(value))}</td>"


def table(title: str, content: Table) -> str:
    """A table in a box of its own, which scrolls where it is wider than the page, or has very many rows."""
    heads = "".join(_head(head, [row[at] for row in content.rows]) for at, head in enumerate(content.heads))
    rows = "".join(
        f'<tr><th scope="row">{escape(str(row[0]))}</th>'
        + "".join(cell(value, head) for value, head in zip(row[1:], content.heads[1:], strict=True))
        + "</tr>"
        for row in content.rows
    )
    box = "scrolled long" if len(content.rows) > _MOST_ROWS else "scrolled"
    return (
        f'<div class="{box}" tabindex="0" role="region" aria-label="{escape(title)}"><table>'
        f"<caption><span>{escape(title)}</span></caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _head(head: str, below: Sequence[Any]) -> str:
    numeric = any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in below)
    return f'<th scope="col"{" class=number" if numeric else ""}>{escape(head)}</th>'


def section(content: ReportSection, every: Sequence[Series]) -> str:
    """A part of the page: tables, figures, and what is folded."""
    parts = [f'<section id="{content.key}"><h2>{escape(content.title)}</h2>']
    if content.lead:
        parts.append(f'<p class="lead">{escape(content.lead)}</p>')
    parts += [table(title, each) for title, each in (content.tables or {}).items()]
    if content.figures:
        parts.append('<div class="figures">')
        parts += [figure(each, every) for each in content.figures]
        parts.append("</div>")
    for title, each in (content.folded or {}).items():
        inside = table(title, each) if isinstance(each, Table) else f"<pre>{escape(each)}</pre>"
        parts.append(f"<details><summary>{escape(title)}</summary>{inside}</details>")
    if content.footnote:
        parts.append(f'<p class="footnote">{escape(content.footnote)}</p>')
    return "\n".join([*parts, "</section>"])


def figure(content: Figure, every: Sequence[Series]) -> str:
    """A figure with its heading, controls, legend, caption and numbers; the script draws it, unless it is a drawing."""
    wide = ' class="wide"' if isinstance(content, (Drawing, Explorer)) else ""
    logarithm = ""
    if isinstance(content, CurveChart) and content.scale != "plain":
        checked = " checked" if content.scale == "log" else ""
        logarithm = f'<label class="switch"><input type="checkbox" data-log="{content.key}"{checked}> log scale</label>'
    controls = f'<div class="chosen" id="choices-{content.key}"></div>' if isinstance(content, Explorer) else ""
    plot, inside = ("drawing", content.svg) if isinstance(content, Drawing) else ("plot", "")
    return (
        f'<figure{wide} id="figure-{content.key}"><div class="head"><h3>{escape(content.title)}</h3>{logarithm}</div>'
        f'{controls}{_legend(content, every)}<div class="{plot}" id="plot-{content.key}" role="img" '
        f'aria-label="{escape(content.title)}. {escape(content.caption)}">{inside}</div>'
        f"<figcaption>{escape(content.caption)}</figcaption>{_numbers(content, every)}</figure>"
    )


def _legend(content: Figure, every: Sequence[Series]) -> str:
    if isinstance(content, CurveChart) and len(content.labels()) > 1:
        alone = len(every) == 1
        entries = [
            (
                sample(f"var(--curve{style % len(DASHES)})" if alone else "currentColor", DASHES[style % len(DASHES)]),
                text,
            )
            for style, text in content.labels().items()
        ]
    else:
        return ""
    return f'<ul class="legend">{"".join(f"<li>{glyph} {escape(text)}</li>" for glyph, text in entries)}</ul>'


def _numbers(content: Figure, every: Sequence[Series]) -> str:
    if not isinstance(content, CurveChart):
        return ""
    rows = []
    for curve in content.curves:
        values = [value for value in every[curve.series].columns[curve.column] if isinstance(value, (int, float))]
        values = [value for value in values if math.isfinite(value)]
        if values:
            name = every[curve.series].name
            rows.append([name, curve.label, values[0], values[-1], min(values), max(values)])
    heads = ("run", content.y_title, "first", "last", "smallest", "largest")
    return f"<details><summary>Numbers</summary>{table(content.title, Table(heads, rows))}</details>"


def properties(tokens: Mapping[str, str]) -> str:
    """CSS custom properties."""
    return "".join(f"--{name}:{value};" for name, value in tokens.items())


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
