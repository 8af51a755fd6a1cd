"""Carry out a search: make the trials that are left, find the best, write the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.directory import locked
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.section import usable_cpus
from h2fdp.streams import Streams
from h2fdp.sweeps.pool import Pool, WorkOptions
from h2fdp.sweeps.study import SharedInputs
from h2fdp.sweeps.task import Outcome
from h2fdp.tuning.book import WIDTH, TrialBook
from h2fdp.tuning.directory import TuneDirectory, check_usable, secret_of, write_state
from h2fdp.tuning.plan import TunePlan
from h2fdp.tuning.results import write_results
from h2fdp.tuning.search import Search
from h2fdp.tuning.space import Drawn


@dataclass(frozen=True)
class Searched:
    """How far a search came.

    Attributes:
        finished: all trials have ended.
        crashes: the trials that failed by no mistake of the user, which the same command tries again.
    """

    finished: bool
    crashes: Mapping[int, Outcome]


def conduct(plan: TunePlan, path: Path, shared: SharedInputs, options: WorkOptions) -> Searched:
    """Make the trials of a search that have not ended, in its directory, and write what was found.

    Raises:
        UserError: the directory holds something else or is in use; no data can be read; no trial is within the limits.
    """
    directory = TuneDirectory(path.absolute())
    check_usable(directory, plan, overwrite=options.overwrite)
    _check_data(plan, shared, options.data_root)
    with locked(directory.path, str(path), "search"):
        check_usable(directory, plan, overwrite=False)
        for folder in ("runs", "facts"):
            (directory.path / folder).mkdir(exist_ok=True)
        write_state(directory, {"digest": plan.digest(), "name": plan.name, "finished": False})
        write_text(directory.plan, plan.text())
        secret = secret_of(directory, plan)
        trials = number_of_trials(plan, secret)
        book = TrialBook(plan, directory.journal, secret, _chosen(plan, shared, options.data_root))
        search = Search(plan, directory, book, shared, trials, secret, options.watcher)
        ended = sum(number in book.trials for number in range(trials))
        options.watcher.begin(trials, ended, 0)  # how many intervals a trial has is drawn with it
        on_ray = chosen_backend(plan.config.runtime) == "ray"  # then each trial has the machine for itself
        jobs = 1 if on_ray else min(options.jobs or usable_cpus(), WIDTH)
        own_ray = on_ray and plan.config.runtime.address is None
        with Pool(plan.document, shared, options, jobs, own_ray=own_ray) as pool:
            search.carry_out(pool, options.stop)
        found = [book.trials[number] for number in range(trials) if number in book.trials]
        finished = len(found) == trials
        write_results(plan, directory, found, shared, options.data_root, finished=finished)
        return Searched(finished, search.crashes)


def number_of_trials(plan: TunePlan, secret: bytes) -> int:
    """How many trials there are: as stated, or as drawn where nobody may know."""
    if plan.price.law is None:
        return plan.section.trials
    return plan.price.law.draw(Streams(plan.seed, secret=secret).open("", "number of trials"))


def _check_data(plan: TunePlan, shared: SharedInputs, root: Path | None) -> None:
    """Refuse a search whose data cannot be read, once and before anything is written."""
    _, point = plan.space.checked_points()[0]
    try:
        config, topology = shared.experiment(plan.document, plan.trial_settings(point, 0))
    except UserError:  # these values do not fit each other; trials with others tell of their data
        return
    request = shared.request(config, topology, root)
    if request is not None:
        shared.read(request)


def _chosen(plan: TunePlan, shared: SharedInputs, root: Path | None) -> dict[str, Drawn]:
    """Where the search begins: at what `training: auto` chooses for keys that are searched, by the names of axes.

    Empty where an account covers the search, for then all trials have to be drawn alike.
    """
    if plan.price.covered:
        return {}
    try:
        config, topology = shared.experiment(plan.document, plan.trial_settings({}, 0))
        open_keys = {f"training.{key}" for key in config.training.left_open}
        axes = [axis for axis in plan.space.axes if open_keys.issuperset(axis.keys)]
        training = shared.prepare(config, topology, root).config.training if axes else config.training
    except UserError:  # without the searched keys it is no experiment; trials tell of their own mistakes
        return {}
    values = training.model_dump()
    chosen = {axis.name: axis.nearest([values[key.removeprefix("training.")] for key in axis.keys]) for axis in axes}
    return {name: value for name, value in chosen.items() if value is not None}
