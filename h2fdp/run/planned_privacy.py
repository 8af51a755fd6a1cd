"""What every observer will hold after the planned run, known before it starts; and noise calibrated to that."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy import Accounts
from h2fdp.privacy.accounted import Composition, smallest_factor
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.accounts import COARSE, MARGIN
from h2fdp.privacy.mechanism import LARGEST_NOISE, SMALLEST_NOISE
from h2fdp.protocol import LocalTeam
from h2fdp.run.preparation import Preparation


def empty_accounts(run: Preparation) -> Accounts:
    """Accounts of the run's network with nothing released."""
    return Accounts({subnet.name: subnet.size for subnet in run.topology.subnets})


def planned_accounts(run: Preparation, intervals: int | None = None) -> Accounts:
    """The accounts after the planned intervals (all of them by default).

    Where a schedule learns they are a forecast: its choices from what it knows before the run. Of a schedule that
    spends a number of local iterations, they are those of all of them.
    With everybody taking part in every interval the intervals are alike in units of their sensitivity, and one is
    planned for all; else each is planned with the participants, and the faults, that it will draw.
    """
    if intervals is None and run.config.method.schedule.name.startswith("ali-dpfl"):
        run = run.exhausted
    count = run.config.training.intervals if intervals is None else intervals
    cloud = run.cloud(LocalTeam({}))
    accounts = empty_accounts(run)
    plan = cloud.plan(0)
    if cloud.repeats and plan.participants == run.topology.devices:
        accounts.add(cloud.releases(plan), times=count)
        return accounts
    for interval in range(count):
        if cloud.ended:
            break
        plan = cloud.plan(interval)
        accounts.add(cloud.releases(plan))
        cloud.skip(plan)
    return accounts


def calibrated(run: Preparation) -> Preparation:
    """The run with its noises scaled by one factor, so that every target observer's account meets the target.

    Where the noise was given it stays, and the run ends when the target is met.

    Raises:
        UserError: no target observer receives anything private, so that no noise would be asked for; a budget or a
            calibration where there is no guarantee to keep; noise that is given, and too little for a single slot.
    """
    privacy = run.config.privacy
    accountant = ACCOUNTANTS[privacy.accountant]
    if run.noise is not None and privacy.calibration == "paper":  # R_c says whether ALI-DPFL measures anything
        run = replace(run, iterations=run.noise.iterations(privacy.epsilon, accountant))
    _check_that_it_protects(run)
    if run.noise is None:
        return run
    if privacy.calibration == "paper":
        return _with_holdable_noise(run)
    accounts = planned_accounts(run)
    compositions: list[Composition] = [
        each.composition for observer in privacy.target_observers for each in accounts.classes(observer)
    ]
    if not compositions:
        watched = ", ".join(privacy.target_observers)
        text = f"expected an observer that sees noisy releases, found {watched}, which see none in this network"
        raise UserError(text, key="privacy.target_observers")
    distinct = list({tuple(sorted(each.items())): each for each in compositions}.values())
    factor = smallest_factor(distinct, privacy.epsilon, lambda each: accountant.epsilon(each, privacy.delta))
    margin = MARGIN if accounts.exact else COARSE
    scaled = run.noise.scaled(factor * margin)
    iterations = scaled.iterations(privacy.epsilon, accountant)
    return _with_holdable_noise(replace(run, noise=scaled, factor=factor * margin, iterations=iterations))


def _check_that_it_protects(run: Preparation) -> None:
    """A budget or an account needs a guarantee: without noise what is received is without bound."""
    privacy = run.config.privacy
    if run.noise is None:
        if privacy.budget:
            raise UserError("a budget needs a method that adds noise; this one adds none", key="privacy.budget")
        if privacy.calibration == "accounted":
            raise UserError("accounted needs a method that adds noise; this one adds none", key="privacy.calibration")
        return
    if run.leaks and privacy.budget:
        raise UserError("this run leaks raw measurements, which no budget covers; expected none", key="privacy.budget")
    sources = {facts.noise_source for facts in run.blueprint.facts()}
    if "edge" in privacy.budget and "device" not in sources:
        text = "every edge server of this network is trusted and sees raw updates, which no budget covers"
        raise UserError(text, key="privacy.budget.edge")
    if "cloud" in privacy.budget and "cloud" in sources:
        raise UserError("the cloud is trusted and sees raw updates, which no budget covers", key="privacy.budget.cloud")


def _with_holdable_noise(run: Preparation) -> Preparation:
    """The run, unless its noises would vanish or overflow in the 32 bits of a model."""
    training = run.config.training
    last = math.sqrt(training.intervals) if training.step_decay == "sqrt" else 1.0
    plan = run.without_faults.cloud(LocalTeam({})).plan(0)
    noises = [(part.noise_std, len(part.rows)) for part in plan.subnets.values() if part.noise_std.size]
    if any(facts.noise_source == "cloud" for facts in run.blueprint.facts()):
        noises.append((np.array([plan.noise_std]), run.topology.devices))
    for levels, devices in noises:
        smallest, largest = float(levels.min()) / last, float(levels.max())
        if run.config.faults.faults().of_devices:  # an average of one device carries the most noise
            largest *= devices
        if not (smallest >= SMALLEST_NOISE and largest <= LARGEST_NOISE):
            text = f"the noises come out between {smallest:.3g} and {largest:.3g}, which 32-bit numbers do not hold"
            raise UserError(f"{text}; check epsilon, c2, clip_norm, step_size and the sampling rate", key="privacy")
    return run
