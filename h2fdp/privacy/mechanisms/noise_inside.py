"""Noise inside, where trust ends: untrusted devices take noisy steps, trusted edge servers add noise to sums.

Every release, a device's step or an average, has the same ratio of noise to sensitivity, so that all devices' accounts
meet the target together where edge servers release one step at a time (spec of record sensitivity, Sec. 2 and 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from h2fdp.privacy.accounting import Accountant, ReleaseType
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import EqualMultipliers
from h2fdp.privacy.mechanisms.dp_sgd import DpSgdMechanism, planned_multiplier
from h2fdp.privacy.mechanisms.gradient_sums import GradientSumMechanism
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, NoiseRequest
from h2fdp.privacy.mechanisms.noise_placement import Clips, RequestedExperiment, UploadClipping, estimates_raw
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import NoisySteps
from h2fdp.privacy.releases import PlannedUpload, Release
from h2fdp.privacy.trust_model import TRUST_MODELS, TrustModel
from h2fdp.privacy.words import AggregationKind, ReleaseKind, Tier
from h2fdp.topology import Trust


@dataclass(frozen=True)
class NoiseInside(Mechanism):
    """Steps of untrusted devices, sums of trusted edge servers.

    Attributes:
        steps: of the devices that add noise themselves.
        sums: of edge servers and the trusted nodes above them.
    """

    steps: DpSgdMechanism
    sums: GradientSumMechanism

    def of_subnet(self, subnet: NoiseRequest) -> np.ndarray:
        """(len(segments), s) standard deviations on the sums of a step; (.., 1) from the edge server."""
        return self._of(subnet.trust_model).of_subnet(subnet)

    def exposures(self, sampling_rates: np.ndarray, records: np.ndarray, interval: int, segment: int) -> np.ndarray:
        return self.sums.exposures(sampling_rates, records, interval, segment)

    def of_aggregator(self, tier: Tier | None, step_size: float, interval: int, segment: int, exposure: float) -> float:
        return self.sums.of_aggregator(tier, step_size, interval, segment, exposure)

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        return aggregation

    def releases(self, upload: PlannedUpload) -> Iterator[Release]:
        """A row for each step of an untrusted device, for each sum of a trusted edge server."""
        return self._of(upload.trust_model).releases(upload)

    def upload_variance(self, upload: PlannedUpload) -> float:
        return self._of(upload.trust_model).upload_variance(upload)

    def _of(self, trust_model: TrustModel) -> DpSgdMechanism | GradientSumMechanism:
        """Steps are noisy where single uploads are seen; shares of a secure sum's noise are on the sum."""
        return self.steps if trust_model.devices_add_noise and not trust_model.shares_noise else self.sums

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """None: no formula promises anything; there is an account."""
        return None

    def iterations(self, epsilon: float, accountant: Accountant) -> int | None:
        """None: the noise is made for all planned steps."""
        return None

    def scaled(self, factor: float) -> NoiseInside:
        return replace(self, steps=self.steps.scaled(factor), sums=self.sums.scaled(factor))

    def clipped_to(self, length: float) -> NoiseInside:
        return replace(self, steps=self.steps.clipped_to(length), sums=self.sums.clipped_to(length))


@dataclass(frozen=True)
class HierarchicalSteps(HierarchicalDp):
    """Records' gradients are clipped; untrusted devices add noise at each step, trusted edge servers to averages."""

    description: ClassVar[str] = "noise where trust ends: a trusted edge server's averages, else each device's steps"
    clips: ClassVar[Clips] = "record"

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """What would void that a step moves by one clipped gradient."""
        yield from super().problems(request)
        if request.controlled and request.calibration != "accounted":
            text = "the controller weighs noise on steps as it is added; expected privacy.calibration accounted"
            yield "control.enabled", f"{text}, or false"
        yield from estimates_raw(request)
        if request.clip_scope not in (None, "record"):
            yield "training.clip_scope", f"noise: steps clips each record's gradient, found {request.clip_scope}"
        if self.input_bound is not None:
            yield "method.privacy.input_bound", "noise: steps needs clipped gradients; expected null"

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        if trust == "untrusted":
            return Pipeline((NoisySteps(), *clipping.votes(noisy_gradients=True)), "expected")
        return super().pipeline(trust, replace(clipping, by_record=True))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """One multiplier for all, at first by ALI-DPFL's account of the planned steps."""
        assert setting.clip_norm is not None, "a guarantee comes with clipping"
        exposed = ReleaseType(1.0, 1, float(setting.sampling_rates.max()), setting.sampling)
        planned = setting.intervals * setting.local_steps
        noise = planned_multiplier(setting, exposed)
        steps = DpSgdMechanism(noise, setting.clip_norm, setting.delta, exposed, planned, None)
        return NoiseInside(steps, GradientSumMechanism(EqualMultipliers(noise), self._bound(setting), "tight"))


@dataclass(frozen=True)
class LocalSteps(HierarchicalSteps):
    """Noise on every device's steps: what `HierarchicalSteps` is in a network without a trusted edge server."""

    description: ClassVar[str] = "every device adds noise at each step, as if no edge server were trusted"

    def trust_model(self, trust: Trust) -> TrustModel:
        """The device adds it."""
        return TRUST_MODELS["device"]

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        return super().pipeline("untrusted", clipping)
