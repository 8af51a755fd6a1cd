"""Epsilon of each observer by several accountants: for the worst device and for every device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from h2fdp.privacy.accounting import ACCOUNTANTS, Composition, ReleaseType
from h2fdp.privacy.accounts import Accounts, DeviceClass
from h2fdp.privacy.places import Observer

MOST_LISTED = 10_000  # devices that are listed one by one
DELTA = "privacy.delta"
_QUICK = ("rdp", "classic-rdp")


def about_delta(delta: float, count: int, devices: bool) -> str | None:
    """What must be said of a delta that allows to publish a record, or a device's update, of so many; else None."""
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
        held: see `Accounts.held`; of several runs, what they hold together.
        names: of all devices, in the order of the tree.
        accountants: names of `ACCOUNTANTS`; slow ones look at those accounts that may be the worst, see `epsilons`.

    Returns:
        `delta`; `worst`: observer -> accountant -> an epsilon that no device's exceeds, the smallest known, and the
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
    """Of what two edge servers hold about a device; null where one of them was not looked for."""
    if one is None:
        return other
    pairs = {name: (one[name], value) for name, value in other.items()}
    return {name: None if a is None or b is None else max(a, b) for name, (a, b) in pairs.items()}


def epsilons(accountant: str, compositions: Sequence[Composition], delta: float) -> tuple[list[float | None], float]:
    """Epsilon of each account, None where it was not looked for; and the largest of all.

    A slow accountant takes them by falling epsilon by `rdp`, which bounds all that are left, until that bound is not
    above what it has found: then it has found the largest. However many that takes, none is cut short: a run that is
    held to a target by this accountant is asked about all of them, too.

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
    """How many releases are like this one, with at most its noise."""
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
