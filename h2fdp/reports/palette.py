"""Colours, dashes and markers of every figure, on screen and on paper.

Six colours that stay apart (CIE76 distance of at least 18) for normal, protan, deutan and tritan eyes, on white and on
a dark page, the first ones from Okabe and Ito's palette; each has a dash and a marker of its own, so that nothing is
said by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")


@dataclass(frozen=True)
class Theme:
    """The colours of a page.

    Attributes:
        curves: of curves, in order.
        trusted, secure_sum, untrusted: as topologies are drawn.
    """

    surface: str
    card: str
    ink: str
    faint: str
    grid: str
    accent: str
    curves: tuple[str, ...]
    trusted: str
    secure_sum: str
    untrusted: str

    def tokens(self) -> dict[str, str]:
        """Names of CSS custom properties, without the dashes, and their values."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, str)}
        return plain | {f"curve{number}": colour for number, colour in enumerate(self.curves)}


LIGHT = Theme(
    surface="#f4f5f7",
    card="#ffffff",
    ink="#1b1e23",
    faint="#545b66",
    grid="#dfe2e7",
    accent="#0060a0",
    curves=("#0072B2", "#D55E00", "#111111", "#CC79A7", "#332288", "#882255"),
    trusted="#0072B2",
    secure_sum="#009E73",
    untrusted="#D55E00",
)
DARK = Theme(
    surface="#0e1014",
    card="#15181d",
    ink="#e8eaee",
    faint="#a8afbb",
    grid="#30353e",
    accent="#7cc4f2",
    curves=("#56B4E9", "#FF8F3F", "#FFFFFF", "#C870A8", "#F0E442", "#B9E3FF"),
    trusted="#56B4E9",
    secure_sum="#3CCFA5",
    untrusted="#FF8F3F",
)
