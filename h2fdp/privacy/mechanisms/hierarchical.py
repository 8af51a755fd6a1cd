"""Noise on accumulated gradients where trust ends, or as if no edge server were trusted; and no noise at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.mechanisms.gradient_sums import GradientSumMechanism
from h2fdp.privacy.mechanisms.local_randomizer import LocalRandomizer, NoisyUpdate, RawUpdate
from h2fdp.privacy.mechanisms.mechanism import Mechanism, MechanismContext
from h2fdp.privacy.mechanisms.noise_placement import Clips, NoisePlacement, RequestedExperiment, clipped, remembering
from h2fdp.privacy.releases import Observer
from h2fdp.privacy.trust_model import TRUST_MODELS, TrustModel


@dataclass(frozen=True)
class NonPrivate(NoisePlacement):
    """No guarantee."""

    description: ClassVar[str] = "no noise anywhere"
    private: ClassVar[bool] = False
    clips: ClassVar[Clips] = "gradient"
    unaudited: ClassVar[str | None] = "an audit needs a method that promises privacy; this one adds no noise"

    def trust_model(self, trusted: bool) -> TrustModel:
        """Nobody adds any."""
        return TRUST_MODELS["none"]

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """What needs a guarantee."""
        if request.controlled:
            yield "control.enabled", "the controller weighs energy and delay against noise; this method adds none"

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """There is none."""
        raise AssertionError("no noise is worked out where none is added")


@dataclass(frozen=True)
class HierarchicalDp(NoisePlacement):
    """A trusted edge server adds noise to its averages; under an untrusted one every device does, to its uploads.

    >>> [HierarchicalDp().trust_model(trusted).noise_from for trusted in (True, False)]
    ['edge', 'device']
    """

    description: ClassVar[str] = "noise where trust ends: a trusted edge server, else the device"
    clips: ClassVar[Clips] = "gradient"
    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge"})

    def trust_model(self, trusted: bool) -> TrustModel:
        return TRUST_MODELS["edge" if trusted else "device"]

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """What would void that an upload is a sum of clipped gradients."""
        yield from remembering(request)
        yield from clipped(request, "gradients")
        if request.memory is None and not request.keeps_sensitivity:
            yield (
                "method.objective.mu",
                "the proximal term is not clipped, and does not increase the sensitivity only if step size "
                f"times mu is at most 2; here the step size is up to {request.step_size:g}",
            )
        if request.momentum and request.mu:
            text = "with momentum the proximal term may increase the sensitivity; expected 0, or objective plain"
            yield "training.momentum", text

    def local_randomizer(self, trusted: bool, clip_norm: float | None) -> LocalRandomizer:
        return NoisyUpdate() if self.trust_model(trusted).devices_add_noise else RawUpdate()

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """The paper's calibration for the numbers of releases that are planned."""
        assert setting.clip_norm is not None, "a guarantee comes with clipping"
        planned = (setting.local_aggregations, setting.intervals)
        calibration = PaperCalibration(setting.epsilon, setting.delta, setting.c2, *planned, tiers=setting.tiers)
        attained = setting.gradients_attained
        return GradientSumMechanism(calibration, setting.clip_norm, setting.sensitivity, setting.gain, attained)


@dataclass(frozen=True)
class LocalDp(HierarchicalDp):
    """Local noise: H2FDP in a network without a trusted edge server."""

    description: ClassVar[str] = "every device adds its own noise, as if no edge server were trusted"

    def trust_model(self, trusted: bool) -> TrustModel:
        """The device adds it."""
        return TRUST_MODELS["device"]
