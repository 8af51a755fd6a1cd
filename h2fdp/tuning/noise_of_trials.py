"""What is done to a trial before it starts: its noise is set by the search's budget, and facts are written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import ACCOUNTANTS, ORDERS, total_rdp
from h2fdp.privacy.calibration import Composition, scaled, smallest_factor
from h2fdp.records.atomic import write_text
from h2fdp.run.forecast import planned_accounts, planned_work
from h2fdp.run.prepare import with_settings
from h2fdp.run.setup import RunSetup

_CAUTION, _ROUNDS = 0.998, 20


def share_of(composition: Composition, bounds: Mapping[int, float]) -> float:
    """How much of the bounds on Renyi divergence a composition takes, 1 where it is at the nearest of them.

    Args:
        bounds: order, one of `ORDERS` -> the largest divergence.
    """
    divergences = total_rdp(composition)
    return max(float(divergences[_place(order)]) / most for order, most in bounds.items())


def _place(order: int) -> int:
    return int(np.searchsorted(ORDERS, order))


def held_by(setup: RunSetup) -> list[Composition]:
    """What target observers will hold about each distinct device after the planned run."""
    accounts = planned_accounts(setup)
    found = [each.composition for observer in setup.target_observers for each in accounts.classes(observer)]
    return list({tuple(sorted(each.items())): each for each in found}.values())


def within(setup: RunSetup, bounds: Mapping[int, float]) -> RunSetup:
    """The run under the epsilon at which every target observer's divergences are at most these, as near as may be.

    The noise is still calibrated to an epsilon, by the accountant of the file; the epsilon is that of the noise which
    the bounds ask for. So the configuration of the run says how it is made.

    Raises:
        UserError: no noise is enough.
    """
    privacy = setup.config.privacy
    accountant = ACCOUNTANTS[privacy.accountant]
    held = held_by(setup)
    factor = smallest_factor(held, 1.0, lambda each: share_of(each, bounds))
    epsilon = max(accountant.epsilon(scaled(each, factor), privacy.delta) for each in held)
    for _ in range(_ROUNDS):
        config = setup.config.model_copy(update={"privacy": privacy.model_copy(update={"epsilon": epsilon})})
        found = with_settings(setup, config).keyed(setup.noise_key or None)
        if max(share_of(each, bounds) for each in held_by(found)) <= 1:
            return found
        epsilon *= _CAUTION
    raise UserError("no noise was found that keeps to the budget of the search", key="privacy.epsilon")


@dataclass(frozen=True)
class TrialPreparation:
    """Goes with the task of a trial, see `sweeps.task.Adjustment`.

    Attributes:
        facts: the file of what is known of a trial before it runs.
        bounds: order -> largest divergence of the trial; None where its own epsilon holds.
    """

    facts: Path
    bounds: Mapping[int, float] | None = None

    def adjusted(self, setup: RunSetup) -> RunSetup:
        """The trial under its noise; its facts are on disk before it starts."""
        if self.bounds is not None:
            setup = within(setup, self.bounds)
        self.facts.parent.mkdir(exist_ok=True)
        write_text(self.facts, json.dumps(facts_of(setup)) + "\n")
        return setup


def facts_of(setup: RunSetup) -> dict[str, Any]:
    """The number of validation records, and the bytes that devices send as planned."""
    assert setup.data.validation is not None, "trials are judged on validation records"
    sent = planned_work(setup).costs["device_bytes"]
    return {"validation_records": len(setup.data.validation), "bytes": sent}
