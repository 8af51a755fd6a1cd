"""An empirical privacy audit: one run with canaries among the records, guessed from what one observer received.

Steinke, Nasr and Jagielski 2023: the largest scores are called in, the smallest out, the others left alone.
Mahloujifar, Melis and Chaudhuri 2025: what so many right guesses say about the trade-off of errors, here a Gaussian's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from h2fdp.arithmetic import run_arithmetic
from h2fdp.audit.canaries import AnyCanary, CanaryDesign, CanaryEffect, CanaryKind, TurningEffect
from h2fdp.audit.instrumented_run import InstrumentedRun, canary_gradient, observations
from h2fdp.errors import UserError, not_one_of
from h2fdp.privacy import OBSERVERS, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS, Composition
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.privacy.mechanisms.device_unit import ClippedUploads
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.prelude import add_planned, with_prelude
from h2fdp.run.recorders import OnInterval
from h2fdp.run.setup import RunSetup

_WHOLE = "a canary is a whole device where devices are protected"
_MOST_PER_BATCH = 1.0  # canaries that meet in one batch hide each other and hinder training
# Why an observer may have nothing to be asked about.
UNSEEN = {
    "edge": "every edge server is trusted: it sees raw updates and is outside the threat model",
    "peer": "no subnet has two devices, so no device has a peer",
}


def spies(run: RunSetup) -> list[int]:
    """The spy on each device: the other one of its subnet with the largest noise in the average; -1 if alone.

    It is fixed for the whole run: a device's noise is proportional to q_j, its part of the average to rho_j q_j.
    """
    found: list[int] = []
    for facts, first in zip(run.blueprint.facts, run.blueprint.first_devices.tolist(), strict=False):
        rows = np.arange(len(facts.records))
        parts = facts.asked(facts.shares(rows, run.config.training.weights) * facts.sampling_rates, rows)
        loudest, *others = np.argsort(-parts, kind="stable").tolist()
        found += [first + (loudest if row != loudest else others[0]) if others else -1 for row in rows.tolist()]
    return found


def audited_devices(run: RunSetup, observer: Observer) -> np.ndarray:
    """Numbers of the devices of which this observer receives anything that the guarantee covers; may be none."""
    found: list[int] = []
    for facts, first in zip(run.blueprint.facts, run.blueprint.first_devices.tolist(), strict=False):
        if observer in facts.vectors_seen(passed=1) and (observer != "peer" or len(facts.records) > 1):
            found += range(first, first + len(facts.records))
    return np.array(found, dtype=np.int64)


def check_request(run: RunSetup, observer: str, canaries: int, kind: str, confidence: float) -> None:
    """Refuse what is no audit, with a UserError."""
    for key, found, known in (("observer", observer, OBSERVERS), ("kind", kind, get_args(CanaryKind))):
        if found not in known:
            raise UserError(not_one_of(found, known), key=key)
    placement, blueprint, method, training = run.placement, run.blueprint, run.config.method, run.config.training
    whole = placement.protects == "device"
    unusual = observer == "public" and (method.server.name != "average" or method.upcycle is not None)
    tree = "an audit knows one tier of edge servers; expected a network without edges below edges, or a star"
    sums = "an audit reads what each edge server sends to the cloud, and a secure sum does not show that"
    rounds = "canaries read vectors, and devices send residues of integers; expected null"
    server = "an audit of public recovers the averages from the global models; expected server average without upcycle"
    poisson = "an audit needs poisson: its canaries are drawn at each step, by themselves"
    heads = "canaries are the last coordinates of models, where the heads are that never leave devices"
    replacing = run.topology.replacing
    refused = (
        (run.topology.depth > 1, "topology", tree),
        (canaries < 1, "canaries", f"expected a whole number of at least 1, found {canaries}"),
        (not 0 < confidence < 1, "confidence", f"expected a number above 0 and below 1, found {confidence}"),
        (placement.sees(run.topology.cloud_trust) == "sum", "topology.cloud.trust", f"{sums}; expected untrusted"),
        (placement.rounding is not None, "method.privacy.secure_sum.rounding", rounds),
        (placement.unaudited is not None, "method" if run.noise is None else "method.privacy", placement.unaudited),
        (placement.tells_batch_sizes, "method.privacy.normalize", "audits require normalize: expected"),
        (run.measures, "method.schedule", "audits require a schedule that measures nothing"),
        (training.gamma is not None, "training.clip_norm", "audits require clipped gradients; expected a number"),
        (blueprint.aggregation.visible == "each", "method.aggregation", "audits require sums; expected average"),
        (not placement.noise_law.stable, "method.privacy.law", "audits require Gaussian noise; expected gaussian"),
        (run.config.messages.key, run.config.messages.key, "audits require whole uploads and models; expected null"),
        (replacing, f"topology.{replacing and replacing.key}", "audits require honest nodes; expected null"),
        (run.traits.buffers, "method.schedule", "an audit knows devices that begin together; expected fixed"),
        (blueprint.descent.head, "method.objective", heads),
        (blueprint.descent.momentum, "training.momentum", "canaries do not support momentum; expected 0"),
        (blueprint.augment, "data.augment", "canaries know records as they are; expected null"),
        (blueprint.descent.optimizer, "training.optimizer", "canaries know plain steps; expected null"),
        (unusual, "method.server", server),
        (training.sampling != "poisson" and not whole, "training.sampling", poisson),
    )
    for holds, key, text in refused:
        if holds:
            raise UserError(str(text), key=key)


def check_density(design: CanaryDesign, rates: np.ndarray) -> None:
    """Refuse more canaries than can be distinguished, with a UserError that says how many can."""
    expected = design.per_batch(rates)
    if expected > _MOST_PER_BATCH:
        most = int(design.size * _MOST_PER_BATCH / expected)
        raise UserError(
            f"{design.size} canaries put {expected:.1f} into one batch on average, and they would hide each other; "
            f"expected at most about {most} with these devices and sampling rates",
            key="canaries",
        )


@dataclass(frozen=True)
class Audit:
    """The result of an audit, and the epsilons that it is compared with.

    Attributes:
        canaries: N, of `devices` devices.
        per_batch: canaries in a batch, on average, of the device that has the most.
        intervals: that the audited run took.
        guesses: r, fixed in advance.
        right: v.
        all_right: of a guess about each canary, by the sign of its score.
        epsilon_lower: of a Gaussian with `mu_lower_bound`, at this confidence.
        epsilon_independent: of one with `mu_of_independent`.
        delta: of the guarantee under test.
        compositions: what the ledger of the same run says that the observer received of the audited devices: one
            for each distinct account, none if a budget allowed no interval.
    """

    observer: Observer
    kind: AnyCanary
    canaries: int
    devices: int
    per_batch: float
    intervals: int
    guesses: int
    right: int
    all_right: int
    epsilon_lower: float
    epsilon_independent: float
    confidence: float
    delta: float
    clip_scope: str
    compositions: tuple[Composition, ...]

    def accounted(self, accountant: str) -> float:
        """The ledger's epsilon about the worst audited device: what `epsilon_lower` must not exceed."""
        return max((ACCOUNTANTS[accountant].epsilon(each, self.delta) for each in self.compositions), default=0.0)


