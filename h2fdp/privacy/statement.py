"""What is said about accounts: for each observer the worst device, and every device, by several accountants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.releases import OBSERVERS

MOST_LISTED = 10_000  # devices that are listed one by one


def statement(accounts: Accounts, names: Sequence[str], delta: float, accountants: Sequence[str]) -> dict[str, Any]:
    """Accounted epsilon of every observer.

    Args:
        names: of all devices, in the order of the tree.
        accountants: names of `ACCOUNTANTS`; the first one says which device is the worst.

    Returns:
        `delta`; `worst`: observer -> accountant -> epsilon, and `device`; `devices`: name -> observer -> accountant ->
        epsilon (empty for more than 10,000 devices). An observer that received nothing private about a device is
        missing there.
    """
    devices: dict[str, dict[str, Any]] = {name: {} for name in names} if len(names) <= MOST_LISTED else {}
    worst: dict[str, Any] = {}
    for observer in OBSERVERS:
        for each in accounts.classes(observer):
            found = {name: ACCOUNTANTS[name].epsilon(each.composition, delta) for name in accountants}
            if observer not in worst or found[accountants[0]] > worst[observer][accountants[0]]:
                worst[observer] = {**found, "device": names[int(each.devices[0])]}
            for device in each.devices if devices else ():
                devices[names[device]][observer] = found
    return {"delta": delta, "worst": worst, "devices": devices}
