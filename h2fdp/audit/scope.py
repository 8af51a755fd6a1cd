"""Whom an audit is about: the devices an observer can be asked about, its spies, and what cannot be audited."""

from __future__ import annotations

from typing import get_args

import numpy as np

from h2fdp.audit.canaries import CanaryDesign, CanaryKind
from h2fdp.errors import UserError
from h2fdp.privacy import OBSERVERS, GradientSumMechanism, Observer
from h2fdp.run.setup import RunSetup
from h2fdp.training.clipping import ClipScope

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
        size = len(facts.records)
        if observer not in facts.views(passed=1) or (observer == "peer" and size == 1):
            continue
        found += range(first, first + size)
    return np.array(found, dtype=np.int64)


def check_request(run: RunSetup, observer: str, canaries: int, kind: str, confidence: float) -> None:
    """Refuse what is no audit, with a UserError."""
    if run.topology.depth > 1:
        text = "an audit knows one tier of edge servers; expected a network without edges below edges, or a star"
        raise UserError(text, key="topology")
    if observer not in OBSERVERS:
        raise UserError(f'expected one of {", ".join(OBSERVERS)}, found "{observer}"', key="observer")
    if kind not in get_args(CanaryKind):
        raise UserError(f'expected one of {", ".join(get_args(CanaryKind))}, found "{kind}"', key="kind")
    if canaries < 1:
        raise UserError(f"expected a whole number of at least 1, found {canaries}", key="canaries")
    if not 0 < confidence < 1:
        raise UserError(f"expected a number above 0 and below 1, found {confidence}", key="confidence")
    if run.placement.cloud_sums:
        text = "an audit reads what each edge server sends to the cloud, and a secure sum does not show that"
        raise UserError(f"{text}; expected false", key="method.privacy.secure_sum.cloud")
    if run.placement.rounding is not None:
        text = "canaries read vectors, and devices send residues of integers; expected null"
        raise UserError(text, key="method.privacy.secure_sum.rounding")
    if run.placement.unaudited is not None:
        raise UserError(run.placement.unaudited, key="method" if run.noise is None else "method.privacy")
    if run.placement.tells_batch_sizes:
        text = "canaries test the account of sums over a public number; expected expected"
        raise UserError(text, key="method.privacy.normalize")
    if run.blueprint.measuring is not None:
        text = "the audit supports control.estimates: released only"
        raise UserError(text, key="control.estimates")
    if run.config.training.clipping != "clip":
        raise UserError("canaries are as long as clipped gradients; expected clip", key="training.clipping")
    if run.blueprint.adaptive is not None:
        text = "canaries are as long as one clip norm, and this one moves; expected a number"
        raise UserError(text, key="training.clip_norm")
    if run.blueprint.momentum:
        raise UserError("canaries do not support momentum; expected 0", key="training.momentum")
    if observer == "public" and (run.config.method.server.name != "average" or run.config.method.upcycle is not None):
        text = (
            "an audit of public recovers the averages from the global models; expected server average without upcycle"
        )
        raise UserError(text, key="method.server")
    if run.config.training.sampling != "poisson":
        raise UserError(
            "an audit needs poisson: in a batch of fixed size a canary would displace a record", key="training.sampling"
        )


def canary_gradient(run: RunSetup) -> tuple[ClipScope, float]:
    """What bounds a record's gradient, and its length G: clipping, or what is known of the loss without."""
    clipping = run.blueprint.clipping
    if clipping is not None:
        return clipping.scope, clipping.norm
    assert isinstance(run.noise, GradientSumMechanism), "a guarantee comes with bounded gradients"
    return "record", run.noise.bound.unit(1.0, 1)


def check_density(design: CanaryDesign, rates: np.ndarray) -> None:
    """Refuse more canaries than can be told apart, with a UserError that says how many can."""
    expected = design.per_batch(rates)
    if expected > _MOST_PER_BATCH:
        most = int(design.size * _MOST_PER_BATCH / expected)
        raise UserError(
            f"{design.size} canaries put {expected:.1f} into one batch on average, and they would hide each other; "
            f"expected at most about {most} with these devices and sampling rates",
            key="canaries",
        )
