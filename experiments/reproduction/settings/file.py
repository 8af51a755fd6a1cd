"""The schema of `settings.yaml`: axes, which settings are kept, and what is run in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from experiments.reproduction.points import At
from experiments.reproduction.settings.design import Axes, Design
from h2fdp.config import Section, check, read_document
from h2fdp.config.fields import Count, Expect, Number, Text, Whole
from h2fdp.errors import UserError, not_one_of

SETTINGS = "settings.yaml"
Keys = Annotated[dict[Text, Any], Expect("dotted keys with values")]
Seeds = Annotated[list[Whole], Field(min_length=1), Expect("a list of seeds")]


class Stage(Section):
    """The seeds and the length of runs."""

    seeds: Seeds
    intervals: Count


class Trial(Stage):
    """The runs that say whether training works in a setting.

    Attributes:
        figure: whose sweep they are of.
        sweep: what is swept besides the seed.
    """

    figure: Text
    sweep: Keys


class Requirement(Section):
    """What the runs at a point must reach.

    Attributes:
        least: final accuracy, in points.
        otherwise: what is to be said of a setting that does not reach it.
    """

    at: At
    least: Number
    otherwise: Text


class Confirmation(Stage):
    """What is repeated.

    Attributes:
        plausible: the point whose accuracy says how plausible a setting is.
        chosen_by: the figures whose claims say how favourable a setting is; null for all that are repeated.
        seeds_of: figure -> other seeds, of runs that take longer.
        among: how many settings that work, in the order of the design, are chosen from; null for all. A design can grow
            without its chosen settings being others.
        accounted: figure -> what is swept for noise by account; by formula, it is what the other runs sweep.
    """

    plausible: At
    changes: Keys = Field(default_factory=dict)
    figures: Annotated[list[Text], Field(min_length=1), Expect("a list of figures")]
    chosen_by: Annotated[list[Text], Field(min_length=1), Expect("a list of figures")] | None = None
    seeds_of: dict[Text, Seeds] = Field(default_factory=dict)
    among: Count | None = None
    accounted: dict[Text, Keys] = Field(default_factory=dict)

    @property
    def choosing(self) -> list[str]:
        """The figures by which settings are chosen."""
        return self.figures if self.chosen_by is None else self.chosen_by


class Decisions(Stage):
    """Settings of figures that show only what the controller decides.

    Attributes:
        figures: figure -> the swept column whose values the axis `weight` replaces.
    """

    design: Design
    axes: Axes
    changes: Keys = Field(default_factory=dict)
    figures: Annotated[dict[Text, Text], Field(min_length=1), Expect("figures with a column of their sweep")]


class SettingsFile(Section):
    """The whole file.

    Attributes:
        products: name -> axes whose product is looked at like an axis.
        changes: of every run.
        figures: figure -> what is swept besides the seed.
        screen: the seeds and the length of the runs in all settings.
    """

    design: Design
    axes: Axes
    products: dict[Text, list[Text]] = Field(default_factory=dict)
    changes: Keys = Field(default_factory=dict)
    trial: Trial
    works: Annotated[list[Requirement], Field(min_length=1), Expect("a list of requirements")]
    figures: Annotated[dict[Text, Keys], Field(min_length=1), Expect("figures with what is swept")]
    screen: Stage
    confirm: Confirmation | None = None
    decisions: Decisions | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> SettingsFile:
        above: list[str] = []
        for name, axis in self.axes.items():
            if axis.over is not None and axis.over not in above:
                raise ValueError(f"axes.{name}.over: expected an axis above this one, found {axis.over}")
            above.append(name)
        for name, factors in self.products.items():
            for factor in factors:
                if factor not in self.axes:
                    raise ValueError(f"products.{name}: {not_one_of(factor, list(self.axes))}")
        again = self.confirm
        named: dict[str, Iterable[str]] = {}
        if again is not None:
            named = {key: getattr(again, key) or () for key in ("figures", "chosen_by", "seeds_of", "accounted")}
        for key, figures in named.items():
            for figure in figures:
                if figure not in self.figures:
                    raise ValueError(f"confirm.{key}: {not_one_of(figure, list(self.figures))}")
        return self


def read_settings(folder: Path) -> SettingsFile:
    """The settings of a folder of experiments.

    Raises:
        UserError: there are none; every problem of the file.
    """
    if not (folder / SETTINGS).is_file():
        raise UserError(f"no {SETTINGS} here; expected the experiments folder of a checkout of h2fdp", str(folder))
    return check(SettingsFile, read_document(folder / SETTINGS))
