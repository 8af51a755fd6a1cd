"""A figure as LaTeX for the package pgfplots: `\\input` it; fonts and sizes are then those of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

from h2fdp.reports.palette import LIGHT
from h2fdp.reports.paper_lines import Line, PaperFigure

_MARKS = ("*", "square*", "diamond*", "triangle*", "x", "+")
_DASHES = ("solid", "densely dashed", "densely dotted", "dash dot", "dashed", "dash dot dot")
_SPECIAL = {"%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "ε": r"$\varepsilon$", "δ": r"$\delta$"}


def pgf_text(figure: PaperFigure, width_in: float) -> str:
    """The picture as text."""
    options = [
        f"width={width_in:g}in",
        "height=0.7*\\pgfkeysvalueof{/pgfplots/width}",
        f"xlabel={{{tex(figure.x_title)}}}",
        f"ylabel={{{tex(figure.y_title)}}}",
        "grid=major",
        "legend style={draw=none, font=\\footnotesize}",
        "legend pos=outer north east",
    ]
    if figure.logarithmic:
        options.append("xmode=log")
    if figure.x_ticks:
        places = ",".join(f"{each:.6g}" for each in figure.x_ticks)
        options += [f"xtick={{{places}}}", f"xticklabels={{{places}}}", "minor x tick num=0"]
    steps = ("xtick", figure.x_step), ("ytick", figure.y_step)
    options += [f"{axis} distance={step}" for axis, step in steps if step is not None]
    low, high = figure.cut_range()
    options += [f"{end}={value:g}" for end, value in (("ymin", low), ("ymax", high)) if value is not None]
    if figure.words:
        places = ",".join(map(str, range(len(figure.words))))
        options += [f"xtick={{{places}}}", f"xticklabels={{{','.join(f'{{{tex(each)}}}' for each in figure.words)}}}"]
    curves = LIGHT.curves
    used = min(len(figure.lines), len(curves))
    colours = "".join(f"\\definecolor{{h2fdp{at}}}{{HTML}}{{{curves[at].lstrip('#').upper()}}}\n" for at in range(used))
    body = "".join(_line(line, number, figure) for number, line in enumerate(figure.dodged()))
    head = "% \\usepackage{pgfplots} \\pgfplotsset{compat=1.18}\n\\begin{tikzpicture}\n"
    return f"{head}{colours}\\begin{{axis}}[{', '.join(options)}]\n{body}\\end{{axis}}\n\\end{{tikzpicture}}\n"


def tex(text: str) -> str:
    r"""Text for LaTeX; with a formula between dollars it is left as it is.

    >>> tex("test accuracy, %"), tex("$p_c$")
    ('test accuracy, \\%', '$p_c$')
    """
    return text if text.count("$") >= 2 else "".join(_SPECIAL.get(each, each) for each in text)


def _line(line: Line, number: int, figure: PaperFigure) -> str:
    colour = f"h2fdp{number % len(LIGHT.curves)}"
    look = f"color={colour}, {_DASHES[number % len(_DASHES)]}, thick"
    band = ""
    if figure.banded:
        look += ", no marks"
        known = [at for at in range(len(line.x)) if not math.isnan(line.low[at])]
        if known:
            edge = _places([line.x[at] for at in known], [line.high[at] for at in known])
            edge += " " + _places([line.x[at] for at in reversed(known)], [line.low[at] for at in reversed(known)])
            filled = f"\\addplot[draw=none, fill={colour}, fill opacity=0.18, forget plot]"
            band = f"{filled} coordinates {{{edge}}} -- cycle;\n"
        points, bars = _places(line.x, line.mean), ""
    else:
        look += f", mark={_MARKS[number % len(_MARKS)]}, mark options={{solid}}"
        bars = " plot[error bars/.cd, y dir=both, y explicit, error bar style={solid}]"
        points = " ".join(
            f"({x:.6g},{mean:.6g}) +- (0,{0 if math.isnan(high) else high - mean:.4g})"
            for x, mean, high in zip(line.x, line.mean, line.high, strict=True)
        )
    legend = f"\\addlegendentry{{{tex(line.label)}}}\n" if line.label else ""
    return f"{band}\\addplot[{look}]{bars} coordinates {{{points}}};\n{legend}"


def _places(x: Sequence[float], y: Sequence[float]) -> str:
    return " ".join(f"({each:.6g},{height:.6g})" for each, height in zip(x, y, strict=True))
