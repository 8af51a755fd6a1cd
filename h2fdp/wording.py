"""Numbers of things in words; sentences as wide as the terminal; small pieces of HTML for notebooks, readable on light
and dark pages."""

from __future__ import annotations

import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from multiprocessing import parent_process
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tqdm import tqdm


class Score(NamedTuple):
    """A measure of a model on test records.

    Attributes:
        column: of the metrics.
        title: with its unit, after multiplication by `factor`.
        falls: less of it is better.
        least, most: what it cannot go beyond.
    """

    column: str
    title: str
    factor: float = 1.0
    falls: bool = False
    least: float = 0.0
    most: float = math.inf

    @property
    def name(self) -> str:
        """The title without the unit."""
        return self.title.removesuffix(", %")

    def said(self, value: float) -> str:
        """A value in a sentence.

        >>> SCORES["accuracy"].said(0.8), SCORES["rmse"].said(52.25)
        ('test accuracy 80.0 %', 'test RMSE 52.25')
        """
        return f"{self.name} {100 * value:.1f} %" if self.factor == 100 else f"{self.name} {value:.4g}"

    def short(self, value: float) -> str:
        """A value in a line with others, by its column.

        >>> SCORES["accuracy"].short(0.8), SCORES["rmse"].short(52.25)
        ('accuracy 0.8000', 'rmse 52.25')
        """
        return f"{self.column} {value:.4{'f' if self.factor == 100 else 'g'}}"

    def wanted(self, value: float) -> str:
        """A value that runs are to reach.

        >>> SCORES["accuracy"].wanted(0.7), SCORES["rmse"].wanted(52.25)
        ('70 %', 'rmse 52.25')
        """
        return f"{100 * value:.4g} %" if self.factor == 100 else f"{self.column} {value:.4g}"

    def signed(self, value: float) -> float:
        """A value of which more is better: itself, or minus it; of such a value, the one that was measured."""
        return -value if self.falls else value

    def reached(self, value: Any, wanted: float) -> Any:
        """Whether a value, or which of an array's, is at least as good as another one."""
        return value <= wanted if self.falls else value >= wanted


# By their columns; of those that a run has, the first is what it is judged by.
SCORES = {
    each.column: each
    for each in (
        Score("rmse", "test RMSE", falls=True),
        Score("r2", "test R2", least=-math.inf, most=1.0),
        Score("perplexity", "test perplexity", falls=True),
        Score("accuracy", "test accuracy, %", 100.0, most=1.0),
    )
}
SCORED = (*SCORES, "loss")


def judged_by(known: Mapping[str, Any]) -> Score:
    """The score that a run is judged by, which has a value here.

    >>> judged_by({"accuracy": None, "rmse": 2.0, "r2": 0.5}).column, judged_by({}).column
    ('rmse', 'accuracy')
    """
    return next((score for name, score in SCORES.items() if known.get(name) is not None), SCORES["accuracy"])


def short_score(known: Mapping[str, Any]) -> str:
    """The score that a run is judged by, with its column; empty where it has none yet.

    >>> short_score({"accuracy": 0.8, "loss": 0.5}), short_score({"loss": 0.5})
    ('accuracy 0.8000', '')
    """
    score = judged_by(known)
    return "" if known.get(score.column) is None else score.short(known[score.column])


_WHOLE = re.compile(r"`[^`]*`|\"[^\"]*\"|: h2fdp .*|h2fdp [a-z]+(?: --\S+)*")  # what is copied: quoted, or a command


def facts_html(title: str, facts: Mapping[str, Any], more: str = "") -> str:
    """A heading and two columns: what, and its value.

    >>> facts_html("run", {"accuracy": 0.5}).count("<tr>")
    1
    """
    return f"<div><b>{escape(title)}</b>{_html(list(facts.items()), header=False)}{more}</div>"


def table_html(title: str, rows: Sequence[Mapping[str, Any]], most: int = 20) -> str:
    """A heading and a table of rows with equal keys; of long ones the first rows."""
    left = f"<p>and {len(rows) - most} more</p>" if len(rows) > most else ""
    return f"<div><b>{escape(title)}</b>{_html(rows[:most])}{left}</div>"


def _html(rows: Sequence[Any], header: bool = True) -> str:
    """The HTML by which notebooks show a frame of pandas, with texts escaped."""
    import pandas as pd  # takes a second

    return str(pd.DataFrame(rows, dtype=object).map(word).to_html(header=header, index=False, border=0))


