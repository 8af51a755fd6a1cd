"""What of a run its noise follows from."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from h2fdp.experiment.schema import horizon
from h2fdp.privacy import Setting
from h2fdp.training.descent import gain

if TYPE_CHECKING:
    from h2fdp.run.preparation import Preparation


def setting_of(run: Preparation, module: nn.Module) -> Setting:
    """The run as its noise is worked out for: with the numbers of releases that are planned.

    Where a schedule chooses tau that is K_g intervals with the most local aggregations that any tau has, so that the
    claim covers whatever it does.
    """
    config, training, privacy = run.config, run.config.training, run.config.privacy
    schedule = config.method.schedule
    lengths = [run.local_steps]
    if config.control.enabled:
        lengths = list(range(1, min(config.control.tau_max, horizon(config).slots) + 1))
    elif schedule.name == "resource-budget":
        assert schedule.longest is not None, "it has a default"
        lengths = list(range(1, schedule.longest + 1))
    return Setting(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        c2=privacy.c2,
        sensitivity=privacy.sensitivity,
        clip_norm=training.clip_norm,
        intervals=training.intervals,
        local_aggregations=max(len(run.rhythm.offsets(length)) for length in lengths) * training.intervals,
        local_steps=run.local_steps,
        records=run.data.sizes,
        sampling_rates=run.blueprint.rates,
        sampling=run.blueprint.sampling,
        gain=partial(gain, training.momentum),
        # In epochs a record is drawn exactly once in each, not by chance at every step.
        gradients_attained=training.clip_scope == "batch" and not training.momentum and training.local_epochs is None,
        mu=config.method.objective.mu or 0.0,
        biased=any(parameter.ndim == 1 for parameter in module.parameters()),
    )
