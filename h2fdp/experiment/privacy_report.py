"""The three numbers of every observer - claimed, accounted, attained - and the verdict, before a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from h2fdp.errors import UserError
from h2fdp.experiment.preparation import Preparation
from h2fdp.experiment.privacy_plan import planned_accounts
from h2fdp.nodes import LocalTeam
from h2fdp.privacy import OBSERVERS, Accounts, Observer
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType, attained, coarse
from h2fdp.privacy.accounts import DeviceClass
from h2fdp.privacy.statement import MOST_CLOSELY, verdict_of

LEAKS = "oracle sends raw estimates to the cloud and on untrusted ways; no epsilon covers that"


def privacy_report(run: Preparation) -> dict[str, Any]:
    """What the planned run gives each observer, each number about the device that is worst by it; and all noises.

    `claimed` is the paper's formula, `rdp` and `pld` upper bounds by the mixture of the specification, `coarse` the
    subsampled Gaussian of the whole upload, `attained` a lower bound. The verdict: *met* when the smaller upper bound
    is at most the claim, *broken* when the lower one is above it, *open* otherwise; *trusted* and *nothing released*
    say themselves why there is no number.

    Raises:
        UserError: the method adds no noise.
    """
    if run.noise is None:
        raise UserError("this method adds no noise, so there is nothing to calibrate", key="method")
    if run.leaks:
        raise UserError(LEAKS, key="control.estimates")
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
    rdp, pld = ACCOUNTANTS["rdp"], ACCOUNTANTS["pld"]
    classes = list(accounts.classes(observer))
    if not classes:
        trusted = observer == "edge"
        empty = dict.fromkeys(("rdp", "pld", "coarse", "attained"))
        return {**empty, "verdict": "trusted" if trusted else "nothing released", "device": None}
    classes.sort(key=lambda each: -rdp.epsilon(each.composition, delta))
    closely = classes[:MOST_CLOSELY]
    lower = [attained_about(run, each, delta) for each in closely]
    upper = [min(rdp.epsilon(each.composition, delta), pld.epsilon(each.composition, delta)) for each in closely]
    numbers = {
        "rdp": rdp.epsilon(classes[0].composition, delta),
        "pld": max(pld.epsilon(each.composition, delta) for each in closely),
        "coarse": max(coarse(each.composition, delta) for each in closely),
        "attained": max((each for each in lower if each is not None), default=None),
    }
    edge, row = accounts.place_of(int(classes[0].devices[0]))
    subnet = next(each for each in run.topology.subnets if each.name == edge)
    verdict = verdict_of(claimed, max(upper), numbers["attained"])
    return {**numbers, "verdict": verdict, "device": subnet.device_name(row)}


def attained_about(run: Preparation, devices: DeviceClass, delta: float) -> float | None:
    """What a dominating record of the worst of these devices really gets; None for `clip_scope: record`.

    It turns the clipped batch gradient by 2G when other records are drawn with it. Alone it moves it by G at most, from
    nothing: such draws, of probability (1-q)^(D-1), are left out, which keeps this a lower bound for small batches.
    With record clipping, what one record moves depends on how many are drawn; no bound is given.
    """
    if run.config.training.clip_scope == "record":
        return None
    numbers = devices.devices
    company = 1 - (1 - run.blueprint.rates[numbers]) ** (run.data.sizes[numbers] - 1)
    share = float(company.max())
    composition: dict[ReleaseType, int] = {}
    for kind, count in devices.composition.items():
        seen = replace(kind, sampling_rate=kind.sampling_rate * share)
        composition[seen] = composition.get(seen, 0) + count
    return attained(composition, delta)


def noises(run: Preparation) -> list[dict[str, Any]]:
    """A row for each edge server and kind of release: who adds noise, and the first interval's standard deviations.

    They are those of an interval in which nothing fails; an edge server that averages fewer devices adds more.
    """
    plan = run.without_faults.cloud(LocalTeam({})).plan(0)
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
