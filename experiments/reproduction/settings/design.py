"""Settings of what a paper leaves open: points of a scrambled Sobol sequence, on log scales.

The first n points of the sequence are among its first m > n, so that a design is extended without a setting lost.
(Sobol 1967; Owen's scrambling as in `scipy.stats.qmc`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator
from scipy.stats import qmc

from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect, Flag, Positive, Text, Whole

_SEQUENCE = 1024  # drawn at once, a power of two: fewer settings are the beginning of more
Setting = dict[str, Any]


class Axis(Section):
    """The values of one parameter.

    Attributes:
        least: and `most`, between which values are drawn by their logarithm.
        whole: rounded to a whole number.
        over: an axis above this one: drawn is the product of both.
        of: instead of these, a list of values.
        figures: to which alone it matters; null for all.
    """

    least: Positive | None = None
    most: Positive | None = None
    whole: Flag = False
    over: Text | None = None
    of: Annotated[list[Any], Field(min_length=2), Expect("a list of at least two values")] | None = None
    figures: Annotated[list[Text], Expect("a list of figures")] | None = None

    def matters_to(self, figure: str) -> bool:
        """Whether it does anything to a figure's runs."""
        return self.figures is None or figure in self.figures

    @model_validator(mode="after")
    def _one_kind(self) -> Axis:
        if self.of is not None and (self.least is not None or self.most is not None or self.whole or self.over):
            raise ValueError("expected `of:` alone, or `least:` and `most:`")
        if self.of is None and (self.least is None or self.most is None or self.least >= self.most):
            raise ValueError("expected `of:`, or `least:` below `most:`")
        return self

    def value(self, share: float, setting: Mapping[str, Any]) -> Any:
        """The value at a share of the axis, 0 to below 1; numbers have three digits.

        >>> [Axis(least=1, most=100, whole=True).value(share, {}) for share in (0, 0.5, 0.999)]
        [1, 10, 100]
        >>> Axis(least=0.01, most=1, over="clip").value(0.5, {"clip": 4}), Axis(of=["a", "b"]).value(0.5, {})
        (0.025, 'b')
        """
        if self.of is not None:
            return self.of[int(share * len(self.of))]
        assert self.least is not None, "checked above"
        assert self.most is not None, "checked above"
        value = self.least * (self.most / self.least) ** share
        if self.over is not None:
            value /= setting[self.over]
        return round(value) if self.whole else float(f"{value:.3g}")


Axes = Annotated[dict[Text, Axis], Field(min_length=1), Expect("parameters with axes")]


class Design(Section):
    """How many settings are drawn.

    Attributes:
        settings: at most.
        working: no more are tried once training works in so many; null tries all.
    """

    seed: Whole
    settings: Annotated[int, Field(ge=1, le=_SEQUENCE), Expect(f"a whole number from 1 to {_SEQUENCE}")]
    working: Count | None = None


def drawn(design: Design, axes: Mapping[str, Axis]) -> list[Setting]:
    """The settings of a design, in its order.

    >>> axes = {"clip": Axis(least=1, most=10), "count": Axis(of=[1, 3])}
    >>> few, more = (drawn(Design(seed=1, settings=settings), axes) for settings in (2, 5))
    >>> few == more[:2]
    True
    """
    shares = qmc.Sobol(len(axes), scramble=True, seed=design.seed).random(_SEQUENCE)
    found: list[Setting] = []
    for row in shares[: design.settings]:
        setting: Setting = {}
        for (name, axis), share in zip(axes.items(), row, strict=True):
            setting[name] = axis.value(float(share), setting)
        found.append(setting)
    return found
