"""Stored runs that several studies share: one that is stored under another figure is not made again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from experiments.reproduction.settings.stored_runs import StoredRun
from experiments.reproduction.settings.studies import SettingStudy
from h2fdp.sweeps.plan import SharedInputs, SweepPlan


def kindred_runs(
    study: SettingStudy,
    checked: SweepPlan,
    others: Iterable[SettingStudy],
    stored: Mapping[str, StoredRun],
    shared: SharedInputs,
    *,
    with_costs: bool,
) -> Iterator[StoredRun]:
    """The runs of a study that are stored as those of a trial or of another figure, as runs of this one.

    Two runs are the same where all that their bits depend on is: the configuration and the network.

    Args:
        with_costs: the study's claims need energy and delay, too.
    """
    wanted = {}
    for planned in checked.runs:
        recipe = study.recipes[planned.point.name]
        if recipe in stored:
            yield stored[recipe].as_of(recipe, study.stage, study.figure, planned.point.values)
        else:
            wanted[planned.digest] = planned.point
    for other in others:
        if not wanted:
            return
        if other == study or not any(recipe in stored for recipe in other.recipes.values()):
            continue
        for planned in other.study(shared).runs:
            run = stored.get(other.recipes[planned.point.name])
            if run is not None and planned.digest in wanted and (run.energy_j or not with_costs):
                point = wanted.pop(planned.digest)
                yield run.as_of(study.recipes[point.name], study.stage, study.figure, point.values)