def audit(run: RunSetup, observer: Observer, canaries: int, kind: CanaryKind = "dominating", **options: Any) -> Audit:
    """Audit the prepared experiment for one observer; see `audits`."""
    return audits(run, (observer,), canaries, kind, **options)[0]


def audits(
    run: RunSetup,
    observers: Sequence[Observer],
    canaries: int,
    kind: CanaryKind = "dominating",
    *,
    confidence: float = 0.95,
    noise_scale: float = 1.0,
    on_interval: OnInterval | None = None,
) -> list[Audit]:
    """Audit the prepared experiment in this process, by one run for all these observers.

    1. N canaries are given to devices of which an observer receives something noisy, each in or out by a coin; where
       devices are protected, each is a device. An observer is asked about those of its own devices; one that has none
       is left out.
    2. The experiment runs, with canaries in the local steps; after each interval, what an observer received on each
       canary's coordinate is added to the canary's score. A budget ends this run as it would end any.
    3. The r/2 largest scores are guessed to be in, the r/2 smallest out; v right guesses bound epsilon from below, for
       each observer at this confidence.

    Args:
        noise_scale: noise really added, as a multiple of the planned one that is accounted: below 1 the guarantee is
            void, and the audit should show it.
        on_interval: called with `{"interval": number}` after each.

    Raises:
        UserError: nothing to audit, or not like this.
    """
    if (moving := run.topology.moving) is not None:
        raise UserError(f"audits are of devices that stay at their edge server; expected no {moving}", key="topology")
    for observer in observers:
        check_request(run, observer, canaries, kind, confidence)
    audited = {observer: audited_devices(run, observer) for observer in observers}
    if not any(devices.size for devices in audited.values()):
        raise UserError(f"nothing to audit; {UNSEEN[observers[0]]}", key="observer")
    owners = np.unique(np.concatenate([*audited.values()]))
    made: AnyCanary = "device" if run.placement.protects == "device" else kind
    if made == "device" and canaries > len(owners):
        raise UserError(f"{_WHOLE}; expected at most {len(owners)}, found {canaries}", key="canaries")
    design = CanaryDesign.drawn(run.blueprint.streams, made, canaries, owners)
    check_density(design, run.blueprint.rates)
    scores, watch, intervals = _scores(run, audited, design, noise_scale, on_interval or (lambda row: None))
    found, delta = [], run.config.privacy.delta
    for observer, devices in audited.items():
        asked = np.isin(design.owners, devices)
        if asked.any():
            known, owners = int(asked.sum()), design.owners[asked]
            guesses, values, coins = guesses_planned(known), scores[observer][asked], design.included[asked]
            right = int(np.sum(guess(values, guesses) == np.where(coins, 1, -1)))
            all_right = int(np.sum((values > 0) == coins))
            mu = mu_lower_bound(right, guesses, known, delta, confidence)
            alone = mu_of_independent(all_right, known, delta, confidence)
            held = [each for each in watch.accounts.classes(observer) if np.isin(each.devices, owners).any()]
            found.append(
                Audit(
                    observer=observer,
                    kind=made,
                    canaries=known,
                    devices=len(np.unique(owners)),
                    per_batch=design.per_batch(run.blueprint.rates),
                    intervals=intervals,
                    guesses=guesses,
                    right=right,
                    all_right=all_right,
                    epsilon_lower=gaussian_epsilon(mu, delta) if mu else 0.0,
                    epsilon_independent=gaussian_epsilon(alone, delta) if alone else 0.0,
                    confidence=confidence,
                    delta=delta,
                    clip_scope=canary_gradient(run)[0],
                    compositions=tuple(each.composition for each in held),
                )
            )
    return found


