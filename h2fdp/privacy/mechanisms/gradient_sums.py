"""Noise on accumulated gradients, by devices or by edge servers (H2FDP, Prop. 3.1 with Lemma 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import Calibration
from h2fdp.privacy.gradient_bounds import (
    ESTIMATE_BATCHES,
    ClippedRecords,
    GradientBound,
    estimate_sensitivity,
    expected_batches,
)
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, NoiseRequest, SensitivityRule
from h2fdp.privacy.releases import PlannedUpload, Release, releases_of
from h2fdp.privacy.trust_model import TrustModel
from h2fdp.privacy.words import AggregationKind, ReleaseKind, Tier


@dataclass(frozen=True)
class GradientSumMechanism(Mechanism):
    """An upload is a sum of bounded gradients, released under noise at each aggregation.

    Attributes:
        bound: how far one record moves an upload.
        sensitivity: `paper` takes tau_k steps for every release; `tight` the steps that the upload accumulated.
    """

    calibration: Calibration
    bound: GradientBound
    sensitivity: SensitivityRule

    def of_subnet(self, subnet: NoiseRequest) -> np.ndarray:
        """See `Mechanism.of_subnet`.

        An edge server's noise covers the largest rho_j q_j Delta_j, so that unequal weights, rates or batches cost
        noise, never privacy; a device's own upload carries no weight.
        """
        last, whole = len(subnet.segments) - 1, sum(subnet.segments)
        weights = np.broadcast_to(subnet.weights, (len(subnet.segments), len(subnet.sampling_rates)))
        rows = []
        for segment, (accumulated, shares) in enumerate(zip(subnet.segments, weights, strict=True)):
            kind: AggregationKind = "global" if segment == last else "local"
            tier = subnet.tiers[segment] if subnet.tiers and segment < last else None
            exposed = self.exposures(subnet.sampling_rates, subnet.records, whole, accumulated)
            if subnet.portions is not None:
                exposed = exposed * subnet.portions[segment]
            shown = subnet.trust_model.exposure(shares, exposed)
            rows.append(self._of_exposure_one(kind, tier, subnet.step_size, whole, accumulated) * shown)
        return np.stack(rows)

    def exposures(self, sampling_rates: np.ndarray, records: np.ndarray, interval: int, segment: int) -> np.ndarray:
        batches = expected_batches(sampling_rates, records)
        relative = self.bound.relative(self._counted(interval, segment), batches)
        return np.asarray(self.calibration.by_rate(sampling_rates) * relative)

    def portions(self, steps: np.ndarray, planned: int, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """See `Mechanism.portions`: sensitivities of uploads of these steps, in those of the planned ones."""
        batches = expected_batches(sampling_rates, records)
        found = np.zeros(len(steps))
        for done in np.unique(steps).tolist():
            same = steps == done
            found[same] = self.bound.sensitivity(1.0, done, batches[same])
        return np.asarray(found / self.bound.sensitivity(1.0, planned, batches))

    def of_aggregator(self, tier: Tier | None, step_size: float, interval: int, segment: int, exposure: float) -> float:
        """See `Mechanism.of_aggregator`: sized by the largest share of a device times its rate and sensitivity."""
        kind: AggregationKind = "global" if tier is None else "local"
        return self._of_exposure_one(kind, tier, step_size, interval, segment) * exposure

    def _of_exposure_one(
        self, kind: AggregationKind, tier: Tier | None, step_size: float, interval: int, segment: int
    ) -> float:
        """The noise on a vector that one record moves by the bound's unit, and whose batches have a rate of 1.

        Args:
            interval: tau_k.
            segment: local steps since the last released model.
        """
        unit = self.bound.unit(step_size, self._counted(interval, segment))
        return self.calibration.noise_std(kind, unit, 1.0, tier)

    def _counted(self, interval: int, segment: int) -> int:
        """The steps that noise is sized for."""
        return interval if self.sensitivity == "paper" else segment

    def of_estimates(self, trust_model: TrustModel, numbers: int, sampling_rates: np.ndarray) -> np.ndarray:
        """See `Mechanism.of_estimates`; as many as global aggregations.

        An edge server's maximum has no weights to shrink it.
        """
        if not trust_model.noisy:
            raise ValueError("private estimates are released under noise")
        exposed = trust_model.exposure(np.ones(len(sampling_rates)), sampling_rates)
        return np.asarray(self.calibration.noise_std("global", estimate_sensitivity(numbers), 1.0) * exposed)

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        return aggregation

    def releases(self, upload: PlannedUpload) -> Iterator[Release]:
        """See `Mechanism.releases`.

        A straggler's upload holds fewer steps, and is written down as what it is; its noise is that of the planned
        steps. An edge server's maximum over its devices moves with any of them by the whole range, whatever its weight.
        """
        if upload.kind == "estimate":
            count, by_devices = len(upload.rows), upload.trust_model.devices_add_noise
            weights = np.full(count, 1 / count) if by_devices else np.ones(count)
            drawn = np.full(count, ESTIMATE_BATCHES)
            asked = replace(upload, steps=drawn, weights=weights, bound="range")
            yield from releases_of(asked, estimate_sensitivity(upload.numbers))
            return
        batches = expected_batches(upload.sampling_rates, upload.records)
        moved = np.zeros(len(upload.rows))
        for steps in np.unique(upload.steps).tolist():
            same = upload.steps == steps
            moved[same] = self.bound.sensitivity(upload.step_size, steps, batches[same])
        if upload.rounding:  # every move is at least that of one step, so it grows by this share at most
            least = upload.weights * self.bound.sensitivity(upload.step_size, 1, batches)
            moved = moved * (1 + upload.rounding / least)
        asked = replace(upload, bound=self.bound.name, own_gradient=self.bound.own_gradient(batches))
        for release in releases_of(asked, moved):
            assert release.noise_std > 0, "nobody outside the trusted chain sees an update without noise"
            yield release

    def upload_variance(self, upload: PlannedUpload) -> float:
        parts = upload.trust_model.noise_parts(upload.noise_std, upload.weights)
        return float((parts**2).sum())

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """See `Mechanism.claimed`: the larger of what (15) says of local and of global releases."""
        return None if made.unplanned_noise else self.calibration.claimed(made.local, made.global_, made.tiers)

    def scaled(self, factor: float) -> GradientSumMechanism:
        return replace(self, calibration=self.calibration.scaled(factor))

    def clipped_to(self, length: float) -> GradientSumMechanism:
        """See `Mechanism.clipped_to`; of uploads of one step, the only ones that count votes."""
        assert isinstance(self.bound, ClippedRecords), "votes are those of records"
        return replace(self, bound=replace(self.bound, clip_norm=length))
