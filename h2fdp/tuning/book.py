"""The trials of a search in Optuna's storage, and which come next.

A trial is stored when it has ended, by one line of a journal, so that a search that was killed has it whole or not at
all. What comes next is chosen in batches of a fixed width: each trial by a sampler seeded with its number, in the light
of the trials of earlier batches. So the same seed has the same trials, on however many workers they are computed, and
after any interruption.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from h2fdp.streams import Streams
from h2fdp.tuning.plan import CHECKS, TunePlan
from h2fdp.tuning.space import Drawn
from h2fdp.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

_NAME, _TRIAL = "tune", "h2fdp"
WIDTH = 4  # trials that are chosen together, and can be computed side by side
_STARTUP, _FEWEST_TO_PRUNE = 8, 5


class TrialBook:
    """The trials that have ended.

    Args:
        path: of the journal.
        secret: the key of what is drawn at random, where it must not be known.
        first: values of the first trial, by the names of their axes; the others are drawn for it, too.
    """

    def __init__(self, plan: TunePlan, path: Path, secret: bytes, first: Mapping[str, Drawn]) -> None:
        self._plan, self._streams, self._first = plan, Streams(plan.seed, secret=secret), first
        self._study = _opened(path, _directions(plan))
        self.trials: dict[int, Trial] = {}
        for stored in self._study.get_trials(deepcopy=False):
            trial = Trial(**{"drawn": dict(stored.params), **stored.user_attrs[_TRIAL]})
            self.trials[trial.number] = trial

    def add(self, trial: Trial) -> None:
        """A trial has ended; it is on disk when this returns."""
        self.trials[trial.number] = trial
        self._study.add_trial(_frozen(self._plan, trial))

    def batch_of(self, number: int) -> range:
        """The trials that are chosen together with this one, however many there will be."""
        first = number // WIDTH * WIDTH
        return range(first, first + WIDTH)

    def choose(self, numbers: range) -> dict[int, dict[str, Drawn]]:
        """What the trials of a batch try, by their numbers."""
        drawn = self._drawn(numbers)
        return drawn | ({0: {**drawn[0], **self._first}} if 0 in drawn else {})

    def _drawn(self, numbers: range) -> dict[int, dict[str, Drawn]]:
        if self._plan.price.covered:  # the theorem of the account needs trials that are drawn alike
            return {number: self._plan.space.draw(self._streams.open("", "trial", number)) for number in numbers}
        import optuna

        distributions = {axis.name: axis.distribution for axis in self._plan.space.axes}
        with _quiet():
            study = optuna.create_study(directions=_directions(self._plan))
            study.add_trials([_frozen(self._plan, trial) for trial in self.before(numbers)])
            found: dict[int, dict[str, Drawn]] = {}
            for number in numbers:
                seed = self._streams.key("", "sampler", number) % 2**32
                study.sampler = optuna.samplers.TPESampler(
                    seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_STARTUP
                )
                found[number] = dict(study.ask(distributions).params)
        return found

    def before(self, numbers: range) -> list[Trial]:
        """The trials of earlier batches, in their order."""
        return [self.trials[number] for number in sorted(self.trials) if number < numbers.start]

    def thresholds(self, numbers: range) -> tuple[float, ...]:
        """The accuracy at each check below which a trial of a batch is behind half of the earlier ones."""
        if not self._plan.prunes:
            return ()
        found = []
        for check in range(CHECKS - 1):
            reached = [trial.checks[check] for trial in self.before(numbers) if len(trial.checks) > check]
            if len(reached) < _FEWEST_TO_PRUNE:
                break
            found.append(float(median(reached)))
        return tuple(found)


def _directions(plan: TunePlan) -> list[Any]:
    return ["maximize", *(["minimize"] * len(plan.section.costs))]


def _frozen(plan: TunePlan, trial: Trial) -> optuna.trial.FrozenTrial:
    """A trial as Optuna has it; one over a limit has the objectives that it reached."""
    from optuna.trial import TrialState, create_trial

    told = {key: value for key, value in vars(trial).items() if key != "drawn"}
    told |= {"costs": dict(trial.costs), "checks": list(trial.checks)}
    limits = plan.section.limits.stated()
    values: list[float] | None = None
    if trial.state != "failed":
        values = [trial.accuracy or 0.0, *(trial.costs[name] for name in plan.section.costs)]
    pruned = trial.state == "pruned"
    return create_trial(
        state=TrialState.PRUNED if pruned else TrialState.FAIL if values is None else TrialState.COMPLETE,
        values=None if pruned else values,
        params=dict(trial.drawn),
        distributions={axis.name: axis.distribution for axis in plan.space.axes},
        user_attrs={_TRIAL: told},
        intermediate_values=dict(enumerate(trial.checks)) if pruned else None,
        constraints=trial.over(limits) if limits and values is not None else None,
    )


def _opened(path: Path, directions: Sequence[Any]) -> optuna.Study:
    """The study of a journal, from which what a kill left unfinished is removed; nobody else has it open."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    if path.is_file():
        written = path.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            path.write_bytes(written[:whole])
    with _quiet():
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(storage=storage, study_name=_NAME, directions=directions, load_if_exists=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's lines about studies and experimental options."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
