"""A Sphinx extension: formulas as pictures inside the page, drawn by matplotlib, so that pages need no network."""

import re
from functools import cache
from html import escape
from typing import Any

from docutils import nodes
from matplotlib import rc_context
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from sphinx.application import Sphinx

_SIZE = 100.0  # units of an em
_STYLE: dict[Any, Any] = {"mathtext.fontset": "stix", "font.size": _SIZE}
_NOT_KNOWN = {  # to matplotlib, and what says the same
    r"\lVert": r"\Vert ",
    r"\rVert": r"\Vert ",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\Big": "",
    r"\big": "",
    r"\qquad": r"\quad\quad",
    r"\_": "_",
}
_WORDS = re.compile(r"\\(le|ge)(?![a-zA-Z])")
_TEXTS = re.compile(r"\\(?:texttt|text)\{((?:[^{}]|\\_)*)\}")
_BARE = re.compile(r"\\(sqrt|bar|hat|tilde|frac)(?=[\s\\])\s*(\\[a-zA-Z]+|\w)(?:\s*(\\[a-zA-Z]+|\w))?")
_COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}


def known(formula: str) -> str:
    """A formula in the words that matplotlib knows."""
    texts: list[str] = []

    def kept(found: re.Match[str]) -> str:
        texts.append(r"\mathrm{" + found[1].replace(r"\_", "_").replace(" ", r"\ ").replace("_", r"\_") + "}")
        return f"@{len(texts) - 1}@"

    formula = _TEXTS.sub(kept, " ".join(formula.split()))
    for word, other in _NOT_KNOWN.items():
        formula = re.sub(re.escape(word) + r"(?![a-zA-Z])", other.replace("\\", r"\\"), formula)
    formula = _BARE.sub(_braced, _WORDS.sub(r"\\\1q", formula))
    return re.sub(r"@(\d+)@", lambda found: texts[int(found[1])], formula)


def _braced(found: re.Match[str]) -> str:
    """`\\sqrt d` as `\\sqrt{d}`, `\\frac\\delta\\beta` as `\\frac{\\delta}{\\beta}`."""
    name, first, second = found.groups()
    if name == "frac":
        return rf"\frac{{{first}}}{{{second}}}"
    return rf"\{name}{{{first}}}{'' if second is None else ' ' + second}"


@cache
def svg(formula: str) -> str:
    """A formula as a picture in the colour and about the size of the text around it."""
    text = f"${known(formula)}$"
    with rc_context(_STYLE):
        font = FontProperties(size=_SIZE)
        parsed = MathTextParser("path").parse(text, 72, font)
        path = TextPath((0, 0), text, size=_SIZE, prop=font)
    steps = []
    for vertices, code in path.iter_segments(simplify=False, curves=True):
        points = " ".join(f"{value:.1f}" for value in vertices)
        steps.append(_COMMANDS[code] + ("" if code == Path.CLOSEPOLY else points))
    width, height, depth = (float(each) / _SIZE for each in (parsed.width, parsed.height, parsed.depth))
    box = f"0 {-(height - depth) * _SIZE:.1f} {width * _SIZE:.1f} {height * _SIZE:.1f}"
    style = f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{-depth:.3f}em;overflow:visible"
    label = escape(" ".join(formula.split()), quote=True)
    drawn = f'<path transform="scale(1,-1)" fill="currentColor" d="{"".join(steps)}"/>'
    return f'<svg role="img" aria-label="{label}" viewBox="{box}" style="{style}">{drawn}</svg>'


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{svg(node.astext())}</span>')
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    lines = [line for line in re.split(r"\\\\", node.astext()) if line.strip()]
    drawn = "<br/>".join(svg(line.replace("&", "")) for line in lines)
    translator.body.append(f'<div class="math" style="text-align:center;margin:1em 0;overflow-x:auto">{drawn}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("offline", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
