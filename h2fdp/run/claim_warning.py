"""One warning at a run's start where the account will not confirm what is claimed."""

from __future__ import annotations

from h2fdp.privacy import Accounts, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.run.forecast import forecast
from h2fdp.run.privacy_report import planned_claim
from h2fdp.run.setup import RunSetup


def claim_warning(setup: RunSetup) -> str | None:
    """A sentence about the observers whose accounts will exceed the claim; None where none will, or nothing is claimed.

    It is an estimate that takes no time: the first interval stands for all of them.
    """
    if setup.noise is None or setup.leaks or setup.target is not None:
        return None
    if setup.traits.counts_iterations:
        setup = setup.exhausted()
    accounts = _rough_accounts(setup)
    claimed = planned_claim(setup, accounts)
    if claimed is None:
        return None
    found = {
        observer: _epsilon(accounts, observer, claimed, setup.config.privacy.delta) for observer in setup.observers
    }
    unmet = {observer: epsilon for observer, epsilon in found.items() if epsilon is not None and epsilon > claimed}
    if not unmet:
        return None
    told = ", ".join(f"{observer} {epsilon:.3g}" for observer, epsilon in unmet.items())
    hint = "see h2fdp privacy calibrate; privacy.calibration: accounted adds the noise that it takes"
    return f"epsilon {claimed:.4g} is claimed, but the account of the planned run is about: {told} (pld); {hint}"


def _rough_accounts(setup: RunSetup) -> Accounts:
    """The accounts of the planned run if all of its intervals are like the first, and devices take turns."""
    expected = next(forecast(setup.without_faults(), by_participants=False))
    share = expected.plan.participants / setup.topology.devices
    accounts = setup.empty_accounts()
    accounts.add(expected.releases(), times=max(1, round(setup.config.training.intervals * share)))
    return accounts


def _epsilon(accounts: Accounts, observer: Observer, claimed: float, delta: float) -> float | None:
    """Of the device that is worst by `rdp`; by `pld`, which takes longer, where `rdp` alone does not meet the claim."""
    rdp, pld = ACCOUNTANTS["rdp"], ACCOUNTANTS["pld"]
    held = [(rdp.epsilon(each.composition, delta), each.composition) for each in accounts.classes(observer)]
    if not held:
        return None
    epsilon, composition = max(held, key=lambda each: each[0])
    return epsilon if epsilon <= claimed else min(epsilon, pld.epsilon(composition, delta))
