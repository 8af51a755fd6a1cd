"""Noise added by the cloud to the global average; it protects whole devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from h2fdp.network import Trust
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, Span
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    RequestedExperiment,
    StatedNoise,
    UploadClipping,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import ClippedUpdate
from h2fdp.privacy.places import Holder, Observer, Place, ReleaseKind
from h2fdp.privacy.views import Reach, Uploads

ADJACENCY = (
    "central: epsilon is about a whole device - neighbours differ in one device's updates, which become zero - "
    "not about one record; weights and who takes part are public"
)


@dataclass(frozen=True)
class CentralMechanism(Mechanism):
    """N(0, sigma^2 I) on the weighted average of clipped updates, sigma = z C max_i(rho_i varrho_c).

    Neighbours: one device's update becomes zero in every interval; weights and participation are public and stay.
    Then the average moves by at most C rho_i varrho_c.

    Attributes:
        noise_multiplier: z.
        clip_norm: C, of a device's whole update of an interval.
        formula: (15) at a sensitivity and a rate of 1: what z it asks for.
    """

    noise_multiplier: float
    clip_norm: float
    formula: PaperCalibration
    releases: ClassVar[ReleaseKind] = "central"

    def unit(self, span: Span) -> float:
        """See `Mechanism.unit`; sized for the largest weight in the global average."""
        return self.noise_multiplier * self.clip_norm

    def reach(self, uploads: Uploads) -> Reach:
        """Every global model is a plain Gaussian; that not all devices take part is not credited."""
        if uploads.kind != "global":
            raise AssertionError("nothing leaves a subnet between global aggregations: peers would see it raw")
        ones = np.ones(len(uploads.rows))
        return Reach(self.clip_norm * ones, ones, ones, "fixed", "update")

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """(15) read backwards for q = 1: it grows with the root of the intervals."""
        if made.unplanned_noise or made.local:
            return None
        promised = self.formula.noise_std("global", 1.0, 1.0) * self.formula.epsilon / self.noise_multiplier
        return promised * math.sqrt(made.global_ / self.formula.global_releases)

    def scaled(self, factor: float) -> CentralMechanism:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def clipped_to(self, length: float) -> CentralMechanism:
        return replace(self, clip_norm=length)


class CentralDp(StatedNoise):
    """Noise at the cloud.

    Edge servers and cloud are trusted; global models leave them. What is null is calibrated by (15) with q = 1.
    """

    name: Literal["central"] = "central"

    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge", "cloud"})
    unaudited: ClassVar[str | None] = "canaries are records, and central noise protects devices"

    @property
    def clips(self) -> Clips:
        return "update"

    @property
    def notes(self) -> tuple[str, ...]:
        """The other adjacency."""
        return (ADJACENCY,)

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The cloud adds it."""
        return Place(Holder.NODE, len(chain))

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """What would reach somebody without the cloud's noise.

        What a device remembers stays with it, and all that it sends is clipped: of memories only Scaffold's is refused,
        which goes up beside the update.
        """
        if request.objective == "scaffold":
            text = "control variates are sent to the cloud unclipped and without noise; expected another objective"
            yield "method.objective", text
        yield from super().problems(request)
        yield from uncontrolled(request)
        if request.local_aggregations:
            text = (
                "local aggregations are broadcast to peers without noise; expected 0 (or a method with topology star)"
            )
            yield "training.aggregations_per_interval", text

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        assert clipping.norm is not None, "a guarantee comes with clipping"
        return Pipeline((ClippedUpdate(clipping.norm, clipping.gamma, clipping.moving),))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        assert setting.clip_norm is not None, "a guarantee comes with clipping"
        formula = PaperCalibration(setting.epsilon, setting.delta, setting.c2, 0, setting.intervals)
        given = self.noise_multiplier
        return CentralMechanism(
            formula.noise_std("global", 1.0, 1.0) if given is None else given, setting.clip_norm, formula
        )
