"""The noise of a run: the mechanism that its settings ask for, and its calibration to what observers will hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import PLAN_REFUSALS, Problem, UserError, not_one_of
from h2fdp.privacy import Accounts, BudgetFilter, MechanismContext
from h2fdp.privacy.accounting import ACCOUNTANTS, Accountant, ReleaseType
from h2fdp.privacy.accounting.accountants import quick_epsilon
from h2fdp.privacy.accounting.loss_composition import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE
from h2fdp.privacy.accounts import COARSE, MARGIN, coarsened
from h2fdp.privacy.calibration import Composition, smallest_factor
from h2fdp.privacy.own_targets import EPSILON
from h2fdp.privacy.vectors import LARGEST_NOISE, SMALLEST_NOISE
from h2fdp.privacy.views import Past
from h2fdp.protocol.subnet_facts import most_of_tiers
from h2fdp.run.forecast import ModelNoise, first_interval, forecast, planned_accounts
from h2fdp.run.prelude import add_planned, noises_before
from h2fdp.run.setup import Noise, RunInputs, RunSetup
from h2fdp.schedules import Horizon
from h2fdp.schedules.aggregation_times import decayed
from h2fdp.training.local_steps import pull_of
from h2fdp.wording import SCORES, counted, noted_if_long

_ROUNDS, _NEAR = 12, 0.99  # of scaling noise on a grid, until the account is that near to the target


def calibrate(inputs: RunInputs, alike: Noise | None = None) -> Noise:
    """The noise that the settings of a run ask for, calibrated.

    With `calibration: accounted` all noises are scaled by one factor, so that every target observer's account meets the
    target. Where decisions depend on what is released the account is a filter's, and the factor is that of a run that
    learns nothing. Where the noise was given it stays, and the run ends when the target is met.

    Args:
        alike: of a run whose account is this one's, so that it needs no plan of its own.

    Raises:
        UserError: no target observer receives anything private, so that no noise would be asked for; a budget or a
            calibration where there is no guarantee to keep; no noise that meets the target; noise that is given, and
            too little for a single slot.
    """
    noise = uncalibrated(inputs)
    if noise.noise is None:
        return noise
    if inputs.target is not None:
        noise = met(inputs, noise) if alike is None else _as(inputs, noise, alike)
        run = RunSetup.of(inputs, noise)
        if inputs.adapts:
            budgets = dict.fromkeys(inputs.target_observers, inputs.target)
            budgets |= {each: min(most, budgets.get(each, most)) for each, most in inputs.config.privacy.budget.items()}
            watched = BudgetFilter.of_plan(budgets, inputs.config.privacy.delta, planned_accounts(run))
            noise = replace(noise, watched=watched)
        elif isinstance(inputs.config.method.schedule, OwnPart) or inputs.traits.controlled:
            noise = replace(noise, reserve=_kept(inputs, planned_accounts(run)))
    run = RunSetup.of(inputs, noise)
    for each in (run, *run.statistics):
        _check_holdable(each)
    if run.data.test_owners is not None:
        _check_what_decides(run)
    return noise


def uncalibrated(inputs: RunInputs) -> Noise:
    """The noise before any account, of a run that may be calibrated; none where the method adds none.

    Raises:
        UserError: see `calibrate`.
    """
    privacy = inputs.config.privacy
    for name in (*privacy.target_observers, *privacy.budget):
        if name not in inputs.observers:
            key = f"privacy.budget.{name}" if name in privacy.budget else "privacy.target_observers"
            raise UserError(f"in this network {not_one_of(name, inputs.observers)}", key=key)
    if not inputs.placement.private:
        if privacy.budget:
            raise UserError("a budget needs a method that adds noise; this one adds none", key="privacy.budget")
        return Noise()
    mechanism = inputs.placement.mechanism(_context(inputs))
    iterations = None
    given = privacy.calibration == "paper"
    if given or inputs.traits.counts_iterations:
        iterations = mechanism.iterations(privacy.epsilon, ACCOUNTANTS[privacy.accountant])
    noise = Noise(noise=mechanism, iterations=iterations, uncalibrated=mechanism)
    run = RunSetup.of(inputs, noise)
    if run.leaks or privacy.budget:
        _check_that_it_protects(run)
    if found := [Problem(text, key=key) for key, text in PLAN_REFUSALS.of(run, partial(_pasts, run))]:
        raise UserError(found)
    return noise


def met(inputs: RunInputs, noise: Noise, model: ModelNoise | None = None) -> Noise:
    """The uncalibrated noise, scaled until the planned run's account meets the target.

    Args:
        model: to which the plans are added that the account is of.

    Raises:
        UserError: none meets it.
    """
    devices, intervals = inputs.drawn.devices, inputs.config.training.intervals
    with noted_if_long(f"calibrating noise: {counted(intervals, 'interval')} of {counted(devices, 'device')}"):
        if inputs.targets.own is not None:
            noise = replace(noise, eases=_eases(inputs, planned_accounts(RunSetup.of(inputs, noise))))
        run = RunSetup.of(inputs, noise)
        accounts = planned_accounts(run, model)
        if inputs.prelude:
            noise = replace(noise, before=noises_before(run, _multiple(inputs, accounts)))
            accounts = add_planned(RunSetup.of(inputs, noise), accounts)
        noise = _scaled_to_target(inputs, noise, accounts)
        if inputs.placement.rounding is not None:
            noise = _settled(inputs, noise)
        if inputs.targets.distinct[0] < ABSOLUTE_TOLERANCE / RELATIVE_TOLERANCE:
            noise = _of_rough_accounts(inputs, noise)
    return noise


def _kept(inputs: RunInputs, planned: Accounts) -> Accounts:
    """The accounts that bind a schedule that states that it is foreseen, or that it reads no releases.

    Raises:
        UserError: it decided otherwise when it was asked again, so that what it will do is not foreseen.
    """
    if _multiple(inputs, planned) > 1:
        text = f"{inputs.config.method.schedule.name} decided otherwise when it was asked again for the same intervals"
        raise UserError(f"{text}; expected equal decisions, or reads_releases True", key="method.schedule")
    return planned


def _scaled_to_target(inputs: RunInputs, noise: Noise, accounts: Accounts) -> Noise:
    """The smallest multiple of a noise that brings the target observers' accounts, which it gave, to the target."""
    return _times(inputs, noise, _multiple(inputs, accounts) * (MARGIN if accounts.exact else COARSE))


