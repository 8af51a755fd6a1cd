"""The three numbers of every observer - claimed, accounted, attained - and the verdict, before a run."""

from __future__ import annotations

from typing import Any

from h2fdp.errors import UserError
from h2fdp.experiment.preparation import Preparation
from h2fdp.experiment.privacy_plan import planned_accounts
from h2fdp.nodes import LocalTeam
from h2fdp.privacy import OBSERVERS, Accounts, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS, attained, coarse


def privacy_report(run: Preparation) -> dict[str, Any]:
    """What the planned run gives each observer about its worst device, and all noises of the first interval.

    `claimed` is the paper's formula, `rdp` and `pld` upper bounds by the mixture of the specification, `coarse` the
    subsampled Gaussian of the whole upload, `attained` a lower bound. The verdict: *met* when the smaller upper bound
    is at most the claim, *broken* when the lower one is above it, *open* otherwise; *trusted* and *nothing released*
    say themselves why there is no number.

    Raises:
        UserError: the method adds no noise.
    """
    if run.noise is None:
        raise UserError("this method adds no noise, so there is nothing to calibrate", key="method")
    accounts = planned_accounts(run)
    calibration = run.noise.calibration
    claimed = calibration.claimed(calibration.local_releases, calibration.global_releases)
    return {
        "delta": run.config.privacy.delta,
        "factor": calibration.factor,
        "observers": {
            observer: {"claimed": claimed, **_numbers(run, accounts, observer, claimed)} for observer in OBSERVERS
        },
        "noises": noises(run),
    }


def _numbers(run: Preparation, accounts: Accounts, observer: Observer, claimed: float | None) -> dict[str, Any]:
    delta = run.config.privacy.delta
    rdp = ACCOUNTANTS["rdp"]
    classes = list(accounts.classes(observer))
    if not classes:
        trusted = observer == "edge"
        empty = dict.fromkeys(("rdp", "pld", "coarse", "attained"))
        return {**empty, "verdict": "trusted" if trusted else "nothing released", "device": None}
    worst = max(classes, key=lambda each: rdp.epsilon(each.composition, delta))
    numbers = {
        "rdp": rdp.epsilon(worst.composition, delta),
        "pld": ACCOUNTANTS["pld"].epsilon(worst.composition, delta),
        "coarse": coarse(worst.composition, delta),
        "attained": attained(worst.composition, delta),
    }
    edge, row = accounts.place_of(int(worst.devices[0]))
    subnet = next(each for each in run.topology.subnets if each.name == edge)
    verdict = verdict_of(claimed, min(numbers["rdp"], numbers["pld"]), numbers["attained"])
    return {**numbers, "verdict": verdict, "device": subnet.device_name(row)}


def verdict_of(claimed: float | None, accounted: float, attained_epsilon: float) -> str:
    """The words of every report.

    >>> verdict_of(1.0, 0.8, 0.2), verdict_of(1.0, 1.3, 0.2), verdict_of(1.0, 4.0, 1.2)
    ('met', 'open', 'broken')
    """
    if claimed is not None and accounted <= claimed:
        return "met"
    return "broken" if claimed is None or attained_epsilon > claimed else "open"


def noises(run: Preparation) -> list[dict[str, Any]]:
    """A row for each edge server and kind of release: who adds noise, and the first interval's standard deviations."""
    plan = run.cloud(LocalTeam({})).plan(0)
    rows = []
    for facts in run.blueprint.facts():
        part = plan.subnets.get(facts.name)
        if part is None or not part.noise_std.size:
            continue
        for kind, segment in (("local", 0), ("global", len(part.segments) - 1)):
            if part.kind(segment) == kind:
                levels = part.noise_std[segment]
                added_by = "each device" if facts.noise_source == "device" else "the edge server"
                rows.append(
                    {
                        "edge": facts.name,
                        "added_by": added_by,
                        "kind": kind,
                        "noise_std": float(levels.max()),
                        "smallest": float(levels.min()),
                    }
                )
    return rows