def curve_svg(values: Sequence[float], title: str, width: int = 320, height: int = 70) -> str:
    """A line through values from 0 to 1, with the last value at its right."""
    if len(values) < 2:
        return ""
    inner, step = height - 10, (width - 60) / (len(values) - 1)
    points = " ".join(f"{at * step:.1f},{5 + inner * (1 - min(max(v, 0), 1)):.1f}" for at, v in enumerate(values))
    line = f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/>'
    end = 9 + inner * (1 - min(max(values[-1], 0), 1))
    text = f'<text x="{width - 54}" y="{end:.1f}" font-size="12" fill="currentColor">{values[-1]:.3f}</text>'
    axis = f'<line x1="0" x2="{width - 60}" y1="{height - 5}" y2="{height - 5}" stroke="currentColor" opacity=".3"/>'
    name = escape(title, quote=True)
    head = f'<svg width="{width}" height="{height}" role="img" aria-label="{name}"><title>{name}</title>'
    return f"{head}{axis}{line}{text}</svg>"


def word(value: Any) -> str:
    """A value in few characters.

    >>> word(None), word(0.123456), word(True)
    ('-', '0.1235', 'yes')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "edge server"), counted(2000, "device")
    ('1 edge server', '2,000 devices')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def wrapped(text: str, *whole: str, indent: str = "") -> str:
    """A sentence in lines as wide as the terminal, of 80 columns in a pipe; no word is broken, nor what is quoted.

    Args:
        whole: parts that stay in one line, spaces and all.
        indent: of all lines but the first.
    """
    for each in (*whole, *_WHOLE.findall(text)):
        text = text.replace(each, each.replace(" ", "\0"))
    columns = shutil.get_terminal_size().columns
    lines = textwrap.wrap(text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def note(text: str) -> None:
    """Tell the user something while work goes on."""
    print(wrapped(f"note: {text}"), file=sys.stderr, flush=True)


@cache
def note_once(text: str) -> None:
    """Tell the user once what a process would say each time that it builds a model."""
    note(text)


PATIENCE = 1.0  # seconds without a word


@contextmanager
def noted_if_long(text: str) -> Iterator[None]:
    """A note while work goes on that takes longer than a second; none from a process that another one started."""
    timer = Timer(PATIENCE, note, [text])
    timer.daemon = True
    if parent_process() is None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


COLUMNS = 80  # of a plain line
LEFT = 30  # columns of a live line that say how many are done, and how long the others take
_SECONDS_BETWEEN = 0.2


class Target(NamedTuple):
    """The epsilon that bounds the accounts of these observers; None is all that there are."""

    epsilon: float
    observers: Sequence[str] | None = None


def words_of(row: dict[str, Any], target: Target | None = None, most: int | None = None) -> str:
    """The words about an interval: its score, its epsilon and its costs, as far as the row has them.

    Args:
        most: columns; what it cost is left out where it takes more.
        target: of the account; the epsilon of its observers is said then, else the largest of all.
    """
    parts = [score] if (score := short_score(row)) else []
    accounted = {key.removeprefix("epsilon_"): row[key] for key in row if key.startswith("epsilon_")}
    watched = None if target is None else target.observers
    epsilons = [
        epsilon
        for observer, epsilon in accounted.items()
        if epsilon is not None and observer != "claimed" and (watched is None or observer in watched)
    ]
    if epsilons:
        parts.append(f"epsilon {max(epsilons):.3g}" + (f" of {target.epsilon:.3g}" if target else ""))
    if row.get("energy_j") is not None:
        parts.append(f"{row['energy_j']:.3g} J")
    if row.get("clock_s") is not None:
        parts.append(f"{row['clock_s']:.3g} s simulated")
    while most is not None and len(parts) > 2 and len("  ".join(parts)) > most:
        parts.pop()
    return "  ".join(parts)


def progress_bar(total: int, show: bool | None, *, stays: bool = True) -> tqdm:
    """A line on standard error that says how far something is, at most five times a second.

    Args:
        total: steps in all.
        show: null for where it is of use: a notebook, a terminal.
        stays: the last one stays.
    """
    from tqdm import tqdm

    if show is None:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        show = hasattr(shell, "kernel") or sys.stderr.isatty()
    form, (columns, lines) = "{n_fmt}/{total_fmt}  {desc}  {remaining} left", shutil.get_terminal_size()
    room = {"ncols": columns, "nrows": lines}  # tqdm itself shows nothing in a terminal that does not know its size
    often = {"mininterval": _SECONDS_BETWEEN, "miniters": 0}
    return tqdm(total=total, disable=not show, bar_format=form, leave=stays, **room, **often)


def advance(bar: tqdm, done: int, words: str) -> None:
    """So many steps are done."""
    bar.set_description_str(words, refresh=False)
    bar.update(done - bar.n)