def _times(inputs: RunInputs, noise: Noise, factor: float) -> Noise:
    """The noise, multiplied."""
    assert noise.noise is not None, "there is noise to scale"
    scaled = noise.noise.scaled(factor)
    iterations = scaled.iterations(inputs.config.privacy.epsilon, ACCOUNTANTS[inputs.accountant])
    before = tuple(each * factor for each in noise.before)
    return replace(noise, noise=scaled, factor=noise.factor * factor, iterations=iterations, before=before)


def _as(inputs: RunInputs, noise: Noise, alike: Noise) -> Noise:
    """The noise, multiplied as that of a run whose account is the same."""
    before = tuple(each / alike.factor for each in alike.before)
    return _times(inputs, replace(noise, before=before, eases=alike.eases), alike.factor)


def _settled(inputs: RunInputs, noise: Noise) -> Noise:
    """The calibrated noise of sums of integers: their grid follows the noise, so that accounts do not scale with it.

    It is scaled again by the account that it has, until that meets the target with at most 1 % of noise to spare, where
    whole grid cells allow.

    Raises:
        UserError: with so few bits the grid grows as fast as the noise.
    """
    best: Noise | None = None
    for _ in range(_ROUNDS):
        accounts = planned_accounts(RunSetup.of(inputs, noise))
        multiple = _multiple(inputs, accounts) * (1.0 if accounts.exact else COARSE)
        if multiple <= 1 and (best is None or noise.factor < best.factor):
            best = noise
        if _NEAR <= multiple <= 1:
            break
        noise = _scaled_to_target(inputs, noise, accounts)
    if best is None:
        text = f"with {inputs.placement.rounding} bits no noise meets the target, because the grid grows with it"
        raise UserError(f"{text}; expected more", key="method.privacy.secure_sum.rounding")
    return best


