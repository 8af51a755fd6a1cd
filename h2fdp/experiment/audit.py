"""An empirical privacy audit: one run with canaries among the records, guessed from what one observer received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from h2fdp.errors import UserError
from h2fdp.experiment.loop import OnInterval
from h2fdp.experiment.overhearing import OverheardRun
from h2fdp.experiment.preparation import Preparation
from h2fdp.experiment.privacy_watch import PrivacyWatch
from h2fdp.privacy import OBSERVERS, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS, Composition, attained
from h2fdp.privacy.audit import (
    CanaryDesign,
    CanaryEffect,
    CanaryKind,
    epsilon_lower_bound,
    guess,
    guesses_planned,
    log_likelihood_ratio,
    observations,
)
from h2fdp.runtime.backends import one_thread

_MOST_PER_BATCH = 1.0  # canaries that meet in one batch hide each other and hinder training


@dataclass(frozen=True)
class Audit:
    """What an audit found, and what it is to be held against.

    Attributes:
        canaries: N, of `devices` devices.
        per_batch: canaries in a batch, on average, of the device that has the most.
        intervals: that the audited run took.
        guesses: r, fixed in advance.
        right: v.
        epsilon_lower: epsilon is at least that, at this confidence.
        delta: of the guarantee under test.
        compositions: what the ledger of the same run says that the observer received of the audited devices: one
            for each distinct account, none if a budget allowed no interval.
    """

    observer: Observer
    kind: CanaryKind
    canaries: int
    devices: int
    per_batch: float
    intervals: int
    guesses: int
    right: int
    epsilon_lower: float
    confidence: float
    delta: float
    compositions: tuple[Composition, ...]

    def accounted(self, accountant: str) -> float:
        """The ledger's epsilon about the worst audited device: what `epsilon_lower` must not exceed."""
        return max((ACCOUNTANTS[accountant].epsilon(each, self.delta) for each in self.compositions), default=0.0)

    def attained(self) -> float:
        """What a dominating record of the worst audited device gets: the most that these canaries can show."""
        return max((attained(each, self.delta) for each in self.compositions), default=0.0)


def audit(
    run: Preparation,
    observer: Observer,
    canaries: int,
    kind: CanaryKind = "dominating",
    *,
    confidence: float = 0.95,
    noise_scale: float = 1.0,
    on_interval: OnInterval | None = None,
) -> Audit:
    """Audit the prepared experiment in this process.

    1. N canaries are given to devices of which the observer receives something noisy, each in or out by a coin.
    2. The experiment runs, with canaries in the local steps; after each interval, what the observer received on each
       canary's coordinate is added to the canary's score. A budget ends this run as it would end any.
    3. The r/2 largest scores are guessed to be in, the r/2 smallest out; v right guesses bound epsilon from below.

    Args:
        noise_scale: noise really added, as a multiple of the planned one that is accounted: below 1 the guarantee is
            void, and the audit should show it.
        on_interval: called with `{"interval": number}` after each.

    Raises:
        UserError: nothing to audit, or not like this.
    """
    _check(run, observer, canaries, kind, confidence)
    streams, rates = run.blueprint.streams, run.blueprint.rates
    design = CanaryDesign.drawn(streams, kind, canaries, _audited_devices(run, observer))
    _check_density(design, rates)
    scores, watch, intervals = _scores(run, observer, design, noise_scale, on_interval or (lambda row: None))
    guesses = guesses_planned(canaries)
    called = guess(scores, guesses)
    right = int(np.sum(called == np.where(design.included, 1, -1)))
    delta = run.config.privacy.delta
    return Audit(
        observer=observer,
        kind=kind,
        canaries=canaries,
        devices=len(np.unique(design.owners)),
        per_batch=design.per_batch(rates),
        intervals=intervals,
        guesses=guesses,
        right=right,
        epsilon_lower=epsilon_lower_bound(right, guesses, canaries, delta, confidence),
        confidence=confidence,
        delta=delta,
        compositions=tuple(
            each.composition for each in watch.accounts.classes(observer) if np.isin(each.devices, design.owners).any()
        ),
    )