def _scores(
    run: RunSetup,
    audited: Mapping[Observer, np.ndarray],
    design: CanaryDesign,
    noise_scale: float,
    on_interval: OnInterval,
) -> tuple[dict[Observer, np.ndarray], LiveAccounts, int]:
    """Observer -> (N,) log likelihood ratio of "in" against "out"; the accounts of the run; its intervals."""
    run = with_prelude(run, [])  # whose releases are in the accounts; canaries are guessed by those of training
    blueprint = run.blueprint
    mine = design.coordinates(run.topology.devices)
    effects, spy_of = _effects(run, design), spies(run)
    scores = {observer: np.zeros(design.size) for observer, devices in audited.items() if devices.size}
    watch = LiveAccounts(run)
    add_planned(run, watch.accounts)
    done = 0
    with run_arithmetic():
        instrumented = InstrumentedRun(run, design, noise_scale)
        for interval in range(run.config.training.intervals):
            if instrumented.cloud.ended:
                break
            plan = instrumented.cloud.plan(interval)
            if watch.admit(plan, list(instrumented.cloud.releases(plan))) is not None:
                break
            transcript = instrumented.run_interval(plan)
            for observer, score in scores.items():
                asked = {device: effects[device] for device in audited[observer].tolist() if device in effects}
                for seen in observations(observer, transcript, asked, spy_of.__getitem__, blueprint.star):
                    at, unit, effect = mine[seen.device], transcript.step_size * seen.weight, effects[seen.device]
                    segments, rate = seen.segments, float(blueprint.rates[seen.device])
                    if isinstance(run.noise, ClippedUploads):  # in all uploads of an interval, or in none
                        falls = transcript.step_size / run.noise.longest.step_size
                        unit, segments, rate = seen.weight * len(segments) * falls, (1,), run.noise.rate
                    score[at] += effect.score(seen.values[at], unit, seen.noise_std, segments, rate)
            done += 1
            on_interval({"interval": done})
    return scores, watch, done


def _effects(run: RunSetup, design: CanaryDesign) -> dict[int, CanaryEffect | TurningEffect]:
    """Device -> what its canaries do."""
    (scope, length), rates = canary_gradient(run), run.blueprint.rates
    devices, canaries = np.unique(design.owners, return_counts=True)
    return {
        device: CanaryEffect.expected(
            design.kind, scope, length, int(run.data.sizes[device]), float(rates[device]), count
        )
        for device, count in zip(devices.tolist(), canaries.tolist(), strict=True)
    }


