"""Objective perturbation: a random linear term in what a device minimises (Upcycled-FL, Sec. 6 and Theorem 6.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, NoiseRequest
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    NoisePlacement,
    RequestedExperiment,
    UploadClipping,
    remembering,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import RandomLinearTerm
from h2fdp.privacy.releases import PlannedUpload, Release, releases_of
from h2fdp.privacy.trust_model import TRUST_MODELS, TrustModel
from h2fdp.privacy.words import AggregationKind, ReleaseKind
from h2fdp.topology import Trust

NO_ACCOUNT = (
    "objective: no sound account: the claim (Theorem 6.3 of Upcycled-FL) holds for the exact minimiser of the "
    "perturbed objective, and with one score a record (two classes); it does not hold for a few epochs of SGD, which "
    "end elsewhere. Every account is infinite"
)
_ROOT_2 = math.sqrt(2)


@dataclass(frozen=True)
class ObjectivePerturbationMechanism(Mechanism):
    """<n_i, w> in the objective of an interval, n_i of density proportional to exp(-alpha_i ||n||).

    A level is 1 / alpha_i. Nothing is added to what is uploaded: the ledger says so, by a noise of 0.

    Attributes:
        alpha: of every device; None: as the theorem asks.
        records: (I,) D_i.
    """

    alpha: float | None
    theorem: PerturbedMinimiser
    records: np.ndarray

    def of_subnet(self, subnet: NoiseRequest) -> np.ndarray:
        """(len(segments), s) 1 / alpha_i."""
        return np.tile(1 / self._alpha(subnet.records), (len(subnet.segments), 1))

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        return "objective"

    def releases(self, upload: PlannedUpload) -> Iterator[Release]:
        """Rows for something that leaves without noise; its sensitivity is unknown and recorded as 1."""
        ones, tiers = np.ones(len(upload.rows)), tuple(replace(each, noise_std=0.0, known=0.0) for each in upload.tiers)
        bare = replace(upload, kind="objective", sampling_rates=ones, sampling="fixed", noise_std=0 * ones, tiers=tiers)
        yield from releases_of(replace(bare, bound="none"), 1.0)

    def upload_variance(self, upload: PlannedUpload) -> float:
        """0: the term shifts a device's minimiser, by how much depends on its data."""
        return 0.0

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """Theorem 6.3 after a number of intervals, for the device with the largest epsilon."""
        if made.unplanned_noise or made.local:
            return None
        return made.global_ * float(self.theorem.spent(self._alpha(self.records), self.records).max())

    def scaled(self, factor: float) -> ObjectivePerturbationMechanism:
        """No noise makes an account of it finite."""
        raise AssertionError("refused: there is no sound account to calibrate to")

    def _alpha(self, records: np.ndarray) -> np.ndarray:
        return self.theorem.alpha(records) if self.alpha is None else np.full(len(records), self.alpha)


@dataclass(frozen=True)
class PerturbedMinimiser:
    """Theorem 6.3: epsilon of one interval = (2 alpha_i u1 mu + 2.8 u2) / (D_i mu), for u2 <= 0.5 D_i mu.

    Attributes:
        share: of the target that an interval may claim.
        gradient: u1, above the norm of a record's gradient.
        curvature: u2, above the second derivative of a record's loss by its score.
        mu: of the proximal pull.
    """

    share: float
    gradient: float
    curvature: float
    mu: float

    def spent(self, alpha: np.ndarray, records: np.ndarray) -> np.ndarray:
        """(I,) epsilon of an interval."""
        return np.asarray((2 * alpha * self.gradient * self.mu + 2.8 * self.curvature) / (records * self.mu))

    def alpha(self, records: np.ndarray) -> np.ndarray:
        """(I,) the rate at which an interval claims its share of the target."""
        left = self.share * records * self.mu - 2.8 * self.curvature
        return np.asarray(left / (2 * self.gradient * self.mu))


@dataclass(frozen=True)
class ObjectivePerturbation(NoisePlacement):
    """For generalised linear models under a proximal pull.

    Attributes:
        rate: alpha; None is calibrated by Theorem 6.3 for the planned intervals, for each device by its D_i.
        input_bound: a public bound on the norm of inputs, which are divided by it; every record is checked.
    """

    rate: float | None = None
    input_bound: float = 1.0
    description: ClassVar[str] = "every device adds a random linear term to its objective (objective perturbation)"
    accounted: ClassVar[bool] = False
    clips: ClassVar[Clips] = "nothing"
    unaudited: ClassVar[str | None] = "there is no sound account to hold an audit against"
    models: ClassVar[frozenset[str] | None] = frozenset({"softmax", "logistic"})

    @property
    def input_norm(self) -> float | None:
        return self.input_bound

    @property
    def notes(self) -> tuple[str, ...]:
        """That nothing sound is known."""
        return (NO_ACCOUNT,)

    def trust_model(self, trust: Trust) -> TrustModel:
        """The device adds it."""
        return TRUST_MODELS["device"]

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """The conditions of Theorem 6.3, and what would need an account."""
        if request.memory is None and not (request.objective == "proximal" and request.mu > 0):
            text = f"Theorem 6.3 needs the objective proximal with mu above 0, found {request.objective}"
            yield "method.objective", text + (f" with mu {request.mu:g}" if request.objective == "proximal" else "")
        yield from remembering(request)
        yield from uncontrolled(request)
        if self.models is not None and request.model not in self.models:
            text = "Theorem 6.3 is about generalised linear models; expected softmax or logistic"
            yield "model", f"{text}, found {request.model}"
        if not request.foreseen and not request.controlled:
            text = f"Theorem 6.3 needs the number of intervals in advance; expected fixed, found {request.schedule}"
            yield "method.schedule", text
        if request.local_aggregations:
            text = "Theorem 6.3 allows one upload per interval; expected 0 (or a method with topology star)"
            yield "training.aggregations_per_interval", text
        if request.calibration == "accounted":
            yield "privacy.calibration", "there is no sound account of objective perturbation; expected paper"
        if request.budget:
            yield "privacy.budget", "there is no sound account of objective perturbation, so no budget; expected none"

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        return Pipeline((RandomLinearTerm(),))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        features = 2.0 if setting.biased else 1.0  # the largest squared norm of a record's features
        # u1 and u2 of softmax regression on inputs no longer than 1: sqrt(2) and 1/2; with a bias 2 and 1.
        gradient, curvature = _ROOT_2 * math.sqrt(features), 0.5 * features
        fewest = int(setting.records.min())
        if curvature > 0.5 * fewest * setting.mu:
            text = f"Theorem 6.3 needs u2 <= 0.5 D_i mu; here u2 is {curvature:g}, mu {setting.mu:g}, and a device has"
            raise UserError(f"{text} {fewest} records; expected a larger mu", key="method.objective.mu")
        rule = PerturbedMinimiser(setting.epsilon / setting.intervals, gradient, curvature, setting.mu)
        if self.rate is None and float(rule.alpha(setting.records).min()) <= 0:
            least = setting.intervals * 2.8 * curvature / (fewest * setting.mu)
            text = f"2.8 u2 / (D_i mu) alone comes to {least:.4g} over the planned intervals for a device of {fewest}"
            raise UserError(f"{text} records, whatever the noise; expected more than that", key="privacy.epsilon")
        return ObjectivePerturbationMechanism(self.rate, rule, setting.records)
