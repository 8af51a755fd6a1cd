"""The `tune:` section of an experiment file: ranges to search, what is best, and what the search may reveal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from h2fdp.config import Section
from h2fdp.config.fields import Expect, Flag, Positive, Text, shape
from h2fdp.data import DataSection

Cost = Annotated[Literal["joules", "seconds", "bytes"], Expect("one of joules, seconds, bytes")]
Accuracy = Annotated[Literal["accuracy", "validation accuracy"], Expect("accuracy")]


class Span(Section):
    """Numbers from `low` to `high`, whole ones where both ends are.

    Attributes:
        low: the lowest number.
        high: the highest number.
        log: search on a logarithmic scale.
    """

    low: Annotated[int | float, Expect("a finite number")]
    high: Annotated[int | float, Expect("a finite number")]
    log: Flag = False

    @model_validator(mode="after")
    def _ascending(self) -> Span:
        if self.low > self.high:
            raise ValueError(f"expected low of at most high, found {self.low:g} and {self.high:g}")
        if self.low == self.high:
            raise ValueError(f"low and high are both {self.low:g}; state the value in its own section instead")
        if self.log and self.low <= 0:
            raise ValueError(f"expected low above 0 with log: true, found {self.low:g}")
        return self

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Range = Annotated[
    Annotated[Span, Tag("mapping")] | Annotated[list[Any], Field(min_length=1), Tag("list")],
    Discriminator(shape),
    Expect("a range {low, high, log} or a list of choices"),
]


class Goals(Section):
    """Several objectives: accuracy on validation records, and costs.

    Attributes:
        maximize: accuracy on the validation records.
        minimize: one cost, or a list of costs.
    """

    maximize: Accuracy = "accuracy"
    minimize: Annotated[
        Annotated[Cost, Tag("scalar")] | Annotated[list[Cost], Field(min_length=1), Tag("list")],
        Discriminator(shape),
        Expect("one of joules, seconds, bytes, or a list of these"),
    ]

    @field_validator("minimize")
    @classmethod
    def _distinct(cls, value: str | list[str]) -> str | list[str]:
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError("a cost comes twice")
        return value


class Limits(Section):
    """Costs that a setting must not exceed; one that does is stopped, and never best.

    Attributes:
        joules: energy of the whole run.
        seconds: time of the whole run on the simulated clock.
        bytes: that devices send in the whole run, as planned.
    """

    joules: Positive | None = None
    seconds: Positive | None = None
    bytes: Positive | None = None

    def stated(self) -> dict[str, float]:
        """Cost -> limit."""
        return {name: limit for name in Limits.model_fields if (limit := getattr(self, name)) is not None}


class TuneSection(Section):
    """`tune:`, a search for the best values of keys.

    Attributes:
        ranges: dotted key -> what may become of it; keys separated by commas have lists of values that go together.
        trials: how many; the mean of a random number under `privacy: account`.
        limits: on costs, of a whole run.
        validation: the share of each device's training records that trials are judged on.
        privacy: who pays for the search: `account` counts it in epsilon, with `public` trials use stand-in data alone,
            with `ignore` nobody does.
        stand_in: a `data:` section for trials under `public`.
        objective: `accuracy` on the validation records, or it and costs: `{maximize: accuracy, minimize: joules}`.
    """

    ranges: Annotated[
        dict[Text, Range], Field(min_length=1), Expect("dotted keys with ranges, as `training.step_size: {low, high}`")
    ]
    trials: Annotated[int, Field(ge=2, le=100_000), Expect("a whole number from 2 to 100000")] = 30
    objective: Annotated[
        Annotated[Accuracy, Tag("scalar")] | Annotated[Goals, Tag("mapping")],
        Discriminator(shape),
        Expect("accuracy or {maximize: accuracy, minimize: joules}"),
    ] = "accuracy"
    limits: Limits = Limits()
    validation: Annotated[float, Field(gt=0, lt=1), Expect("a number above 0 and below 1")] = 0.1
    privacy: Annotated[Literal["account", "public", "ignore"], Expect("one of account, public, ignore")] = "account"
    stand_in: DataSection | None = None

    @property
    def costs(self) -> tuple[str, ...]:
        """The costs that are objectives."""
        if not isinstance(self.objective, Goals):
            return ()
        least = self.objective.minimize
        return (least,) if isinstance(least, str) else tuple(least)
