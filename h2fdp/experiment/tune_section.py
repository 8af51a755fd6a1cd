"""The `tune:` section of an experiment file: ranges to search, what is best, and what the search may reveal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from h2fdp.config import Section
from h2fdp.config.fields import Expect, Positive, Text, shape
from h2fdp.data import DataSection

Cost = Annotated[Literal["joules", "seconds", "bytes"], Expect("one of joules, seconds, bytes")]
Measure = Annotated[
    Literal["accuracy", "joules", "seconds", "bytes"], Expect("one of accuracy, joules, seconds, bytes")
]
Number = Annotated[int | float, Expect("a finite number")]
Ends = Annotated[list[Number], Field(min_length=2, max_length=2), Expect("two numbers, as [2, 60]")]


class Span(Section):
    """Numbers between two ends, whole ones where both ends are.

    Attributes:
        uniform: the ends.
        log: the ends, searched on a logarithmic scale.
    """

    uniform: Ends | None = None
    log: Ends | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_older_words(cls, values: Any) -> Any:
        if isinstance(values, dict) and not values.keys().isdisjoint({"low", "high"}):
            raise ValueError("expected {uniform: [low, high]} or {log: [low, high]}, found low and high as keys")
        return values

    @model_validator(mode="after")
    def _ascending(self) -> Span:
        if (self.uniform is None) == (self.log is None):
            raise ValueError("expected one of {uniform: [low, high]}, {log: [low, high]}")
        if self.low >= self.high:
            raise ValueError(f"expected two ascending numbers, found {self.low:g} and {self.high:g}")
        if self.log is not None and self.low <= 0:
            raise ValueError(f"expected numbers above 0 on a logarithmic scale, found {self.low:g}")
        return self

    @property
    def low(self) -> int | float:
        """The lowest number."""
        return (self.uniform or self.log or [])[0]

    @property
    def high(self) -> int | float:
        """The highest number."""
        return (self.uniform or self.log or [])[1]

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Range = Annotated[
    Annotated[Span, Tag("mapping")] | Annotated[list[Any], Field(min_length=1), Tag("list")],
    Discriminator(shape),
    Expect("a range {uniform: [low, high]} or {log: [low, high]}, or a list of choices"),
]


class TuneSection(Section):
    """`tune:`, a search for the best values of keys.

    Attributes:
        ranges: dotted key -> what may become of it; keys separated by commas have lists of values that go together.
        trials: how many; the mean of a random number under `privacy: account`.
        objective: `accuracy` on the validation records, and costs: `[accuracy, joules]`.
        limits: cost of a whole run -> the most of it; a trial that exceeds it is stopped, and never best. `bytes` are
            those that devices send, as planned.
        privacy: who pays for the search: `account` counts it in epsilon, with `ignore` nobody does.
        stand_in: a `data:` section that trials use instead, so that the search reveals nothing.
    """

    ranges: Annotated[
        dict[Text, Range],
        Field(min_length=1),
        Expect("dotted keys with ranges, as `training.step_size: {log: [0.1, 10]}`"),
    ]
    trials: Annotated[int, Field(ge=2, le=100_000), Expect("a whole number from 2 to 100000")] = 30
    objective: Annotated[list[Measure], Expect("a list of measures, as [accuracy, joules]")] = Field(
        default=["accuracy"]
    )
    limits: Annotated[dict[Cost, Positive], Expect("costs with limits, as {joules: 3}")] = Field(default_factory=dict)
    privacy: Annotated[Literal["account", "ignore"], Expect("account or ignore")] = "account"
    stand_in: DataSection | None = None

    @field_validator("objective", mode="after")
    @classmethod
    def _accuracy_and_costs(cls, value: list[str]) -> list[str]:
        if "accuracy" not in value or len(set(value)) < len(value):
            raise ValueError(f"expected accuracy and costs, each once, found [{', '.join(value)}]")
        return value

    @field_validator("privacy", mode="before")
    @classmethod
    def _no_public(cls, value: Any) -> Any:
        if value == "public":
            raise ValueError("expected account or ignore, or stand_in alone, which is what `public` meant")
        return value

    @property
    def costs(self) -> tuple[str, ...]:
        """The costs that are objectives."""
        return tuple(each for each in self.objective if each != "accuracy")
