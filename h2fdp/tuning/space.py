"""What is searched: the ranges of a `tune:` section, as Optuna's distributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h2fdp.config import Document
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import Setting
from h2fdp.experiment.sections import Span, TuneSection
from h2fdp.sweeps.grid import canonical, values_of_axis

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TUNE, RANGES = "tune", "ranges"
Drawn = int | float  # of a span its value, of choices a place among them

_HELD = "is held by calibration for every setting, never searched over"
_REFUSED = {
    "tune": "cannot be searched over",
    "sweep": "cannot be searched over",
    "name": "cannot be searched over",
    "tracking": "cannot be searched over",
    "runtime": "changes where a run is computed and not what it finds",
    "seed": "is chosen by the search: trials are judged on other draws than final runs",
    "data.validation": "is the same for all trials: data.validation",
    "training.until": "ends runs by their accuracy on test records, which judge nothing here",
    "privacy": _HELD,
    "method.privacy.noise_multiplier": _HELD,
    "method.privacy.noise_std": _HELD,
}


@dataclass(frozen=True)
class Axis:
    """A line of `ranges:`.

    Attributes:
        name: as it is written.
        keys: the dotted keys in it, of which several are set together.
        span: numbers to choose from; None where there are choices.
        choices: a value for each key, each with its place in the file.
        where: its place in the file.
    """

    name: str
    keys: tuple[str, ...]
    span: Span | None
    choices: tuple[tuple[Setting, ...], ...]
    where: str

    def settings(self, drawn: Drawn) -> tuple[Setting, ...]:
        """What a drawn value sets."""
        if self.span is None:
            return self.choices[int(drawn)]
        return (Setting(self.keys[0], int(drawn) if self.span.whole else float(drawn), self.where),)

    def nearest(self, values: Sequence[Any]) -> Drawn | None:
        """What is drawn where the keys have these values, or the end of a span next to them; None where nothing is."""
        if self.span is None:
            choices = [canonical([each.value for each in choice]) for choice in self.choices]
            return choices.index(canonical(list(values))) if canonical(list(values)) in choices else None
        if isinstance(values[0], bool) or not isinstance(values[0], int | float):
            return None
        near = min(max(values[0], self.span.low), self.span.high)
        return round(near) if self.span.whole else float(near)

    @property
    def corners(self) -> tuple[Drawn, ...]:
        """Values that are checked before the search: the ends, or all choices."""
        return (self.span.low, self.span.high) if self.span is not None else tuple(range(len(self.choices)))

    @property
    def distribution(self) -> BaseDistribution:
        """Where Optuna draws from."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.span is None:
            return CategoricalDistribution(list(range(len(self.choices))))
        if self.span.whole:
            return IntDistribution(int(self.span.low), int(self.span.high), log=self.span.log is not None)
        return FloatDistribution(self.span.low, self.span.high, log=self.span.log is not None)


@dataclass(frozen=True)
class Space:
    """All axes, in the order of the file."""

    axes: tuple[Axis, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All dotted keys that are searched."""
        return tuple(key for axis in self.axes for key in axis.keys)

    def settings(self, drawn: Mapping[str, Drawn]) -> tuple[Setting, ...]:
        """What drawn values set, by the names of their axes; of other axes nothing."""
        return tuple(setting for axis in self.axes if axis.name in drawn for setting in axis.settings(drawn[axis.name]))

    def values(self, drawn: Mapping[str, Drawn]) -> dict[str, Any]:
        """Searched key -> the value that it has then."""
        return {setting.key: setting.value for setting in self.settings(drawn)}

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The distributions of all axes, by their names."""
        return {axis.name: axis.distribution for axis in self.axes}

    def draw(self, seed: int) -> dict[str, Drawn]:
        """A point at random, each axis on its own."""
        import optuna

        with quiet_optuna():
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
        return dict(study.ask(self.distributions).params)

    def checked_points(self) -> list[tuple[Axis, dict[str, Drawn]]]:
        """Points to check before the search: each corner of an axis, the others being at their first corners."""
        first = {axis.name: axis.corners[0] for axis in self.axes}
        return [(axis, first | {axis.name: corner}) for axis in self.axes for corner in axis.corners]


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Without Optuna's line about each study; its verbosity is the user's own afterwards."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def space_of(document: Document, section: TuneSection, swept: Sequence[str]) -> Space:
    """The space of a checked section.

    Args:
        swept: keys of the file's `sweep:` section, which is about the final runs.

    Raises:
        UserError: a key that is no key, that comes twice, or that must not be searched.
    """
    axes, problems, seen = [], list[Problem](), set[str]()
    nodes = document.root.content[TUNE].content[RANGES].content
    for name, found in section.ranges.items():
        path = (TUNE, RANGES, name)
        where, keys = document.where(path), tuple(key.strip() for key in name.split(","))
        for key in keys:
            text = "is searched twice" if key in seen else _why_not(key, swept)
            if text:
                problems.append(Problem(text, where, f"{TUNE}.{RANGES}.{key}"))
            seen.add(key)
        if isinstance(found, Span):
            if len(keys) > 1:
                text = f"expected a list with {len(keys)} values in each choice, as the keys go together"
                problems.append(Problem(text, where, ".".join(path)))
            axes.append(Axis(name, keys, found, (), where))
        else:
            choices, mistakes = values_of_axis(keys, nodes[name], ".".join(path))
            problems += mistakes
            axes.append(Axis(name, keys, None, tuple(choices), where))
    if problems:
        raise UserError(problems)
    return Space(tuple(axes))


def _why_not(key: str, swept: Sequence[str]) -> str:
    """Why a key cannot be searched; empty where it can."""
    if not key:
        return "expected a dotted key between commas, found nothing"
    parts = key.split(".")
    prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    refused = next((_REFUSED[each] for each in prefixes if each in _REFUSED), "")
    return refused or ("is in sweep too, which is for the final runs" if key in swept else "")
