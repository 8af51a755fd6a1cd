"""The schema of `figures.yaml`: which study each figure needs, its variants, and what its panels show."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from experiments.reproduction.measures import MEASURES
from experiments.reproduction.points import At, Ladder
from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect, Flag, Number, Text
from h2fdp.errors import not_one_of

Column = Literal["claimed", "accounted"]
COLUMNS: dict[Column, str] = {
    "claimed": "noise by formula",
    "accounted": "noise by account",
}
Keys = Annotated[dict[Text, Any], Expect("dotted keys with values")]


def _known_measure(name: str) -> str:
    if name not in MEASURES:
        raise ValueError(not_one_of(name, list(MEASURES)))
    return name


class Line(Section):
    """A curve or a bar: a point under a label."""

    label: Text
    at: At


class LadderLine(Section):
    """A line over the points of a ladder."""

    label: Text
    points: Ladder


class Curves(Section):
    """Accuracy over intervals, a curve for each point, with its interval over seeds."""

    kind: Literal["curves"]
    title: Text | None = None
    lines: Annotated[list[Line], Field(min_length=1), Expect("a list of lines")]


class Bars(Section):
    """A measure of several points side by side."""

    kind: Literal["bars"]
    title: Text | None = None
    measure: Text
    target: Number
    lines: Annotated[list[Line], Field(min_length=1), Expect("a list of lines")]

    _measure = field_validator("measure")(_known_measure)


class LadderPanel(Section):
    """A measure over the points of ladders; `x` are the points' places, under the words `axis`."""

    kind: Literal["levels"]
    title: Text | None = None
    measure: Text
    axis: Text
    x: Annotated[list[Number], Field(min_length=2), Expect("a list of at least two numbers")]
    log: Flag = False
    lines: Annotated[list[LadderLine], Field(min_length=1), Expect("a list of lines")]

    _measure = field_validator("measure")(_known_measure)


def _kind(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


Panel = Annotated[
    Annotated[Curves, Tag("curves")] | Annotated[Bars, Tag("bars")] | Annotated[LadderPanel, Tag("levels")],
    Discriminator(_kind),
    Expect("a panel of kind curves, bars or levels"),
]


class DataSet(Section):
    """A data set on which figures are made, and what it changes.

    Attributes:
        like: another one, whose figures and claims are this one's too: the same data under another model. It is shown
            where it has runs.
        page: a page of its own, which has its pictures and details; others have its verdicts at most.
    """

    title: Text
    like: Text | None = None
    set: Keys = Field(default_factory=dict)
    page: Text | None = None


class Figure(Section):
    """A figure, or a table of results.

    Attributes:
        file: its sweep.
        table: instead of a sweep, a CSV of runs that a program of its own made (`results.from_table`).
        keys: the columns of the table that points name.
        looks: how often its runs were looked at to decide whether to add seeds: intervals keep their confidence over
            all of these looks.
        apart: of another paper than the others, and made by its name only.
        decided: only what the controller decides is wanted, which no training changes.
        data_sets: on which the paper shows it.
        quick: changes for `--quick`, after the general ones.
        accounted: changes for equal accounted epsilon, instead of the general ones.
        one_column: why there is no column of them, where it would say nothing.
        fitted: why they serve the first data set at full length only.
    """

    file: Text | None = None
    table: Text | None = None
    keys: Annotated[list[Text], Expect("a list of columns")] = Field(default_factory=list)
    looks: Count = 1
    apart: Flag = False
    title: Text
    decided: Flag = False
    data_sets: Annotated[list[Text], Field(min_length=1), Expect("a list of data sets")]
    quick: Keys = Field(default_factory=dict)
    accounted: Keys | None = None
    one_column: Text | None = None
    fitted: Text | None = None
    panels: Annotated[list[Panel], Expect("a list of panels")] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_source(self) -> Figure:
        if (self.file is None) == (self.table is None):
            raise ValueError("expected one of file and table")
        if (self.table is None) != (not self.keys):
            raise ValueError("expected table and keys together")
        if self.file is not None and not self.panels:
            raise ValueError("panels: expected a list of panels, found none")
        return self


class FiguresFile(Section):
    """All figures, and the changes that their variants have in common."""

    quick: Keys
    accounted: Keys
    data_sets: dict[Text, DataSet]
    figures: dict[Text, Figure]
