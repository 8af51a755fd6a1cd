"""Whether trusted edge servers are worth their messages (`control.trust: weighed`).

A trusted edge server adds one noise to the sum of its devices, which is less noise for the same epsilon, but it must
see each step. A device that adds noise to its own steps sends one message where it would send tau. Which is better
depends on what is wanted, on the network and on its channels, on nothing private.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy.noise_placement_options import LocalOptions
from h2fdp.run.setup import RunSetup
from h2fdp.schedules.turns import TurnsPlan, cheapest
from h2fdp.schedules.turns_controller import TurnsController


def without_trust(config: ExperimentFile) -> ExperimentFile | None:
    """The settings of the same run in which no edge server is relied on, nor averages before the cloud does.

    None where that is not asked.
    """
    control = config.control
    if control.trust != "weighed" or not control.enabled or config.method.topology == "star":
        return None
    never = {"aggregate_every": None, "aggregations_per_interval": 0}  # edge servers have no noise to save
    training = config.training.model_copy(update=never)
    method = config.method.model_copy(update={"privacy": LocalOptions(noise="steps")})
    control = control.model_copy(update={"trust": "used"})  # it is decided
    return config.model_copy(update={"method": method, "training": training, "control": control})


def better(ways: Sequence[Callable[[], RunSetup]]) -> RunSetup:
    """The better of these runs: with a budget that of least noise, with a target as `cheapest` says.

    Raises:
        UserError: that of the last, where the budget pays for none of them.
    """
    found, problem = [], None
    for way in ways:
        try:
            found.append(way())
        except UserError as error:
            if {each.key for each in error.problems} != {"control.budget"}:
                raise
            problem = error
    if not found:
        assert problem is not None, "there is a way at least"
        raise problem
    plans = [_plan(each) for each in found]
    target = found[0].config.control.target
    if target is None:
        return found[int(np.argmin([plan.noise for plan in plans]))]
    best = cheapest(plans, target.joules, target.seconds, target.noise)
    return next(setup for setup, plan in zip(found, plans, strict=True) if plan is best)


def _plan(setup: RunSetup) -> TurnsPlan:
    schedule = setup.schedule()
    assert isinstance(schedule, TurnsController), "trust is weighed where turns are planned"
    return schedule.plan
