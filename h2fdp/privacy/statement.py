"""Epsilon of each observer by several accountants, for the worst device and for every device; and what it rules out.

A card translates an account into what an attacker can do with it. All of it follows from the privacy profile, the
pairs (epsilon, delta) that hold for every device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from h2fdp.privacy.accounting import ACCOUNTANTS, Composition, ReleaseType
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.privacy.accounts import Accounts, DeviceClass
from h2fdp.privacy.places import Observer

MOST_LISTED = 10_000  # devices that are listed one by one
DELTA = "privacy.delta"
FALSE_POSITIVES = (0.01, 0.001)
CANDIDATES = 10  # of which one is the record
CARD = {  # the numbers of a card, and how tables call them
    "epsilon": "epsilon",
    "mu": "mu",
    **{f"tpr_at_{rate:g}": f"true positives at {rate * 100:g} % false" for rate in FALSE_POSITIVES},
    "reconstruction": f"right among {CANDIDATES}",
}
_POINTS = 24  # of a profile: true-positive rates are at most 2 % above those of a fine grid
_NEARLY = 1e-3  # counts as 0 against the stated epsilon
_HALVINGS = 70  # of logarithms: to the last bit of a double
_FARTHEST = 3.5  # standard deviations: beyond the threshold with a false-positive rate of 0.001
_QUICK = ("rdp", "classic-rdp")


def about_delta(delta: float, count: int, devices: bool) -> str | None:
    """The warning about a delta that allows to publish a record, or a device's update, of so many; else None."""
    if delta * count <= 1:
        return None
    what = f"{count} devices" if devices else f"the {count} records of the smallest device"
    text = f"{DELTA}: {delta:g} allows a mechanism that publishes one of {what}, drawn at random, as it is"
    return f"{text}; expected far less than {1 / count:.2g}"


def statement(
    held: Mapping[Observer, Sequence[DeviceClass]], names: Sequence[str], delta: float, accountants: Sequence[str]
) -> dict[str, Any]:
    """Accounted epsilon of every observer.

    Args:
        held: see `Accounts.held`; of several runs, the accounts composed over them.
        names: of all devices, in the order of the tree.
        accountants: names of `ACCOUNTANTS`; slow ones look at those accounts that may be the worst, see `epsilons`.

    Returns:
        `delta`; `worst`: observer -> accountant -> the smallest computed epsilon that no device's exceeds, and the
        `device` that is worst by the first accountant, and of `single-edge` the `edge` server; `devices`: name ->
        observer -> accountant -> epsilon, null where it was not looked for (empty for more than 10,000 devices). An
        observer that received nothing private about a device is missing there.
    """
    devices: dict[str, dict[str, Any]] = {name: {} for name in names} if len(names) <= MOST_LISTED else {}
    worst: dict[str, Any] = {}
    for observer, classes in held.items():
        if not classes:
            continue
        by = {name: epsilons(name, [each.composition for each in classes], delta) for name in accountants}
        first = by[accountants[0]][0]
        device = max(range(len(classes)), key=lambda place: first[place] or 0.0)
        worst[observer] = {"device": names[int(classes[device].devices[0])]}
        worst[observer] |= {"edge": classes[device].edge} if classes[device].edge else {}
        worst[observer] |= {name: largest for name, (_, largest) in by.items()}
        for place, each in enumerate(classes):
            found = {name: values[place] for name, (values, _) in by.items()}
            for device in each.devices if devices else ():
                devices[names[device]][observer] = _larger(devices[names[device]].get(observer), found)
    return {"delta": delta, "worst": worst, "devices": devices}


def _larger(one: Mapping[str, float | None] | None, other: Mapping[str, float | None]) -> Mapping[str, float | None]:
    """The larger epsilons of two edge servers about a device; null where one of them was not computed."""
    if one is None:
        return other
    pairs = {name: (one[name], value) for name, value in other.items()}
    return {name: None if a is None or b is None else max(a, b) for name, (a, b) in pairs.items()}


