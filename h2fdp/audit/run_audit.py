"""An empirical privacy audit: one run with canaries among the records, guessed from what one observer received.

Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Corollary 5.4: the largest scores are called in, the smallest out, the
others left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta, binom

from h2fdp.arithmetic import run_arithmetic
from h2fdp.audit.canaries import CanaryDesign, CanaryEffect, CanaryKind, TurningEffect
from h2fdp.audit.instrumented_run import InstrumentedRun, canary_gradient, observations
from h2fdp.errors import UserError, not_one_of
from h2fdp.privacy import OBSERVERS, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS, Composition
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.prelude import add_planned, with_prelude
from h2fdp.run.recorders import OnInterval
from h2fdp.run.setup import RunSetup
from h2fdp.training.local_steps import head_size

_MOST_PER_BATCH = 1.0  # canaries that meet in one batch hide each other and hinder training
# Why an observer may have nothing to be asked about.
UNSEEN = {
    "edge": "every edge server is trusted: it sees raw updates and is outside the threat model",
    "peer": "no subnet has two devices, so no device has a peer",
}


def spies(run: RunSetup) -> list[int]:
    """For each device, the other one of its subnet whose own noise is the largest part of the average; -1 if alone.

    It is fixed for the whole run: a device's noise is proportional to q_j, its part of the average to rho_j q_j.
    """
    found: list[int] = []
    for facts, first in zip(run.blueprint.facts, run.blueprint.first_devices.tolist(), strict=False):
        rows = np.arange(len(facts.records))
        parts = facts.shares(rows, run.config.training.weights) * facts.sampling_rates
        loudest, *others = np.argsort(-parts, kind="stable").tolist()
        found += [first + (loudest if row != loudest else others[0]) if others else -1 for row in rows.tolist()]
    return found


def audited_devices(run: RunSetup, observer: Observer) -> np.ndarray:
    """Numbers of the devices of which this observer receives anything that the guarantee covers; may be none."""
    found: list[int] = []
    for facts, first in zip(run.blueprint.facts, run.blueprint.first_devices.tolist(), strict=False):
        if observer in facts.levels(passed=1) and (observer != "peer" or len(facts.records) > 1):
            found += range(first, first + len(facts.records))
    return np.array(found, dtype=np.int64)


def check_request(run: RunSetup, observer: str, canaries: int, kind: str, confidence: float) -> None:
    """Refuse what is no audit, with a UserError."""
    for key, found, known in (("observer", observer, OBSERVERS), ("kind", kind, get_args(CanaryKind))):
        if found not in known:
            raise UserError(not_one_of(found, known), key=key)
    placement, blueprint, method, training = run.placement, run.blueprint, run.config.method, run.config.training
    unusual = observer == "public" and (method.server.name != "average" or method.upcycle is not None)
    tree = "an audit knows one tier of edge servers; expected a network without edges below edges, or a star"
    sums = "an audit reads what each edge server sends to the cloud, and a secure sum does not show that"
    rounds = "canaries read vectors, and devices send residues of integers; expected null"
    server = "an audit of public recovers the averages from the global models; expected server average without upcycle"
    poisson = "an audit needs poisson: in a batch of fixed size a canary would displace a record"
    heads = "canaries are the last coordinates of models, where the heads are that never leave devices"
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
        (run.config.compression.stated, "compression", "audits require whole uploads and models; expected null"),
        (run.topology.adversaries, "topology.adversaries", "audits require honest nodes; expected null"),
        (run.traits.buffers, "method.schedule", "an audit knows devices that begin together; expected fixed"),
        (head_size(blueprint.objective, blueprint.module()), "method.objective", heads),
        (blueprint.momentum, "training.momentum", "canaries do not support momentum; expected 0"),
        (unusual, "method.server", server),
        (training.sampling != "poisson", "training.sampling", poisson),
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

    1. N canaries are given to devices of which an observer receives something noisy, each in or out by a coin. An
       observer is asked about those of its own devices; one that has none is left out.
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
    if run.topology.visits is not None:
        raise UserError("audits are of devices that stay at their edge server; expected no mobility", key="topology")
    for observer in observers:
        check_request(run, observer, canaries, kind, confidence)
    audited = {observer: audited_devices(run, observer) for observer in observers}
    if not any(devices.size for devices in audited.values()):
        raise UserError(f"nothing to audit; {UNSEEN[observers[0]]}", key="observer")
    design = CanaryDesign.drawn(run.blueprint.streams, kind, canaries, np.unique(np.concatenate([*audited.values()])))
    check_density(design, run.blueprint.rates)
    scores, watch, intervals = _scores(run, audited, design, noise_scale, on_interval or (lambda row: None))
    found = []
    for observer, devices in audited.items():
        asked = np.isin(design.owners, devices)
        if asked.any():
            known, owners = int(asked.sum()), design.owners[asked]
            guesses = guesses_planned(known)
            right = int(np.sum(guess(scores[observer][asked], guesses) == np.where(design.included[asked], 1, -1)))
            held = [each for each in watch.accounts.classes(observer) if np.isin(each.devices, owners).any()]
            found.append(
                Audit(
                    observer=observer,
                    kind=kind,
                    canaries=known,
                    devices=len(np.unique(owners)),
                    per_batch=design.per_batch(run.blueprint.rates),
                    intervals=intervals,
                    guesses=guesses,
                    right=right,
                    epsilon_lower=epsilon_lower_bound(right, guesses, known, run.config.privacy.delta, confidence),
                    confidence=confidence,
                    delta=run.config.privacy.delta,
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
                    rate = float(blueprint.rates[seen.device])
                    score[at] += effect.score(seen.values[at], unit, seen.noise_std, seen.segments, rate)
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
    """The audit with the numbers that it is held against: for tables and JSON."""
    numbers = {key: value for key, value in vars(found).items() if key != "compositions"}
    return numbers | {accountant: found.accounted(accountant) for accountant in ("rdp", "pld")}


GUESSED_SHARE = 0.2  # fixed in advance: near the best for epsilons of 1 to 8 and some hundred canaries
_HALVINGS = 60  # of an interval of at most about 40: to the last bit of a double


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


def epsilon_lower_bound(right: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """The smallest epsilon that `right` of `guesses` right guesses leave possible; 0 says nothing.

    eps_LB = sup{e >= 0 : chance_of_as_many(e) < 1 - confidence}. For a mechanism that is (epsilon, delta)-DP for each
    of the canaries' records, P[eps_LB > epsilon] <= 1 - confidence.

    Assumptions: each canary was in or out by its own fair coin; which `guesses` of them would be guessed (not how) may
    depend on the observation, their number may not.

    Args:
        canaries: N, guessed or not.

    >>> round(epsilon_lower_bound(right=100, guesses=100, canaries=100, delta=0.0), 3)  # log(p / (1 - p)), p^100 = 0.05
    3.493
    >>> epsilon_lower_bound(right=50, guesses=100, canaries=100, delta=0.0)
    0.0
    """
    assert 0 <= right <= guesses <= canaries, "right guesses are guesses, guesses are about canaries"
    assert 0 <= delta < 1, "delta is a probability"
    assert 0 < confidence < 1, "confidence is a probability"
    doubt = 1 - confidence
    if right == 0 or chance_of_as_many(0.0, right, guesses, canaries, delta) >= doubt:
        return 0.0
    # At delta = 0 the bound is Clopper's and Pearson's; delta only lowers it. Below it, the chance grows with epsilon.
    low, high = 0.0, float(logit(beta.ppf(doubt, right, guesses - right + 1)))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if chance_of_as_many(middle, right, guesses, canaries, delta) < doubt:
            low = middle
        else:
            high = middle
    return low


def chance_of_as_many(epsilon: float, right: int, guesses: int, canaries: int, delta: float) -> float:
    """Under (epsilon, delta)-DP, at least `right` of `guesses` guesses are right with at most this probability.

    P[B >= v] + 2 N delta max_{1<=i<=v} P[v-i <= B < v]/i with B ~ Bin(r, 1/(1+exp(-epsilon))); may exceed 1.
    """
    share = expit(epsilon)
    by_luck = float(binom.sf(right - 1, guesses, share))
    if delta == 0 or right == 0:
        return by_luck
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, share))
    return by_luck + 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1)))
