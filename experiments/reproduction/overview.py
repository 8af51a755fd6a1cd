"""The first screen of the page: every claim a line, data sets, calibrations and settings side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from experiments.reproduction.cells import cell, legend, share_cell
from experiments.reproduction.evaluation import Row, has_runs
from experiments.reproduction.figures_file import COLUMNS, Column
from experiments.reproduction.plan import Reproduction
from experiments.reproduction.settings.judged import ClaimOverSettings, SettingsResults
from experiments.reproduction.wording import paper_words

_SHORT: Mapping[Column, str] = {"claimed": "formula", "accounted": "account"}


def overview(
    of: Reproduction,
    rows: Sequence[Row],
    settings: SettingsResults | None,
    counted: Mapping[str, ClaimOverSettings],
    first: str,
) -> str:
    """The region of the verdicts.

    Args:
        counted: claim -> how often it holds over settings, of the first data set.
        first: the data set of the settings.
    """
    ours = [row for row in rows if not of.file.figures[row.claim.figure].apart]
    lines = [legend(), *_figures(of, ours, settings, counted, first)]
    for name, figure in of.file.figures.items():
        own = [row for row in rows if row.claim.figure == name]
        if figure.apart and own:
            lines += _table_of_another_paper(of, figure.title, own)
    return "\n".join(lines)


def _figures(
    of: Reproduction,
    rows: Sequence[Row],
    settings: SettingsResults | None,
    counted: Mapping[str, ClaimOverSettings],
    first: str,
) -> Iterator[str]:
    by_claim: dict[str, dict[str, Row]] = {}
    order = list(of.file.figures)
    for row in sorted(rows, key=lambda row: order.index(row.claim.figure)):
        by_claim.setdefault(row.claim.id, {})[row.data_set] = row
    data_sets = [name for name in dict.fromkeys(row.data_set for row in rows) if name == first or has_runs(rows, name)]
    roles: Mapping[str, int] = {} if settings is None else settings.chosen
    confirmed = {} if settings is None else settings.confirmed
    of_roles = [(role, column) for role in roles for column in COLUMNS if (role, column) in confirmed]
    yield '<div class="verdicts"><table>'
    top = [f'<th colspan="2">{of.file.data_sets[name].title}</th>' for name in data_sets]
    if counted:
        top.append("<th>other settings</th>")
    top += [f'<th colspan="{sum(each == role for each, _ in of_roles)}">{role} setting</th>'
            for role in roles if any(each == role for each, _ in of_roles)]  # fmt: skip
    below = [_SHORT[column] for _ in data_sets for column in COLUMNS]
    below += ["holds in"] * bool(counted) + [_SHORT[column] for _, column in of_roles]
    yield f'<thead><tr><th rowspan="2">claim</th><th rowspan="2" class="paper">paper</th>{"".join(top)}</tr>'
    yield "<tr>" + "".join(f"<th>{each}</th>" for each in below) + "</tr></thead><tbody>"
    figure = ""
    for claim_id, found in by_claim.items():
        claim = next(iter(found.values())).claim
        if claim.figure != figure:
            figure = claim.figure
            width = 2 + len(below)
            title = escape(of.file.figures[figure].title)
            yield f'<tr class="head"><th colspan="{width}">Figure {figure.removeprefix("fig")}: {title}</th></tr>'
        said = paper_words(found.get(first) or next(iter(found.values())))
        cells = [f"<th>{escape(claim.words)}</th>", f'<td class="paper">{_unbroken(escape(said))}</td>']
        for name in data_sets:
            own = paper_words(found[name]) if name in found else said
            title = of.file.data_sets[name].title + (f" (paper {own})" if own != said else "")
            for column, words in COLUMNS.items():
                judged = found[name].columns[column] if name in found else None
                where = f"{title}, {words}"
                cells.append(cell(claim, None if judged is None or judged.absent else judged, where))
        if counted:
            cells.append(_counted_cell(counted.get(claim_id)))
        for role, column in of_roles:
            judged = confirmed[role, column].get(claim_id)
            cells.append(cell(claim, judged, f"{role} setting, {COLUMNS[column]}, fresh seeds"))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _unbroken(words: str) -> str:
    """A tolerance stays on one line."""
    return re.sub(r"\(([+−]) ", r"(\1&nbsp;", words)


def _counted_cell(counted: ClaimOverSettings | None) -> str:
    if counted is None:
        return share_cell(0, 0, 0, "")
    told = (
        f"holds at least in direction in {counted.holds} of {counted.judged} settings, in {counted.fully} of them by "
        f"as much as the paper says; undecided in {counted.undecided}"
    )
    return share_cell(counted.holds, counted.undecided, counted.judged, told)


def _table_of_another_paper(of: Reproduction, title: str, rows: Sequence[Row]) -> Iterator[str]:
    """Claims by data sets."""
    data_sets = list(dict.fromkeys(row.data_set for row in rows))
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row.claim.words, {})[row.data_set] = row
    yield f'<div class="verdicts"><table><thead><tr><th>{escape(title)}</th>'
    yield "".join(f"<th>{escape(of.file.data_sets[name].title)}</th>" for name in data_sets) + "</tr></thead><tbody>"
    for words, by_data_set in found.items():
        cells = [f"<th>{escape(words)}</th>"]
        for name in data_sets:
            one = by_data_set.get(name)
            if one is None:
                cells.append('<td class="none"></td>')
            else:
                cells.append(cell(one.claim, one.columns["claimed"], f"paper {paper_words(one)}; here"))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
