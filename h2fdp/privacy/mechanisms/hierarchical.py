"""Noise on accumulated gradients where trust ends, or as if no edge server were trusted; and no noise at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches, ClippedRecords, GradientBound, LinearScores, StepsDoNotExpand
from h2fdp.privacy.mechanisms.gradient_sums import GradientSumMechanism
from h2fdp.privacy.mechanisms.mechanism import Mechanism, MechanismContext
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    NoisePlacement,
    RequestedExperiment,
    UploadClipping,
    clipped,
    remembering,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import GaussianNoise
from h2fdp.privacy.observing import Observer
from h2fdp.privacy.trust_model import TRUST_MODELS, SecureSum, Tolerance, TrustModel
from h2fdp.topology import Trust


@dataclass(frozen=True)
class NonPrivate(NoisePlacement):
    """No guarantee."""

    description: ClassVar[str] = "no noise anywhere"
    private: ClassVar[bool] = False
    clips: ClassVar[Clips] = "gradient"
    unaudited: ClassVar[str | None] = "an audit needs a method that promises privacy; this one adds no noise"

    def trust_model(self, trust: Trust) -> TrustModel:
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

    Under one that holds secure sums, every device adds a share of the noise that a trusted one would add.

    Attributes:
        input_bound: a public bound R on the norm of inputs, which are divided by it. Softmax regression then has
            bounded gradients without clipping, and steps that do not expand: an account by draws.
        tolerance: of secure sums.
        rounding: bits of the integers that they add up; None for real vectors.
        cloud_sums: the cloud holds a secure sum of what its children send.

    >>> [HierarchicalDp().trust_model(trust).added_by for trust in ("trusted", "secure-sum", "untrusted")]
    ['the edge server', 'the devices, each a share', 'each device']
    """

    input_bound: float | None = None
    tolerance: Tolerance = Tolerance()  # noqa: RUF009 - a frozen value
    rounding: int | None = None
    cloud_sums: bool = False
    description: ClassVar[str] = "noise where trust ends: a trusted edge server, else the device"
    clips: ClassVar[Clips] = "gradient"
    accumulates: ClassVar[bool] = True
    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge"})

    def trust_model(self, trust: Trust) -> TrustModel:
        if trust == "secure-sum":
            return SecureSum(tolerance=self.tolerance, rounding=self.rounding)
        return TRUST_MODELS["edge" if trust == "trusted" else "device"]

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """What would void that an upload is a sum of clipped gradients."""
        yield from remembering(request)
        if self.input_bound is None:
            yield from clipped(request, "gradients")
        else:
            yield from _unclipped(request)
        if request.memory is None and not request.keeps_sensitivity:
            yield from _unproven(request)

    @property
    def input_norm(self) -> float | None:
        return self.input_bound

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        expected = clipping.by_record or self.input_bound is not None
        noise = (GaussianNoise(),) if self.trust_model(trust).devices_add_noise else ()
        return Pipeline((*clipping.votes(), *noise), "expected" if expected else "drawn")

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """The paper's calibration for the numbers of releases that are planned."""
        planned = (setting.local_aggregations, setting.intervals)
        calibration = PaperCalibration(setting.epsilon, setting.delta, setting.c2, *planned, tiers=setting.tiers)
        return GradientSumMechanism(calibration, self._bound(setting), setting.sensitivity)

    def _bound(self, setting: MechanismContext) -> GradientBound:
        """The best one that holds.

        Raises:
            UserError: steps that would expand.
        """
        if self.input_bound is None:
            assert setting.clip_norm is not None, "a guarantee comes with clipping"
            by_record = setting.by_record and not setting.own_objective
            return (ClippedRecords if by_record else ClippedBatches)(setting.clip_norm, setting.gain)
        scores = LinearScores(1.0, setting.biased)
        rates = setting.sampling_rates
        largest = scores.largest_step(1 / rates if setting.sampling == "poisson" else np.ones_like(rates), setting.mu)
        if setting.step_size > largest:
            text = (
                "without clipping no step may expand, whatever batch is drawn; expected a step size of at most "
                f"{largest:.4g} = 2 / (beta / q + mu), with beta {scores.smoothness:g} of inputs divided by input_bound"
            )
            raise UserError(f"{text}, found {setting.step_size:g}", key="training.step_size")
        return StepsDoNotExpand(scores.gradient)


def _unproven(request: RequestedExperiment) -> Iterator[tuple[str, str]]:
    """The problem of an objective of which nothing shows that noise sized for sums of gradients covers its uploads."""
    if request.own_objective:
        momentum = f" with momentum {request.momentum:g}" if request.momentum else ""
        arguments = "(step_size, momentum)" if request.momentum else ""
        steps = f"steps of {request.objective}, of size {request.step_size:g}{momentum},"
        yield (
            "method.objective",
            f"nothing shows that {steps} do not increase the sensitivity; "
            f"expected its keeps_sensitivity{arguments} to return True, once that is proven",
        )
        return
    if request.step_size * request.mu > 2:
        yield (
            "method.objective.mu",
            "the proximal term is not clipped, and does not increase the sensitivity only if step size "
            f"times mu is at most 2; here the step size is up to {request.step_size:g}",
        )
    if request.momentum and request.mu:
        text = "with momentum the proximal term may increase the sensitivity; expected 0, or objective plain"
        yield "training.momentum", text


def _unclipped(request: RequestedExperiment) -> Iterator[tuple[str, str]]:
    """What the account by draws does not cover: it needs convex losses with bounded gradients, and plain steps."""
    if request.clip_norm is not None:
        text = "clipped gradients of several classes are not those of a convex loss; with input_bound expected null"
        yield "training.clip_norm", f"{text}, found {request.clip_norm:g}"
    if request.model not in ("auto", "softmax", "logistic"):
        text = "input_bound needs a convex loss; expected softmax or logistic"
        yield "model", f"{text}, found {request.model}"
    if request.loss != "cross-entropy":
        yield "training.loss", f"input_bound knows the bounds of cross-entropy; found {request.loss}"
    if request.objective not in ("plain", "proximal"):
        text = f"input_bound needs steps on the loss itself; expected plain or proximal, found {request.objective}"
        yield "method.objective", text
    if request.controlled:
        text = "the controller weighs noise by the clip norm, and input_bound has none; expected false"
        yield "control.enabled", text
    if request.momentum:
        yield "training.momentum", f"with momentum steps may expand; expected 0, found {request.momentum:g}"


@dataclass(frozen=True)
class LocalDp(HierarchicalDp):
    """Local noise: H2FDP in a network without a trusted edge server."""

    description: ClassVar[str] = "every device adds its own noise, as if no edge server were trusted"

    def trust_model(self, trust: Trust) -> TrustModel:
        """The device adds it."""
        return TRUST_MODELS["device"]