def epsilons(accountant: str, compositions: Sequence[Composition], delta: float) -> tuple[list[float | None], float]:
    """Epsilon of each account, None where it was not looked for; and the largest of all.

    A slow accountant takes them by falling epsilon by `rdp`, which bounds all that are left, until that bound is not
    above its largest epsilon so far: that is the largest of all. However many that takes, none is cut short: a run
    whose target this accountant judges is asked about all of them, too.

    Returns:
        (n,) epsilons; a number that is an upper bound for every account.
    """
    rdp = [ACCOUNTANTS["rdp"].epsilon(each, delta) for each in compositions]
    slow = ACCOUNTANTS[accountant]
    if accountant in _QUICK:
        exact = rdp if accountant == "rdp" else [slow.epsilon(each, delta) for each in compositions]
        return list(exact), max(exact)
    found: list[float | None] = [None] * len(compositions)
    largest = 0.0
    for looked_at, place in enumerate(sorted(range(len(rdp)), key=lambda each: -rdp[each])):
        if looked_at and rdp[place] <= largest:
            break
        epsilon = slow.epsilon(compositions[place], delta)
        found[place], largest = epsilon, max(largest, epsilon)
    return found, largest


def worst_epsilon(
    accounts: Accounts, observer: Observer, delta: float, accountant: str, most: float = math.inf
) -> float | None:
    """Epsilon of the device about which an observer holds most, for an account that is asked for in every interval.

    As in `epsilons`, and accounts that another one dominates are passed over, too.

    Args:
        most: types of releases that may be composed, counted in each account that is looked at.

    Returns:
        None where the observer received nothing private, and where this takes more than `most`.
    """
    if accountant == "rdp":
        return accounts.worst(observer, delta)
    found: float | None = None
    looked_at: list[Composition] = []
    for bound, held in accounts.by_rdp(observer, delta):
        if found is not None and accountant not in _QUICK and bound <= found:
            break
        if any(_dominates(each, held) for each in looked_at):
            continue
        looked_at.append(held)
        if sum(map(_kinds, looked_at)) > most:
            return None
        found = max(found or 0.0, ACCOUNTANTS[accountant].epsilon(held, delta, found or 0.0))
    return found


def _kinds(held: Composition) -> int:
    """Types of releases that are composed: Gaussians without sampling are one Gaussian together."""
    plain = sum(kind.sampling_rate == 1.0 and kind.law == "gaussian" for kind in held)
    return len(held) - max(plain - 1, 0)


def _dominates(one: Composition, other: Composition) -> bool:
    """Whether the first account never gives the smaller epsilon: for each release of the other it has one of its own,
    like it with no more noise. (Noise can be added to that one later.)"""
    if sum(other.values()) > sum(one.values()):
        return False
    return all(_as_noisy(one, kind) >= _as_noisy(other, kind) for kind in other)


def _as_noisy(composition: Composition, most: ReleaseType) -> int:
    """The number of releases that are like this one, with at most its noise."""
    return sum(
        count
        for kind, count in composition.items()
        if kind.noise_multiplier <= most.noise_multiplier
        and (kind == most or replace(kind, noise_multiplier=most.noise_multiplier) == most)
    )


def verdict_of(promised: float | None, accounted: float) -> str:
    """The words of every report: an account is an upper bound, so one above the promise does not refute it.

    Args:
        promised: the epsilon that is judged: a claim, or the target that noise was calibrated to.

    >>> verdict_of(1.0, 0.8), verdict_of(1.0, 1.3), verdict_of(None, 1.3)
    ('met', 'open', 'open')
    """
    return "met" if promised is not None and accounted <= promised else "open"


