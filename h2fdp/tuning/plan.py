"""A tuning as it was read: its space as Optuna's distributions, its price and its trials, all checked beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2fdp.config import Document
from h2fdp.config.parsing import text_of, values_of
from h2fdp.data.targets import MEASURED
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import Setting, Settings, named_document, parse_setting
from h2fdp.experiment.sections import ExperimentFile, Span, TuneSection
from h2fdp.network import Topology
from h2fdp.records.atomic import hash_of
from h2fdp.run.identity import package_digest
from h2fdp.streams import Streams
from h2fdp.sweeps.grid import canonical, values_of_axis
from h2fdp.sweeps.plan import SharedInputs, written_out
from h2fdp.tuning.price import TUNE, Price, price_of
from h2fdp.wording import SCORES

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RANGES = "ranges"
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
    "training.until": "ends runs by their scores on test records, which judge nothing here",
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
        """The settings of a drawn value."""
        if self.span is None:
            return self.choices[int(drawn)]
        return (Setting(self.keys[0], int(drawn) if self.span.whole else float(drawn), self.where),)

    def nearest(self, values: Sequence[Any]) -> Drawn | None:
        """The draw that gives the keys these values, or the end of a span nearest to them; None where there is none."""
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
        """The distribution from which Optuna draws."""
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
        """The settings of drawn values, by the names of their axes; of other axes none."""
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
    """Silence Optuna's line about each study; its verbosity is the user's own afterwards."""
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
    for name, range_ in section.ranges.items():
        path = (TUNE, RANGES, name)
        where, keys = document.where(path), tuple(key.strip() for key in name.split(","))
        for key in keys:
            text = "is searched twice" if key in seen else _why_not(key, swept)
            if text:
                problems.append(Problem(text, where, f"{TUNE}.{RANGES}.{key}"))
            seen.add(key)
        if isinstance(range_, Span):
            if len(keys) > 1:
                text = f"expected a list with {len(keys)} values in each choice, as the keys go together"
                problems.append(Problem(text, where, ".".join(path)))
            axes.append(Axis(name, keys, range_, (), where))
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


CHECKS = 4  # times that a trial is judged: at each quarter of its intervals
_REDRAWN = 5
_SEEDS = 2**31 - 1
_VALIDATION = 0.1  # the share of training records that judge trials, where the file holds none out
EXPECTED = "expected ranges, as `ranges: {training.step_size: {log: [0.1, 10]}}`"


@dataclass(frozen=True)
class TunePlan:
    """A tuning.

    Attributes:
        shared: what its trials share, which makes their experiments.
        settings: of the command line, but for those of `tune`, which are in the document.
        config: the file's own experiment, as it is without a search.
        final_seeds: of runs that the search must not have seen.
    """

    name: str
    document: Document
    shared: SharedInputs
    settings: tuple[Setting, ...]
    section: TuneSection
    space: Space
    price: Price
    config: ExperimentFile
    final_seeds: frozenset[int]

    def experiment(self, settings: Settings) -> tuple[ExperimentFile, Topology]:
        """The experiment and network of the document with these settings.

        Raises:
            UserError: values that are wrong, or exclude each other.
        """
        return self.shared.experiment(self.document, settings)

    @property
    def measure(self) -> str:
        """The score of `SCORES` that trials are judged by, on validation records."""
        return self.section.score

    def measured(self, score: float | None) -> float | None:
        """The value of the measure of a trial's score, which is larger the better."""
        return None if score is None else SCORES[self.measure].signed(score)

    @property
    def directory(self) -> Path:
        """The directory of the search by default."""
        return Path("tunes") / self.name

    @property
    def seed(self) -> int:
        """The seed of all trials; no final run has it, for settings must be judged on other draws."""
        return next(seed for seed in count(101) if seed not in self.final_seeds)

    @property
    def prunes(self) -> bool:
        """Whether trials that are behind are stopped: not where that would be a release, or one of several costs."""
        return not self.price.covered and not self.section.costs

    def trial_seed(self, number: int) -> int:
        """The seed of a trial's run.

        It is the same for all, so that they have the same network and records, but where the seed determines the noise
        and the account needs noise of its own in each.
        """
        if not (self.price.covered and self.config.privacy.noise_key == "seed"):
            return self.seed
        streams, attempt = Streams(self.seed), 0
        while (seed := streams.key("", "trial seed", number, attempt) % _SEEDS) in self.final_seeds:
            attempt += 1
        return seed

    def trial_settings(
        self, drawn: Mapping[str, Drawn], number: int, intervals: int | None = None
    ) -> tuple[Setting, ...]:
        """Everything that a trial changes in the document.

        Args:
            intervals: of the trial, which is judged at each quarter of them; None where the caller has no number.
        """
        own: list[Setting] = []
        where = self.document.where((TUNE,))
        data = self.section.stand_in or self.config.data
        if self.section.stand_in is not None:
            stated = self.document.values()[TUNE]["stand_in"]
            own.append(Setting("data", {"name": stated} if isinstance(stated, str) else stated, where))
        if not getattr(data, "validation", 0):
            own.append(Setting("data.validation", _VALIDATION, where))
        own += [Setting("seed", self.trial_seed(number), where), Setting("tracking.tensorboard", False, where)]
        if self.config.training.until is not None:  # test records judge no trial
            own.append(Setting("training.until", None, where))
        if intervals is not None:
            own.append(Setting("training.evaluate_every", -(-intervals // CHECKS), where))
        return (*self.final_settings(drawn), *own)

    def final_settings(self, drawn: Mapping[str, Drawn]) -> tuple[Setting, ...]:
        """The settings of a final run: those of the search, and the values of a trial."""
        return (*self.settings, *self.space.settings(drawn))

    def text(self) -> str:
        """The tuning as a self-contained file."""
        return text_of(written_out(self.document, self.settings))

    def digest(self) -> str:
        """Equal for tunings that have the same trials, as far as each has them."""
        values = values_of(self.text())
        if not self.price.covered:  # where they are, the noise of each trial is made for their number
            values[TUNE].pop("trials", None)  # trials are chosen in the light of earlier ones alone
        values.pop("runtime", None)
        values.pop("tracking", None)
        return hash_of([json.dumps(values, sort_keys=True), self.config.runtime.engine, package_digest()])


def read_plan(path: Path, settings: Sequence[str], shared: SharedInputs) -> TunePlan:
    """Read a tuning and check it; settings as `--set` takes them, those of `tune.` change the search.

    Raises:
        UserError: every problem that shows before a trial.
    """
    document, base = named_document(path), list[Setting]()
    for setting in (parse_setting(text) for text in settings):
        first, _, rest = setting.key.partition(".")
        inner, _, axis = rest.partition(".")
        if first == TUNE and inner == RANGES and axis:  # below it, the rest is one key, dots and all
            document.put([TUNE, RANGES, axis], setting.value, setting.where, setting.key)
        elif first == TUNE:
            document.set(setting.key, setting.value, setting.where)
        else:
            base.append(setting)
    content = document.root.content
    if not isinstance(content, dict) or TUNE not in content:
        raise UserError(f"the section is missing; {EXPECTED}", document.name, TUNE)
    if not content[TUNE].content:
        raise UserError(f"the section is empty; {EXPECTED}", document.where((TUNE,)), TUNE)
    config, _ = shared.experiment(document, base)
    section = config.tune
    assert section is not None, "the document has one"
    swept = [key.strip() for keys in config.sweep for key in keys.split(",")]
    space = space_of(document, section, swept)
    if problems := [
        Problem(f"is searched; expected --set {TUNE}.{RANGES}.{setting.key}=...", setting.where, setting.key)
        for setting in base
        if setting.key in space.keys
    ]:
        raise UserError(problems)
    if section.stand_in is not None and (own := [key for key in space.keys if key.partition(".")[0] == "data"]):
        text = "is searched, and trials have the data of tune.stand_in instead"
        raise UserError(text, document.where((TUNE, RANGES)), f"{TUNE}.{RANGES}.{own[0]}")
    data = section.stand_in or config.data
    measured = MEASURED[getattr(data, "stated_task", "classification")]
    if "objective" not in section.model_fields_set:
        section = section.model_copy(update={"objective": [measured[0]]})
    if section.score not in measured:
        text = f"expected {' or '.join(measured)}, which is measured of such labels (data.task), found {section.score}"
        raise UserError(text, document.where((TUNE, "objective")), f"{TUNE}.objective")
    finals = frozenset([config.seed, *_swept_seeds(config)])
    free = Price("ignore", section.trials)  # prices follow from configurations, and these from the space
    plan = TunePlan(config.name, document, shared, tuple(base), section, space, free, config, finals)
    return replace(plan, price=price_of(section, _checked_corners(plan), document))


def _swept_seeds(config: ExperimentFile) -> list[int]:
    for keys, values in config.sweep.items():
        names = [key.strip() for key in keys.split(",")]
        if "seed" in names:
            place = names.index("seed")
            return [each[place] if len(names) > 1 else each for each in values]
    return []


def _checked_corners(plan: TunePlan) -> list[tuple[ExperimentFile, Topology]]:
    """The configurations and networks at the corners of the space that have one.

    Values may exclude each other; a value is refused if it never fits, whatever the others are.
    """
    files: list[tuple[ExperimentFile, Topology]] = []
    problems: dict[tuple[str, str, str], Problem] = {}
    others = [plan.space.draw(seed) for seed in range(_REDRAWN)]
    for axis, point in plan.space.checked_points():
        found, wrong = _tried(plan, point)
        if found is not None:
            files.append(found)
            continue
        persistent = wrong.intersection(*(_tried(plan, other | {axis.name: point[axis.name]})[1] for other in others))
        problems |= {(each.where, each.key, each.text): each for each in wrong & persistent}
    if problems:
        raise UserError(problems.values())
    if not files:
        text = "no values were found that fit each other; expected ranges of which some combination is an experiment"
        raise UserError(text, plan.document.where((TUNE, RANGES)), f"{TUNE}.{RANGES}")
    return files


def _tried(plan: TunePlan, point: Mapping[str, Drawn]) -> tuple[tuple[ExperimentFile, Topology] | None, set[Problem]]:
    try:
        return plan.experiment(plan.trial_settings(point, 0)), set()
    except UserError as error:
        return None, set(error.problems)
