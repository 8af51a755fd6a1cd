"""A tuning as it was read: its space, its price and its trials, checked before any of them starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import yaml

from h2fdp.config import Document
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import Setting, named_document, parse_setting
from h2fdp.experiment.sections import ExperimentFile, TuneSection
from h2fdp.records.summary import hash_of
from h2fdp.run.identity import package_digest
from h2fdp.streams import Streams
from h2fdp.sweeps.study import SharedInputs, written_out
from h2fdp.tuning.price import Price, price_of
from h2fdp.tuning.space import RANGES, TUNE, Drawn, Space, space_of

CHECKS = 4  # times that a trial is judged: at each quarter of its intervals
_REDRAWN = 5
_SEEDS = 2**31 - 1
_VALIDATION = 0.1  # the share of training records that judge trials, where the file holds none out
EXPECTED = "expected ranges, as `ranges: {training.step_size: {log: [0.1, 10]}}`"


@dataclass(frozen=True)
class TunePlan:
    """A tuning.

    Attributes:
        settings: of the command line, but for those of `tune`, which are in the document.
        config: the file's own experiment, as it is without a search.
        final_seeds: of runs that the search must not have seen.
    """

    name: str
    document: Document
    settings: tuple[Setting, ...]
    section: TuneSection
    space: Space
    price: Price
    config: ExperimentFile
    final_seeds: frozenset[int]

    @property
    def directory(self) -> Path:
        """Where it goes by default."""
        return Path("tunes") / self.name

    @property
    def seed(self) -> int:
        """Of all trials; no final run has it, for settings must be judged on other draws."""
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
            intervals: that it has, where known: it is judged at each quarter of them.
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
        """What the values of a trial change in the document, for a final run."""
        return (*self.settings, *self.space.settings(drawn))

    def text(self) -> str:
        """The tuning as a self-contained file."""
        return yaml.safe_dump(written_out(self.document, self.settings), sort_keys=False, width=120)

    def digest(self) -> str:
        """Equal for tunings that have the same trials, as far as each has them."""
        values = yaml.safe_load(self.text())
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
    finals = frozenset([config.seed, *_swept_seeds(config)])
    free = Price("ignore", section.trials)  # prices follow from configurations, and these from the space
    plan = TunePlan(config.name, document, tuple(base), section, space, free, config, finals)
    return replace(plan, price=price_of(section, _checked_corners(plan, shared), document))


def _swept_seeds(config: ExperimentFile) -> list[int]:
    for keys, values in config.sweep.items():
        names = [key.strip() for key in keys.split(",")]
        if "seed" in names:
            place = names.index("seed")
            return [each[place] if len(names) > 1 else each for each in values]
    return []


def _checked_corners(plan: TunePlan, shared: SharedInputs) -> list[ExperimentFile]:
    """The configurations at the corners of the space that have one.

    Values may exclude each other; a value is refused if it never fits, whatever the others are.
    """
    found: list[ExperimentFile] = []
    problems: dict[tuple[str, str, str], Problem] = {}
    others = [plan.space.draw(seed) for seed in range(_REDRAWN)]
    for axis, point in plan.space.checked_points():
        config, wrong = _tried(plan, point, shared)
        if config is not None:
            found.append(config)
            continue
        persistent = wrong.intersection(
            *(_tried(plan, other | {axis.name: point[axis.name]}, shared)[1] for other in others)
        )
        problems |= {(each.where, each.key, each.text): each for each in wrong & persistent}
    if problems:
        raise UserError(problems.values())
    if not found:
        text = "no values were found that fit each other; expected ranges of which some combination is an experiment"
        raise UserError(text, plan.document.where((TUNE, RANGES)), f"{TUNE}.{RANGES}")
    return found


def _tried(
    plan: TunePlan, point: Mapping[str, Drawn], shared: SharedInputs
) -> tuple[ExperimentFile | None, set[Problem]]:
    try:
        return shared.experiment(plan.document, plan.trial_settings(point, 0))[0], set()
    except UserError as error:
        return None, set(error.problems)