def card(held: Mapping[Observer, Sequence[DeviceClass]], delta: float, accountant: str) -> dict[str, dict[str, float]]:
    """Observer -> the numbers of `CARD`, which no attack exceeds about any device.

    Guarantee: upper bounds, in both directions of the neighbours, as the epsilons of the accountant are. `mu`: the
    smallest one whose Gaussian needs at least the delta of the account at each epsilon from 0 to the stated one, which
    is the point at `delta`; so no test has a true-positive rate above Phi(Phi^-1(false) + mu) + delta (in the tail
    beyond, a sampled Gaussian is no better than one without sampling). For Gaussians without sampling it is exact.
    `tpr_at_x`: of any test of whether a record (or device) is there, at a false-positive rate of x.
    `reconstruction`: the chance to identify it among `CANDIDATES` equally likely ones, knowing everything else.
    Source: Dong, Roth and Su 2022, Prop. 6 and Cor. 1; Hayes, Mahloujifar and Balle 2023, Theorem 2.

    >>> mine = DeviceClass(np.array([0]), {ReleaseType(2.0, 1, 1.0, "fixed"): 4})
    >>> {name: round(value, 2) for name, value in card({"cloud": [mine]}, 1e-5, "pld")["cloud"].items()}
    {'epsilon': 4.38, 'mu': 1.0, 'tpr_at_0.01': 0.09, 'tpr_at_0.001': 0.02, 'reconstruction': 0.39}
    """
    cards = {}
    for observer, classes in held.items():
        if classes:
            pairs = epsilon_profile([each.composition for each in classes], delta, accountant)
            kept = pairs[:, pairs[1] >= delta]
            rates = (*FALSE_POSITIVES, 1 / CANDIDATES)
            values = [float(kept[0, -1]), float(gaussian_mu(*kept).max()), *(power(pairs, rate) for rate in rates)]
            cards[observer] = dict(zip(CARD, values, strict=True))
    return cards


def epsilon_profile(compositions: Sequence[Composition], delta: float, accountant: str) -> np.ndarray:
    """(2, n) epsilons and deltas that hold together for each of these accounts; the last ones at `delta`.

    The deltas are those of a Gaussian with that last pair, or of a larger one without a delta below the account's at
    epsilon 0, at thresholds from where its errors are equal to those of a test with few false positives.
    """
    epsilon = epsilons(accountant, compositions, delta)[1]
    if math.isinf(epsilon):
        return np.array([[epsilon], [delta]])
    mu = float(gaussian_mu(epsilon, delta))
    while (most := float(gaussian_delta(mu, 0.0))) < 1:
        found = epsilons(accountant, compositions, most)[1]
        if found <= _NEARLY * epsilon:
            break
        mu = float(gaussian_mu(found, most))
    farthest = max(mu, _FARTHEST, gaussian_epsilon(mu, delta) / mu + mu / 2)
    thresholds = np.linspace(mu / 2, farthest, _POINTS)
    deltas = gaussian_delta(mu, mu * thresholds - mu**2 / 2)
    deltas = np.append(deltas[(deltas > 0) & (deltas < 1)], delta)
    return np.array([[epsilons(accountant, compositions, float(each))[1] for each in deltas], deltas])


def power(pairs: np.ndarray, false_positives: float) -> float:
    """The largest true-positive rate that the pairs (2, n) of a profile leave to any test."""
    epsilon, delta = pairs
    with np.errstate(over="ignore"):
        few, many = delta + np.exp(epsilon) * false_positives, 1 - np.exp(-epsilon) * (1 - delta - false_positives)
    return float(min(few.min(), many.min(), 1.0))


def gaussian_delta(mu: np.ndarray | float, epsilon: np.ndarray | float) -> np.ndarray:
    """Delta of a Gaussian whose mean moves by mu standard deviations (Balle and Wang 2018, Theorem 8)."""
    kept, lost = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(kept) * -np.expm1(np.minimum(lost - kept, 0.0)))


def gaussian_mu(epsilon: np.ndarray | float, delta: np.ndarray | float) -> np.ndarray:
    """(...) mu of the Gaussian that has just this delta at this epsilon, rounded up; inf where epsilon is."""
    low, high = np.full(np.shape(epsilon), 1e-12), np.full(np.shape(epsilon), 1e6)
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        below = gaussian_delta(middle, np.minimum(epsilon, 1e12)) < delta
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(np.isinf(epsilon), np.inf, high)