def _of_rough_accounts(inputs: RunInputs, noise: Noise) -> Noise:
    """Noise whose account is at most the target, where accounts are rough: of epsilons that are near to 0.

    Raises:
        UserError: no such noise exists within the tries.
    """
    privacy, accountant = inputs.config.privacy, ACCOUNTANTS[inputs.accountant]
    reached = target = math.inf
    for _ in range(_ROUNDS):
        held = _distinct(inputs, planned_accounts(RunSetup.of(inputs, noise)))
        accounted = [
            (accountant.epsilon(each, privacy.delta), most) for most, theirs in held.items() for each in theirs
        ]
        reached, target = max(accounted, key=lambda each: each[0] / each[1])
        if reached <= target:
            return noise
        noise = _times(inputs, noise, reached / target * MARGIN)
    text = f"no noise was found whose account by {inputs.accountant} is so small: it stays at {reached:.3g}"
    raise UserError(f"{text}; expected a larger epsilon or delta, found {target:g}", key="privacy.epsilon")


def _distinct(inputs: RunInputs, accounts: Accounts) -> dict[float, list[Composition]]:
    """Compositions that target observers hold about devices, each once for each target."""
    compositions, targets = dict[float, dict[Hashable, Composition]](), inputs.targets
    for each in chain.from_iterable(map(accounts.classes, inputs.target_observers)):
        of_target = compositions.setdefault(targets.of(each.devices), {})
        of_target[tuple(sorted(each.composition.items()))] = each.composition
    if not compositions:
        intervals = inputs.config.training.intervals
        unseen = not any(True for observer in accounts.observers for _ in accounts.classes(observer))
        if unseen and inputs.faults.possible:
            text = f"no upload arrives in any of the {intervals} planned intervals, so there is nothing to add noise to"
            right = "less probable faults, fewer truncated channels, or batteries that pay for an interval"
            raise UserError(f"{text}; expected {right}", key="faults")
        watched = ", ".join(inputs.target_observers)
        text = f"expected an observer that sees noisy releases, found {watched}, which see none in this network"
        raise UserError(text, key="privacy.target_observers")
    return {target: list(each.values()) for target, each in compositions.items()}


def _eases(inputs: RunInputs, accounts: Accounts) -> np.ndarray:
    """(I,) see `privacy.own_targets`, by the account of the run in which all devices weigh what the file says."""
    known = ACCOUNTANTS[inputs.accountant], inputs.config.privacy.delta
    held = [each for theirs in _distinct(inputs, accounts).values() for each in theirs]
    of_targets = inputs.targets.eases(partial(_factor, *known, held))
    return of_targets(np.minimum(inputs.topology.table.columns[EPSILON], inputs.targets.epsilon))


def _multiple(inputs: RunInputs, accounts: Accounts) -> float:
    """The smallest multiple of all noises at which the target observers' accounts meet their targets."""
    known = ACCOUNTANTS[inputs.accountant], inputs.config.privacy.delta
    return max(_factor(*known, held, target) for target, held in _distinct(inputs, accounts).items())


def _factor(accountant: Accountant, delta: float, distinct: Sequence[Composition], target: float) -> float:
    """The smallest multiple of all noises at which each of these accounts is at most the target."""
    most = target / (1 + accountant.spread)

    def quick(held: Composition, enough: float) -> float:
        """An epsilon by divergences where that is at most `enough`, else by losses; both may exceed the exact one."""
        above: Counter[ReleaseType] = Counter()
        for kind, count in held.items():
            above[coarsened(kind)] += count
        bound = quick_epsilon(above, delta, enough) * (1 + accountant.spread) + ABSOLUTE_TOLERANCE
        return bound if bound <= enough else accountant.epsilon(held, delta, enough)

    exact = partial(accountant.epsilon, delta=delta)
    return smallest_factor(distinct, most, exact, quick if accountant.name == "pld" else None)