def as_dict(found: Audit) -> dict[str, Any]:
    """The audit with the accounted numbers that it is compared with: for tables and JSON."""
    numbers = {key: value for key, value in vars(found).items() if key != "compositions"}
    return numbers | {accountant: found.accounted(accountant) for accountant in ("rdp", "pld")}


GUESSED_SHARE = 0.2  # fixed in advance: near the best for epsilons of 1 to 8 and some hundred canaries
_LARGEST_MU = 64.0
_HALVINGS = 50  # of that interval


def guesses_planned(canaries: int) -> int:
    """r for N canaries, fixed before anything is seen: a fifth of them, at least one.

    >>> guesses_planned(1000), guesses_planned(7), guesses_planned(1)
    (200, 1, 1)
    """
    return max(1, round(GUESSED_SHARE * canaries))


def guess(scores: np.ndarray, guesses: int) -> np.ndarray:
    """(N,) 1 for "in", -1 for "out", 0 for no guess: the r/2 largest and the r/2 smallest scores.

    An odd guess goes to the largest; of equal scores the first counts as the smaller, whether or not it is in.

    >>> guess(np.array([0.1, -2.0, 5.0, 0.0]), guesses=2)
    array([ 0, -1,  1,  0])
    """
    assert 1 <= guesses <= len(scores)
    order = np.argsort(scores, kind="stable")
    called = np.zeros(len(scores), dtype=np.int64)
    called[order[: guesses // 2]] = -1
    called[order[len(scores) - (guesses - guesses // 2) :]] = 1
    return called


def mu_lower_bound(right: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """The smallest mu that `right` of `guesses` right guesses leave possible; 0 says nothing.

    For a mechanism without a test of any canary's record (or device) that has more than Phi(Phi^-1(false) + mu) + delta
    true positives, as `privacy.statement.card` has mu, P[this > mu] <= 1 - confidence.
    Source: Mahloujifar, Melis and Chaudhuri 2025, Theorem 3.1 and Algorithm 3; `delta` is subtracted here.

    Assumptions: each canary was in or out by its own fair coin; which `guesses` of them would be guessed (not how) may
    depend on the observation, their number may not. However canaries hang together.

    Args:
        canaries: N, guessed or not.

    >>> round(mu_lower_bound(right=100, guesses=100, canaries=100, delta=0.0), 1)
    1.7
    >>> mu_lower_bound(right=50, guesses=100, canaries=100, delta=0.0)
    0.0
    """
    assert 0 <= right <= guesses <= canaries, "right guesses are guesses, guesses are about canaries"
    assert 0 <= delta < 1, "delta is a probability"
    assert 0 < confidence < 1, "confidence is a probability"
    low, high = 0.0, _LARGEST_MU
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        known = refuted(middle, right, guesses, canaries, delta, 1 - confidence)
        low, high = (middle, high) if known else (low, middle)
    return low


def refuted(mu: float, right: int, guesses: int, canaries: int, delta: float, doubt: float) -> bool:
    """Whether at least `right` of the guesses are right with a probability below `doubt` under this mu.

    Were it `doubt`, flipping one coin says how probable one right guess less is at least: the canary's guess was right
    in `right / canaries` of such events, and all events in which it is wrong are a test's false positives. So on down
    to no right guess; if the probabilities add up to more than 1, it is below `doubt`.
    """
    hits, misses = doubt * right / canaries, doubt * (guesses - right) / canaries
    for number in range(right - 1, -1, -1):
        least = float(ndtr(ndtri(max(hits - delta, 0.0)) - mu))
        if least <= misses or hits + misses > guesses / canaries:
            break
        hits += (least - misses) * number / (guesses - number)
        misses = least
    return hits + misses > guesses / canaries


def mu_of_independent(right: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """A bound like `mu_lower_bound`, from a guess about every canary, where views of canaries are independent.

    Then each guess is right with a probability of at most Phi(mu / 2) + delta / 2, and independently: Clopper's and
    Pearson's bound on that. It finds nearly all of mu where noise on different coordinates is independent. A bound that
    holds however canaries hang together cannot: it allows that sometimes all are given away together.

    >>> round(mu_of_independent(right=600, canaries=1000, delta=1e-5), 3)
    0.372
    """
    share = float(beta.ppf(1 - confidence, right, canaries - right + 1)) if right else 0.0
    return max(0.0, 2 * float(ndtri(share - delta / 2))) if share > delta / 2 else 0.0
