"""Cells of verdicts in HTML tables: a sign and a number on a colour, and everything else on hover."""

from __future__ import annotations

from html import escape

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import JudgedClaim
from experiments.reproduction.verdict import LESS_IF_ANY, UNDECIDED, Verdict
from experiments.reproduction.wording import found_words, number_words, verdict_text

# Colour is never all: a sign says the same. Pages that keep no classes show the signs alone.
_LOOKS = {
    Verdict.HOLDS: ("holds", "✓"),
    Verdict.IN_DIRECTION: ("direction", "↑"),
    Verdict.FAILS: ("fails", "✗"),
    Verdict.NOT_RUN: ("none", "–"),
}
_OPEN_LOOKS = {UNDECIDED: ("undecided", "?"), LESS_IF_ANY: ("less", "&lt;")}


def cell(claim: Claim, judged: JudgedClaim | None, where: str) -> str:
    """One claim in one column; `where` begins what is said on hover."""
    if judged is None:
        return '<td class="none"></td>'
    look, sign = _OPEN_LOOKS.get(judged.remark) or _LOOKS[judged.verdict]
    shown = sign
    if judged.finding is not None:
        shown = f"{sign}&nbsp;{number_words(claim, judged)}"
    more = judged.why if judged.finding is None else found_words(claim, judged)
    told = escape(f"{where}: {verdict_text(judged)}" + (f"; {more}" if more else ""), quote=True)
    return f'<td class="{look}" title="{told}">{shown}</td>'


def share_cell(holds: int, undecided: int, of: int, told: str) -> str:
    """In how many settings a claim holds, as words on a bar of green, yellow and red."""
    if not of:
        return '<td class="none" title="not run">–</td>'
    green, yellow = (round(100 * count / of) for count in (holds, holds + undecided))
    style = f"--green: {green}%; --yellow: {yellow}%"
    return f'<td class="share" style="{style}" title="{escape(told, quote=True)}">{holds} of {of}</td>'


def legend() -> str:
    """What the signs mean."""
    words = {
        "holds": "✓ holds",
        "direction": "↑ holds in direction, not shown to be by as much",
        "undecided": "? undecided",
        "less": "&lt; by less, if at all",
        "fails": "✗ does not hold",
        "none": "– or empty: not run",
    }
    shown = " ".join(f'<span class="{look}">{text}</span>' for look, text in words.items())
    return f'<p class="verdict-key">{shown}</p>'