def _context(inputs: RunInputs) -> MechanismContext:
    """The context from which noise is computed, with the planned numbers of releases.

    Where a schedule chooses tau, these are K_g intervals with the most local aggregations that any tau has, so that the
    claim covers whatever it does.
    """
    config, times, schedule = inputs.config, inputs.aggregation_times, inputs.traits
    training, privacy, objective = config.training, config.privacy, config.method.objective
    planned = Horizon.planned(training.intervals, inputs.local_steps, training.step_size, config.control)
    lengths = schedule.lengths(planned)
    return MechanismContext(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        c2=privacy.c2,
        sensitivity=privacy.sensitivity,
        clip_norm=training.largest_norm,
        intervals=training.intervals,
        local_aggregations=max(len(times.offsets(length)) for length in lengths) * training.intervals,
        local_steps=schedule.steps_to_cover(planned),
        step_releases=training.local_epochs or schedule.steps_to_cover(planned),
        tiers={
            tier: count * training.intervals for tier, count in most_of_tiers(times, inputs.topology, lengths).items()
        },
        records=inputs.data.sizes,
        sampling_rates=inputs.blueprint.rates,
        sampling=inputs.blueprint.sampling,
        gain=inputs.blueprint.descent.gain,
        by_record=training.clip_scope == "record",
        own_objective=isinstance(objective, OwnPart),
        step_size=inputs.blueprint.step_size,
        mu=pull_of(inputs.blueprint.descent.objective) or 0.0,
        biased=any(parameter.ndim == 1 for parameter in inputs.blueprint.module().parameters()),
        parameters=inputs.initial.numel(),
        accounted=privacy.calibration == "accounted",
        no_formula=privacy.noise_law is not None,
        open_ended=schedule.counts_iterations,
        rate=1.0 if training.draw is None else training.draw.rate,
    )


def _check_that_it_protects(setup: RunSetup) -> None:
    """A budget or an account needs a guarantee: what is received raw is without bound."""
    privacy = setup.config.privacy
    if setup.leaks and privacy.calibration == "accounted":
        text = "no account covers the raw measurements of this run"
        raise UserError(f"{text}; expected paper, or constants in method.schedule", key="privacy.calibration")
    if setup.leaks and privacy.budget:
        raise UserError("no budget covers the raw measurements of this run; expected none", key="privacy.budget")
    alike = {facts.likeness: facts for facts in setup.blueprint.facts}
    seen = {observer for facts in alike.values() for observer in facts.vectors_seen(len(facts.heights))}
    for observer in privacy.budget:
        if observer not in seen:
            text = f"the observer {observer} is trusted and sees raw updates; no budget covers them"
            raise UserError(text, key=f"privacy.budget.{observer}")


def _pasts(setup: RunSetup) -> Mapping[str, Past]:
    """The past of each subnet after all planned intervals, where the law of the noise has any."""
    clouds = [each.cloud for each in forecast(setup)]
    return clouds[-1].past if clouds else {}


def _check_what_decides(setup: RunSetup) -> None:
    """Refuse, under a guarantee, decisions that hang on scores that are measured on devices' records."""
    why = "the test records belong to devices here, and no account covers what is decided by them"
    if not SCORES.keys().isdisjoint(setup.config.training.until or {}):
        key = "control.accuracy" if setup.config.control.accuracy is not None else "training.until"
        raise UserError(f"{why}; expected no score to stop at, or test records that no device has", key=key)
    if setup.schedule().scores:
        text = f"{setup.config.method.schedule.name} decides by the loss on the test records; {why}"
        raise UserError(f"{text}; expected another schedule, or test records that no device has", key="method.schedule")


def _check_holdable(setup: RunSetup) -> None:
    """Refuse noises that would vanish or overflow in the 32 bits of a model."""
    training, plan = setup.config.training, first_interval(setup)
    last = decayed(1.0, training.step_decay, training.intervals - 1, training.intervals) / (training.warm_up + 1)
    distinct = {id(part): part for part in plan.subnets.values()}.values()
    noises = [(part.noise_std[part.noise_std > 0], len(part.rows)) for part in distinct]
    noises = [(levels, devices) for levels, devices in noises if levels.size]
    if setup.topology.aggregators:
        noises += [(np.array([level]), setup.topology.devices) for _, _, level in plan.upper_noises]
    if any(facts.adds_noise == "cloud" for facts in setup.blueprint.facts):
        noises.append((np.array([plan.noise_std]), setup.topology.devices))
    for levels, devices in noises:
        smallest, largest = float(levels.min()) * last, float(levels.max())
        if setup.faults.of_devices or setup.faults.absences:  # an average of one device carries the most noise
            largest *= devices
        if not (smallest >= SMALLEST_NOISE and largest <= LARGEST_NOISE):
            text = f"the noise would lie between {smallest:.3g} and {largest:.3g}, outside the range of 32-bit numbers"
            text = f"{text}; check epsilon, delta, c2, clip_norm, step_size and the sampling rate"
            raise UserError(text, key="privacy")
