"""Epsilon of each observer by several accountants: for the worst device and for every device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.accounts import DeviceClass
from h2fdp.privacy.releases import Observer

MOST_LISTED = 10_000  # devices that are listed one by one
MOST_CLOSELY = 24  # distinct accounts of an observer, the worst first, that slow accountants look at


class HeldAccounts(Protocol):
    """What several observers hold about devices: `Accounts`, or several of them together."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """All that there are."""
        ...

    def classes(self, observer: Observer) -> Iterator[DeviceClass]:
        """The devices that this observer has received anything of, equal accounts together."""
        ...


def statement(accounts: HeldAccounts, names: Sequence[str], delta: float, accountants: Sequence[str]) -> dict[str, Any]:
    """Accounted epsilon of every observer.

    Args:
        names: of all devices, in the order of the tree.
        accountants: names of `ACCOUNTANTS`; by the first one's order, the others look at the 24 worst distinct accounts
            of each observer (null elsewhere).

    Returns:
        `delta`; `worst`: observer -> accountant -> the largest epsilon, and the `device` that is worst by the first
        accountant; `devices`: name -> observer -> accountant ->
        epsilon (empty for more than 10,000 devices). An observer that received nothing private about a device is
        missing there.
    """
    devices: dict[str, dict[str, Any]] = {name: {} for name in names} if len(names) <= MOST_LISTED else {}
    worst: dict[str, Any] = {}
    first, *others = accountants
    for observer in accounts.observers:
        classes = [(ACCOUNTANTS[first].epsilon(each.composition, delta), each) for each in accounts.classes(observer)]
        classes.sort(key=lambda item: -item[0])
        for rank, (epsilon, each) in enumerate(classes):
            found: dict[str, float | None] = {first: epsilon}
            for name in others:
                found[name] = ACCOUNTANTS[name].epsilon(each.composition, delta) if rank < MOST_CLOSELY else None
            for device in each.devices if devices else ():
                devices[names[device]][observer] = found
            so_far = worst.setdefault(observer, {"device": names[int(each.devices[0])]})
            for name, value in found.items():
                if value is not None:
                    so_far[name] = max(value, so_far.get(name, 0.0))
    return {"delta": delta, "worst": worst, "devices": devices}


def verdict_of(promised: float | None, accounted: float, attained_epsilon: float | None) -> str:
    """The words of every report.

    Args:
        promised: the epsilon that is judged: a claim, or the target that noise was calibrated to.

    >>> verdict_of(1.0, 0.8, 0.2), verdict_of(1.0, 1.3, 0.2), verdict_of(1.0, 4.0, 1.2)
    ('met', 'open', 'broken')
    """
    if promised is not None and accounted <= promised:
        return "met"
    return "broken" if promised is not None and attained_epsilon is not None and attained_epsilon > promised else "open"
