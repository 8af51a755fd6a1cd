"""What the planned run gives each observer: all numbers; a warning where the account will not confirm the claim."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from h2fdp.errors import UserError
from h2fdp.privacy import ADDED_BY, Accounts, AggregationCounts, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS, coarse
from h2fdp.privacy.calibration import Composition, smallest_factor
from h2fdp.privacy.statement import MOST_LISTED, epsilons, worst_epsilon
from h2fdp.protocol.subnet_facts import tier_aggregations
from h2fdp.run.forecast import (
    first_interval,
    planned_accounts,
    rough_accounts,
)
from h2fdp.run.setup import RunSetup

LEAKS = "oracle sends raw estimates to the cloud and on untrusted ways; no epsilon covers that"
_NEARLY_ALL = 0.9  # of the noise


def privacy_report(run: RunSetup) -> dict[str, Any]:
    """What the planned run gives each observer, each number about the device that is worst by it; and all noises.

    `claimed` is the paper's formula, `rdp` and `pld` upper bounds by the mixture of the specification, `coarse` the
    subsampled Gaussian of the whole upload. The verdict is about the claim, or about the `target` where noise was
    calibrated to an account: *met* when the smaller upper bound is at most that, *open* otherwise; *trusted*, *nothing
    released* and *not targeted* say themselves why there is none.

    Raises:
        UserError: the method adds no noise.
    """
    if run.noise is None:
        raise UserError("this method adds no noise, so there is nothing to calibrate", key="method")
    if run.leaks:
        raise UserError(LEAKS, key="control.estimates")
    accounts = planned_accounts(run)
    claimed = planned_claim(run, accounts)
    return {
        "delta": run.config.privacy.delta,
        "adjacency": run.config.privacy.adjacency,
        "factor": run.factor,
        "target": run.target,
        "observers": {each: {"claimed": claimed, **_numbers(run, accounts, each, claimed)} for each in run.observers},
        "noises": noises(run),
        "decides": who_decides(run, accounts),
        "iterations": run.iterations,
        "notes": list(run.notes),
    }


def who_decides(run: RunSetup, accounts: Accounts) -> str | None:
    """A sentence about who decides the common factor on all noises: the edge server whose devices need the most noise,
    or else the observer; and who alone would need least. None where none would need less than nine tenths.

    Args:
        accounts: of the planned run.
    """
    if run.target is None or run.topology.devices > MOST_LISTED:
        return None
    accountant, delta = ACCOUNTANTS[run.accountant], run.config.privacy.delta
    parts: dict[str, dict[str, list[Composition]]] = {"edge server": defaultdict(list), "observer": defaultdict(list)}
    for observer in run.target_observers:
        for each in accounts.classes(observer):
            for edge in {accounts.place_of(int(device))[0] for device in each.devices}:
                parts["edge server"][edge].append(each.composition)
            parts["observer"][observer].append(each.composition)
    for kind, groups in parts.items():
        found = {name: epsilons(run.accountant, of, delta)[1] for name, of in groups.items()}
        most, least = (choose(found, key=found.__getitem__, default="") for choose in (max, min))
        if most == least:
            continue
        allowed = run.target / (1 + accountant.spread)
        needed = smallest_factor(groups[least], allowed, lambda each: accountant.epsilon(each, delta))
        if needed <= _NEARLY_ALL:
            return f"{kind} {most} decides the noise: {least} alone would need {1 / needed:.2g} times less"
    return None


def _numbers(run: RunSetup, accounts: Accounts, observer: Observer, claimed: float | None) -> dict[str, Any]:
    delta = run.config.privacy.delta
    classes = list(accounts.classes(observer))
    if not classes:
        empty = dict.fromkeys(("rdp", "pld", "coarse"))
        return {**empty, "verdict": run.placement.silence(observer), "device": None}
    compositions = [each.composition for each in classes]
    (by_rdp, rdp), (by_pld, pld) = (epsilons(name, compositions, delta) for name in ("rdp", "pld"))
    closely = [each for each, found in zip(classes, by_pld, strict=True) if found is not None]
    numbers = {"rdp": rdp, "pld": pld, "coarse": max(coarse(each.composition, delta) for each in closely)}
    edge, row = accounts.place_of(int(classes[by_rdp.index(rdp)].devices[0]))
    subnet = next(each for each in run.topology.subnets if each.name == edge)
    verdict = run.verdict(observer, claimed, min(rdp, pld))
    return {**numbers, "verdict": verdict, "device": subnet.device_name(row)}


def planned_claim(run: RunSetup, accounts: Accounts) -> float | None:
    """What is claimed of the planned run, which will hold these accounts."""
    assert run.noise is not None, "nothing is claimed where nothing is promised"
    intervals = run.config.training.intervals
    local = len(run.aggregation_times.offsets(run.local_steps)) * intervals
    counts = tier_aggregations(run.aggregation_times, run.topology, run.local_steps)
    tiers = {tier: count * intervals for tier, count in counts.items()}
    return run.noise.claimed(accounts, AggregationCounts(local, intervals, run.traits.buffers, tiers))


def noises(run: RunSetup) -> list[dict[str, Any]]:
    """A row for each edge server and kind of release: who adds noise, and the first interval's standard deviations.

    They are those of an interval in which nothing fails; who averages fewer devices adds more.
    """
    # By what the ledger calls them: where local and global releases are alike, one row says it.
    levels = {(edge, kind): (source, of) for edge, source, kind, of in run.noises_of(first_interval(run)) if of.size}
    shared = {facts.name for facts in run.blueprint.facts if facts.shares_noise}
    return [
        {
            "edge": edge,
            "added_by": "the devices, each a share" if edge in shared else ADDED_BY[source],
            "kind": kind,
            "noise_std": float(of.max()),
            "smallest": float(of.min()),
        }
        for (edge, kind), (source, of) in levels.items()
    ]


def claim_warning(setup: RunSetup) -> str | None:
    """A sentence about the observers whose accounts will exceed the claim; None where none will, or nothing is claimed.

    It is a quick estimate, which takes all intervals to be like the first.
    """
    if setup.noise is None or setup.leaks or setup.target is not None:
        return None
    if setup.traits.counts_iterations:
        setup = setup.exhausted()
    accounts = rough_accounts(setup)
    claimed = planned_claim(setup, accounts)
    if claimed is None:
        return None
    delta, unmet = setup.config.privacy.delta, []
    for observer in setup.observers:
        rdp = accounts.worst(observer, delta)
        if rdp is not None and rdp > claimed:  # only then `pld`, which takes longer
            pld = worst_epsilon(accounts, observer, delta, "pld")
            epsilon = rdp if pld is None else min(rdp, pld)
            unmet += [f"{observer} {epsilon:.3g}"] if epsilon > claimed else []
    if not unmet:
        return None
    hint = "see h2fdp privacy calibrate; privacy.calibration: accounted adds the noise that it takes"
    about = f"the account of the planned run is about: {', '.join(unmet)} (pld)"
    return f"epsilon {claimed:.4g} is claimed, but {about}; {hint}"
