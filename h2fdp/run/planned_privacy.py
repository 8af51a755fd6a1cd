"""What every observer will hold after the planned run, known before it starts; and noise calibrated to that."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy import Accounts, Observer
from h2fdp.privacy.accounted import Composition, smallest_factor
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.accounts import COARSE, MARGIN
from h2fdp.privacy.mechanism import LARGEST_NOISE, SMALLEST_NOISE
from h2fdp.run.forecast import first_interval, forecast
from h2fdp.run.setup import RunSetup


def planned_accounts(setup: RunSetup) -> Accounts:
    """The accounts after all planned intervals.

    Where a schedule learns they are a forecast: its choices from what it knows before the run. Of a schedule that
    spends a number of local iterations, they are those of all of them.
    """
    if setup.traits.counts_iterations:
        setup = setup.exhausted()
    accounts = setup.empty_accounts()
    for expected in forecast(setup):
        accounts.add(expected.releases(), times=expected.times)
    return accounts


def accounts_of_one_interval(setup: RunSetup) -> Accounts:
    """The accounts after the first planned interval, if nothing fails in it."""
    accounts = setup.empty_accounts()
    accounts.add(next(forecast(setup.without_faults())).releases())
    return accounts


def calibrated(setup: RunSetup) -> RunSetup:
    """The run with its noises scaled by one factor, so that every target observer's account meets the target.

    Where the noise was given it stays, and the run ends when the target is met.

    Raises:
        UserError: no target observer receives anything private, so that no noise would be asked for; a budget or a
            calibration where there is no guarantee to keep; noise that is given, and too little for a single slot.
    """
    privacy = setup.config.privacy
    accountant = ACCOUNTANTS[privacy.accountant]
    _check_observers(setup)
    _check_that_it_protects(setup)
    if setup.noise is None:
        return setup
    if privacy.calibration == "paper":
        _check_holdable(setup)
        return setup
    accounts = planned_accounts(setup)
    compositions: list[Composition] = [
        each.composition for observer in setup.target_observers for each in accounts.classes(observer)
    ]
    if not compositions:
        watched = ", ".join(setup.target_observers)
        text = f"expected an observer that sees noisy releases, found {watched}, which see none in this network"
        raise UserError(text, key="privacy.target_observers")
    distinct = list({tuple(sorted(each.items())): each for each in compositions}.values())
    factor = smallest_factor(distinct, privacy.epsilon, lambda each: accountant.epsilon(each, privacy.delta))
    margin = MARGIN if accounts.exact else COARSE
    scaled = setup.noise.scaled(factor * margin)
    iterations = scaled.iterations(privacy.epsilon, accountant)
    found = replace(setup, noise=scaled, factor=factor * margin, iterations=iterations)
    _check_holdable(found)
    return found


def _check_observers(setup: RunSetup) -> None:
    """Refuse observers that this network does not have."""
    privacy, known = setup.config.privacy, setup.observers
    asked = [("privacy.target_observers", name) for name in privacy.target_observers]
    asked += [(f"privacy.budget.{name}", name) for name in privacy.budget]
    for key, name in asked:
        if name not in known:
            raise UserError(f"in this network expected one of {', '.join(known)}, found {name}", key=key)


def _check_that_it_protects(setup: RunSetup) -> None:
    """A budget or an account needs a guarantee: without noise what is received is without bound."""
    privacy = setup.config.privacy
    if setup.noise is None:
        if privacy.budget:
            raise UserError("a budget needs a method that adds noise; this one adds none", key="privacy.budget")
        if privacy.calibration == "accounted":
            raise UserError("accounted needs a method that adds noise; this one adds none", key="privacy.calibration")
        return
    if setup.leaks and privacy.budget:
        raise UserError("no budget covers the raw measurements of this run; expected none", key="privacy.budget")
    seen = {observer for facts in setup.blueprint.facts() for observer in facts.views(len(facts.heights))}
    for observer in privacy.budget:
        if observer not in seen:
            text = f"{_who(observer)} is trusted and sees raw updates; no budget covers them"
            raise UserError(text, key=f"privacy.budget.{observer}")


def _who(observer: Observer) -> str:
    if observer == "cloud":
        return "the cloud"
    return f"every edge server of this {'network' if observer == 'edge' else 'tier'}"


def _check_holdable(setup: RunSetup) -> None:
    """Refuse noises that would vanish or overflow in the 32 bits of a model."""
    training = setup.config.training
    last = math.sqrt(training.intervals) if training.step_decay == "sqrt" else 1.0
    plan = first_interval(setup)
    noises = [(part.noise_std[part.noise_std > 0], len(part.rows)) for part in plan.subnets.values()]
    noises = [(levels, devices) for levels, devices in noises if levels.size]
    noises += [(np.array([level]), setup.topology.devices) for _, _, level in plan.upper_noises]
    if any(facts.trust_model.cloud_adds_noise for facts in setup.blueprint.facts()):
        noises.append((np.array([plan.noise_std]), setup.topology.devices))
    for levels, devices in noises:
        smallest, largest = float(levels.min()) / last, float(levels.max())
        if setup.config.faults.faults().of_devices:  # an average of one device carries the most noise
            largest *= devices
        if not (smallest >= SMALLEST_NOISE and largest <= LARGEST_NOISE):
            text = f"the noise would lie between {smallest:.3g} and {largest:.3g}, outside the range of 32-bit numbers"
            raise UserError(f"{text}; check epsilon, c2, clip_norm, step_size and the sampling rate", key="privacy")
