"""Output perturbation: a device clips its model and adds noise to it (Upcycled-FL, Sec. 6 and Theorem 6.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from h2fdp.privacy.accounts import MARGIN, Accounts
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, NoiseRequest
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    NoisePlacement,
    RequestedExperiment,
    UploadClipping,
    given_noise,
    remembering,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import NoisyModel
from h2fdp.privacy.releases import PlannedUpload, Release, releases_of
from h2fdp.privacy.trust_model import TRUST_MODELS, TrustModel
from h2fdp.privacy.words import AggregationKind, ReleaseKind
from h2fdp.topology import Trust

CLAIM = (
    "output: claimed is Theorem 6.2 of Upcycled-FL, whose proof lets one record move a clipped model by its norm / "
    "D_i; accounted allows the worst case of a clipped model, twice its norm"
)


@dataclass(frozen=True)
class OutputPerturbationMechanism(Mechanism):
    """clip(w_i, tau) + N(0, sigma_i^2 I) at every aggregation.

    Two models of norm tau are at most 2 tau apart, whatever a device did: a plain Gaussian of that sensitivity, with no
    amplification by sampling.

    Attributes:
        model_norm: tau.
        noise_std: sigma of every device; None: `exposure` / D_i.
        exposure: sigma_i D_i where devices' noises are calibrated to the claim.
        records: (I,) D_i, by which the claim differs.
    """

    model_norm: float
    noise_std: float | None
    exposure: float
    delta: float
    records: np.ndarray
    factor: float = 1.0

    def of_subnet(self, subnet: NoiseRequest) -> np.ndarray:
        """(len(segments), s) sigma_i."""
        own = self.exposure / subnet.records if self.noise_std is None else np.full(len(subnet.records), self.noise_std)
        return np.tile(self.factor * own, (len(subnet.segments), 1))

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        return "output"

    def releases(self, upload: PlannedUpload) -> Iterator[Release]:
        """Single models for the edge server (in a star, for the cloud), averages of them for the others."""
        ones = np.ones(len(upload.rows))
        once = np.ones_like(upload.rows)
        whole = replace(upload, kind="output", steps=once, sampling_rates=ones, sampling="fixed", bound="update")
        yield from releases_of(whole, 2 * self.model_norm)

    def upload_variance(self, upload: PlannedUpload) -> float:
        return float(((upload.noise_std * upload.weights) ** 2).sum())

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """Theorem 6.2 of the models that were released, of the device with the largest epsilon.

        A release of noise multiplier z about the sensitivity 2 tau adds tau^2 / (2 sigma^2 D^2) = 1 / (8 z^2 D^2).
        """
        spent = [0.0]
        for each in accounts.classes("edge"):
            fewest = float(self.records[each.devices].min())
            spent.append(
                sum(count / (8 * (kind.noise_multiplier * fewest) ** 2) for kind, count in each.composition.items())
            )
        return theorem_6_2(max(spent), self.delta)

    def scaled(self, factor: float) -> OutputPerturbationMechanism:
        return replace(self, factor=self.factor * factor)


@dataclass(frozen=True)
class OutputPerturbation(NoisePlacement):
    """Every device for itself, whoever is trusted.

    Attributes:
        model_norm: tau.
        noise_std: sigma; None is calibrated by Theorem 6.2 for the planned releases, for each device by its D_i.
    """

    model_norm: float = 1.0
    noise_std: float | None = None
    about_replaced_records: ClassVar[bool] = True
    description: ClassVar[str] = "every device clips its model and adds noise to it (output perturbation)"
    clips: ClassVar[Clips] = "nothing"
    unaudited: ClassVar[str | None] = "canaries test clipped gradients; here models are clipped"

    @property
    def noise_is_given(self) -> bool:
        return self.noise_std is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """How far claim and account are apart."""
        return (CLAIM,)

    def trust_model(self, trust: Trust) -> TrustModel:
        """The device adds it."""
        return TRUST_MODELS["device"]

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        yield from remembering(request)
        yield from given_noise("noise_std", self.noise_std, request)
        yield from uncontrolled(request)

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        return Pipeline((NoisyModel(self.model_norm),))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        releases = setting.intervals + setting.local_aggregations
        exposure = self.model_norm * math.sqrt(releases / (2 * spent_of(setting.epsilon, setting.delta))) * MARGIN
        return OutputPerturbationMechanism(self.model_norm, self.noise_std, exposure, setting.delta, setting.records)


def theorem_6_2(spent: float, delta: float) -> float:
    """epsilon = 2 sqrt(a log(1/delta)) + a, with a = M tau^2 / (2 sigma^2 D_i^2).

    >>> round(theorem_6_2(0.01, 1e-5), 6)
    0.688614
    """
    return 2 * math.sqrt(spent * math.log(1 / delta)) + spent


def spent_of(epsilon: float, delta: float) -> float:
    """The a of Theorem 6.2 at which its epsilon is this one."""
    log = math.log(1 / delta)
    # sqrt(log + epsilon) - sqrt(log), without cancellation
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
