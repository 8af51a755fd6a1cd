"""The two perturbations of Upcycled-FL (Sec. 6): of a device's model (Theorem 6.2), of its objective (Theorem 6.3).

Output perturbation clips the model and adds noise to it; objective perturbation adds a random linear term to what a
device minimises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.config.fields import Magnitude
from h2fdp.errors import UserError, refused
from h2fdp.network import Trust
from h2fdp.privacy.accounts import MARGIN, Accounts
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, Span
from h2fdp.privacy.mechanisms.noise_placement import (
    BoundedInputs,
    Clips,
    StatedNoise,
    UploadClipping,
    remembering,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import NoisyModel, RandomLinearTerm
from h2fdp.privacy.places import Holder, Place, ReleaseKind
from h2fdp.privacy.views import Sensitivities, Uploads

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
    releases: ClassVar[ReleaseKind] = "objective"

    def unit(self, span: Span) -> float:
        return 1.0

    def exposures(self, span: Span, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """(s,) 1 / alpha_i."""
        return np.asarray(1 / self._alpha(records))

    def stated(self, levels: np.ndarray) -> np.ndarray:
        """0: the term shifts a device's minimiser, by how much depends on its data."""
        return 0 * levels

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """Sensitivities of uploads that leave without noise: unknown, and recorded as 1."""
        ones = np.ones(len(uploads.rows))
        return Sensitivities(ones, ones, uploads.steps, "fixed", "none")

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


class ObjectivePerturbation(StatedNoise, BoundedInputs):
    """A random linear term in the objective.

    For generalised linear models under a proximal pull. Its density is proportional to exp(-||n|| / z), with z the
    noise multiplier; one that is null is calibrated by Theorem 6.3 for the planned intervals, for each device by its
    D_i.
    """

    name: Literal["objective"] = "objective"
    input_bound: Magnitude = 1.0  # which the theorem needs

    accounted: ClassVar[bool] = False
    unaudited: ClassVar[str | None] = "there is no sound account to hold an audit against"

    @property
    def clips(self) -> Clips:
        return "nothing"

    @property
    def notes(self) -> tuple[str, ...]:
        """The note that there is no sound account."""
        return (NO_ACCOUNT,)

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The device adds it."""
        return Place(Holder.DEVICE)

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """The conditions of Theorem 6.3, and what would need an account."""
        method, schedule, model = experiment.method, experiment.method.traits, experiment.model_name
        name, objective, loss = method.objective.name, method.local_objective, experiment.training.loss.name
        convex = objective.memory is not None or (name == "proximal" and (getattr(objective, "pull", None) or 0.0) > 0)
        unforeseen, averaged = not schedule.foreseen and not schedule.controlled, experiment.averages_locally
        yield from remembering(experiment)
        yield from uncontrolled(experiment)
        once = "0 (or a method with topology star)"
        yield from refused(
            "Theorem 6.3 is about one strongly convex problem of each device in each of a known number of intervals",
            ("method.objective", not convex, "proximal with mu above 0", name),
            ("model", model not in ("softmax", "logistic"), "softmax or logistic", model),
            ("training.loss", loss != "cross-entropy", "cross-entropy", loss),
            ("method.schedule", unforeseen, "fixed", method.schedule.name),
            ("training.aggregations_per_interval", averaged, once, "local aggregations"),
        )
        yield from refused(
            "there is no sound account of objective perturbation",
            ("privacy.calibration", experiment.calibration == "accounted", "paper", "accounted"),
            ("privacy.budget", bool(experiment.privacy.budget), "none", "a budget"),
        )

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
        alpha = None if self.noise_multiplier is None else 1 / self.noise_multiplier
        if alpha is None and float(rule.alpha(setting.records).min()) <= 0:
            least = setting.intervals * 2.8 * curvature / (fewest * setting.mu)
            text = f"2.8 u2 / (D_i mu) alone comes to {least:.4g} over the planned intervals for a device of {fewest}"
            raise UserError(f"{text} records, whatever the noise; expected more than that", key="privacy.epsilon")
        return ObjectivePerturbationMechanism(alpha, rule, setting.records)


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
    releases: ClassVar[ReleaseKind] = "output"

    def unit(self, span: Span) -> float:
        return self.factor

    def exposures(self, span: Span, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """(s,) sigma_i."""
        return np.asarray(self.exposure / records if self.noise_std is None else np.full(len(records), self.noise_std))

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """Single models for the edge server (in a star, for the cloud), averages of them for the others."""
        ones = np.ones(len(uploads.rows))
        return Sensitivities(2 * self.model_norm * ones, ones, ones, "fixed", "update")

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


class OutputPerturbation(StatedNoise):
    """Noise on the clipped model.

    Every device adds it for itself, after it clipped its model to tau, the clip norm. Noise that is not stated is
    calibrated by Theorem 6.2 for the planned releases, for each device by its D_i.
    """

    name: Literal["output"] = "output"

    about_replaced_records: ClassVar[bool] = True
    unaudited: ClassVar[str | None] = "canaries test clipped gradients; here models are clipped"

    @property
    def clips(self) -> Clips:
        return "model"

    @property
    def notes(self) -> tuple[str, ...]:
        """The distance of claim and account."""
        return (CLAIM,)

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The device adds it."""
        return Place(Holder.DEVICE)

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        yield from remembering(experiment)
        yield from super().problems(experiment)
        yield from uncontrolled(experiment)

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        assert clipping.norm is not None, "a guarantee comes with clipping"
        return Pipeline((NoisyModel(clipping.norm, clipping.gamma),))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        releases = setting.intervals + setting.local_aggregations
        norm, given = setting.clip_norm, self.noise_multiplier
        assert norm is not None, "a guarantee comes with clipping"
        exposure = norm * math.sqrt(releases / (2 * spent_of(setting.epsilon, setting.delta))) * MARGIN
        stated = None if given is None else given * 2 * norm
        return OutputPerturbationMechanism(norm, stated, exposure, setting.delta, setting.records)


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