def _scores(
    run: Preparation, observer: Observer, design: CanaryDesign, noise_scale: float, on_interval: OnInterval
) -> tuple[np.ndarray, PrivacyWatch, int]:
    """(N,) log likelihood ratio of "in" against "out"; the accounts of the run; its intervals."""
    blueprint, training = run.blueprint, run.config.training
    mine = design.coordinates(run.topology.devices)
    effects = _effects(run, design)
    spies = _spies(run)
    scores = np.zeros(design.size)
    watch = PrivacyWatch(run)
    done = 0
    with one_thread():
        overheard = OverheardRun(run, design, noise_scale)
        for interval in range(training.intervals):
            plan = overheard.cloud.plan(interval)
            if watch.admit(plan, list(overheard.cloud.releases(plan))) is not None:
                break
            transcript = overheard.run_interval(plan)
            for seen in observations(observer, transcript, effects, spies.__getitem__, blueprint.star):
                at, unit, effect = mine[seen.device], transcript.step_size * seen.weight, effects[seen.device]
                moved = seen.values[at] - unit * effect.baseline * seen.steps
                rate = float(blueprint.rates[seen.device])
                scores[at] += log_likelihood_ratio(moved, unit * effect.shift, seen.noise_std, seen.steps, rate)
            done += 1
            on_interval({"interval": done})
    return scores, watch, done


def _effects(run: Preparation, design: CanaryDesign) -> dict[int, CanaryEffect]:
    """Device -> what its canaries do."""
    clipping, rates = run.blueprint.clipping, run.blueprint.rates
    assert clipping is not None, "a guarantee comes with clipping"
    devices, canaries = np.unique(design.owners, return_counts=True)
    return {
        device: CanaryEffect.expected(
            design.kind, clipping.scope, clipping.norm, int(run.data.sizes[device]), float(rates[device]), count
        )
        for device, count in zip(devices.tolist(), canaries.tolist(), strict=True)
    }


def _spies(run: Preparation) -> list[int]:
    """For each device, the other one of its subnet whose own noise is the largest part of the average; -1 if alone.

    It is fixed for the whole run: a device's noise is proportional to q_j, its part of the average to rho_j q_j.
    """
    found: list[int] = []
    for facts, first in zip(run.blueprint.facts(), run.blueprint.first_devices.tolist(), strict=False):
        rows = np.arange(len(facts.records))
        parts = facts.weights(rows, run.config.training.weights) * facts.sampling_rates
        loudest, *others = np.argsort(-parts, kind="stable").tolist()
        found += [first + (loudest if row != loudest else others[0]) if others else -1 for row in rows.tolist()]
    return found


def _audited_devices(run: Preparation, observer: Observer) -> np.ndarray:
    """Numbers of the devices of which this observer receives anything that the guarantee covers."""
    found: list[int] = []
    for facts, first in zip(run.blueprint.facts(), run.blueprint.first_devices.tolist(), strict=False):
        size = len(facts.records)
        if (observer == "edge" and facts.noise_source != "device") or (observer == "peer" and size == 1):
            continue
        found += range(first, first + size)
    if not found:
        reason = {
            "edge": "every edge server is trusted: it sees raw updates and is outside of the threat model",
            "peer": "no subnet has two devices, so no device has a peer",
        }[observer]
        raise UserError(f"nothing to audit; {reason}", key="observer")
    return np.array(found)


def _check(run: Preparation, observer: str, canaries: int, kind: str, confidence: float) -> None:
    if observer not in OBSERVERS:
        raise UserError(f'expected one of {", ".join(OBSERVERS)}, found "{observer}"', key="observer")
    if kind not in get_args(CanaryKind):
        raise UserError(f'expected one of {", ".join(get_args(CanaryKind))}, found "{kind}"', key="kind")
    if canaries < 1:
        raise UserError(f"expected a whole number of at least 1, found {canaries}", key="canaries")
    if not 0 < confidence < 1:
        raise UserError(f"expected a number above 0 and below 1, found {confidence}", key="confidence")
    if run.noise is None:
        raise UserError("an audit needs a method that promises privacy; this one adds no noise", key="method")
    if run.config.training.sampling != "poisson":
        raise UserError(
            "an audit needs poisson; a canary in a batch of fixed size would push out a record", key="training.sampling"
        )


def _check_density(design: CanaryDesign, rates: np.ndarray) -> None:
    expected = design.per_batch(rates)
    if expected > _MOST_PER_BATCH:
        most = int(design.size * _MOST_PER_BATCH / expected)
        raise UserError(
            f"{design.size} canaries put {expected:.1f} into one batch on average, and they would hide each other; "
            f"expected at most about {most} with these devices and sampling rates",
            key="canaries",
        )


def as_dict(found: Audit) -> dict[str, Any]:
    """The audit with the numbers that it is held against: for tables and JSON."""
    numbers = {key: value for key, value in vars(found).items() if key != "compositions"}
    return numbers | {
        "attained": found.attained(),
        "rdp": found.accounted("rdp"),
        "pld": found.accounted("pld"),
    }
