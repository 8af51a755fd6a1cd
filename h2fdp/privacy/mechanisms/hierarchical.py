"""Noise on accumulated gradients where trust ends, or as if no edge server were trusted; and no noise at all.

With noise on steps, untrusted devices take noisy steps, and trusted edge servers add noise to sums. Every release, a
device's step or an average, then has the same ratio of noise to sensitivity, so that all devices' accounts meet the
target together where edge servers release one step at a time (docs/record-sensitivity.md).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from h2fdp.config.fields import Expect
from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import UserError, refused
from h2fdp.network import Trust
from h2fdp.privacy.accounting import Accountant, ReleaseType
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import EqualMultipliers, PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches, ClippedRecords, GradientBound, LinearScores, StepsDoNotExpand
from h2fdp.privacy.mechanisms.dp_sgd import DpSgdMechanism, planned_multiplier
from h2fdp.privacy.mechanisms.mechanism import (
    AggregationCounts,
    GradientSumMechanism,
    Mechanism,
    MechanismContext,
    Span,
)
from h2fdp.privacy.mechanisms.noise_placement import (
    BoundedInputs,
    Clips,
    NoisePlacement,
    UploadClipping,
    clipped,
    remembering,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline, Stage
from h2fdp.privacy.mechanisms.secure_sums import SecureSumSection
from h2fdp.privacy.mechanisms.stages import ModularShares, NoisySteps, UpdateNoise
from h2fdp.privacy.places import Holder, Observer, Place, Seen, Tolerance
from h2fdp.privacy.vectors import GAUSSIAN, NOISE_LAWS, NoiseLaw
from h2fdp.privacy.views import Sensitivities, Uploads


@dataclass(frozen=True)
class NoiseInside(Mechanism):
    """Steps of untrusted devices, sums of trusted edge servers.

    Attributes:
        steps: of the devices that add noise themselves.
        sums: of edge servers and the trusted nodes above them.
    """

    steps: DpSgdMechanism
    sums: GradientSumMechanism

    def unit(self, span: Span) -> float:
        return self._of(span.place).unit(span)

    def exposures(self, span: Span, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        return self._of(span.place).exposures(span, sampling_rates, records)

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        return self._of(uploads.place).sensitivities(uploads)

    def variance(self, uploads: Uploads) -> float:
        return self._of(uploads.place).variance(uploads)

    def _of(self, place: Place) -> DpSgdMechanism | GradientSumMechanism:
        return self.steps if place.holder is Holder.STEP else self.sums

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """None: no formula promises anything; there is an account."""
        return None

    def iterations(self, epsilon: float, accountant: Accountant) -> int | None:
        """None: the noise is made for all planned steps."""
        return None

    def scaled(self, factor: float) -> NoiseInside:
        return replace(self, steps=self.steps.scaled(factor), sums=self.sums.scaled(factor))


class NonPrivate(NoisePlacement):
    """No noise."""

    name: Literal["none"] = "none"

    private: ClassVar[bool] = False
    unaudited: ClassVar[str | None] = "an audit needs a method that promises privacy; this one adds no noise"

    def place(self, chain: Sequence[Trust], passed: int) -> None:
        """No noise is added."""

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of settings that need a guarantee."""
        return refused(
            "the controller weighs energy and delay against noise, and this method adds none",
            ("control.enabled", experiment.method.traits.controlled, "false, or a method with noise", "true"),
        )

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """There is none."""
        raise AssertionError("no noise is worked out where none is added")


if TYPE_CHECKING:
    LawName = str
else:
    LawName = Annotated[Literal[tuple(NOISE_LAWS)], Expect(f"one of {', '.join(NOISE_LAWS)}")]


class GradientNoise(BoundedInputs):
    """Noise on sums of steps, or on the steps.

    Attributes:
        noise: where devices add noise: to `uploads`, or to each of their local `steps`.
        law: distribution of the noise: `gaussian`, or `laplace`, whose account needs no delta.
    """

    noise: Literal["uploads", "steps"] = "uploads"
    law: LawName = GAUSSIAN.name

    accumulates: ClassVar[bool] = True
    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge"})

    @property
    def clips(self) -> Clips:
        return "record" if self.noise == "steps" else "gradient"

    @property
    def noise_law(self) -> NoiseLaw:
        return NOISE_LAWS[self.law]

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the law of its noise."""
        return () if self.noise_law.note is None else (self.noise_law.note,)

    @property
    def _of_devices(self) -> Place:
        return Place(Holder.STEP if self.noise == "steps" else Holder.DEVICE)

    @abstractmethod
    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """Somebody adds noise."""

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of what would void that an upload is a sum of clipped gradients, or that a step moves by one of
        these."""
        training, on_steps, by_account = (
            experiment.training,
            self.noise == "steps",
            experiment.calibration == "accounted",
        )
        objective, controlled = experiment.method.local_objective, experiment.method.traits.controlled
        yield from remembering(experiment, on_steps)
        yield from clipped(experiment, "gradients") if self.input_bound is None else _unclipped(experiment)
        step_size, momentum = experiment.largest_step_size, training.momentum
        if objective.memory is None and not objective.keeps_sensitivity(step_size, momentum):
            yield from _unproven(experiment)
        other, gaussian = self.noise_law is not GAUSSIAN, "or law gaussian"
        yield from refused(
            f"only the account of uploads knows the noise of {self.law}",
            ("privacy.calibration", other and not by_account, f"accounted, {gaussian}", experiment.calibration),
            ("method.privacy.noise", other and on_steps, f"uploads, {gaussian}", self.noise),
            ("control.enabled", other and controlled, f"false, {gaussian}", "true"),
        )
        scope = training.clip_scope if "clip_scope" in training.model_fields_set else "record"
        yield from refused(
            "noise: steps is added to sums of records' clipped gradients, step by step",
            ("control.enabled", on_steps and controlled and not by_account, "privacy.calibration accounted", "paper"),
            ("training.clip_scope", on_steps and scope != "record", "record", scope),
            ("method.privacy.input_bound", on_steps and self.input_bound is not None, "null", self.input_bound),
        )

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        place = self.place((trust,), 1)
        if place.holder is Holder.STEP:
            return Pipeline((NoisySteps(),), "expected")
        expected = clipping.by_record or self.noise == "steps" or self.input_bound is not None
        noise: tuple[Stage, ...] = () if place.by_node else (UpdateNoise(self.noise_law),)
        if place.holder is Holder.SHARE and self.rounding is not None:
            assert clipping.longest is not None, "integers stand for vectors of bounded length"
            noise = (ModularShares(self.rounding, clipping.longest),)
        return Pipeline(noise, "expected" if expected else "drawn", self.noise_law)

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        """The paper's calibration for the numbers of releases that are planned.

        With noise on steps one multiplier for all, at first by ALI-DPFL's account of the planned steps.
        """
        if self.noise == "uploads":
            planned = (setting.local_aggregations, setting.intervals)
            known = self._bound(setting), setting.sensitivity
            if self.noise_law is not GAUSSIAN or setting.no_formula:  # only an account, which the noise is scaled to
                law = self.noise_law, self.noise_law.norm_ratio(setting.parameters)
                return GradientSumMechanism(EqualMultipliers(sum(planned) / setting.epsilon), *known, *law)
            calibration = PaperCalibration(setting.epsilon, setting.delta, setting.c2, *planned, tiers=setting.tiers)
            return GradientSumMechanism(calibration, *known)
        assert setting.clip_norm is not None, "a guarantee comes with clipping"
        exposed = ReleaseType(1.0, 1, float(setting.sampling_rates.max()), setting.sampling)
        noise = planned_multiplier(setting, exposed)
        of_run = setting.delta, exposed, setting.intervals * setting.local_steps
        steps = DpSgdMechanism(noise, setting.clip_norm, *of_run, None)
        return NoiseInside(steps, GradientSumMechanism(EqualMultipliers(noise), self._bound(setting), "tight"))

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


class HierarchicalDp(GradientNoise):
    """Noise where trust ends.

    A trusted edge server adds noise to its averages; under an untrusted one every device does, to its uploads or to its
    steps. Under one that holds secure sums, every device adds a share of the noise that a trusted one would add; where
    all are relays of one sum over the whole network, a share of the noise that a trusted cloud would add.

    Attributes:
        secure_sum: colluding and lost devices that sums of `secure-sum` edge servers, or of relays, withstand; null:
            none.

    >>> [HierarchicalDp().place((trust,), 1).holder.name for trust in ("trusted", "secure-sum", "untrusted")]
    ['NODE', 'SHARE', 'DEVICE']
    """

    name: Literal["hierarchical"] = "hierarchical"
    secure_sum: SecureSumSection | None = None

    @property
    def _sums(self) -> SecureSumSection:
        return self.secure_sum or SecureSumSection()

    @property
    def rounding(self) -> int | None:
        return self._sums.rounding

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The highest trusted node that the vector passes on its unbroken chain adds the noise (R9)."""
        if chain[0] == "trusted":
            trusted = next((at for at, trust in enumerate(chain) if trust != "trusted"), len(chain))
            return Place(Holder.NODE, min(trusted, passed) - 1)
        if self.sees(chain[0]) == "sum":
            return Place(Holder.SHARE, tolerance=Tolerance(self._sums.colluding, self._sums.dropouts))
        return self._of_devices

    def sees(self, trust: Trust) -> Seen:
        return "sum" if trust in ("secure-sum", "relay") else "each"


class LocalDp(GradientNoise):
    """Noise at every device."""

    name: Literal["local"] = "local"

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The device adds it, as if no edge server were trusted."""
        return self._of_devices


def _unproven(experiment: Any) -> Iterator[tuple[str, str]]:
    """The problem of an objective of which nothing shows that noise sized for sums of gradients covers its uploads."""
    name, momentum, size = experiment.method.objective.name, experiment.training.momentum, experiment.largest_step_size
    own, objective = isinstance(experiment.method.objective, OwnPart), experiment.method.local_objective
    mu = getattr(objective, "pull", None) or 0.0
    proof = f"its keeps_sensitivity{'(step_size, momentum)' if momentum else ''} to return True, once that is proven"
    yield from refused(
        f"nothing shows that steps of {name}, of size {size:g}, do not increase the sensitivity",
        ("method.objective", own, proof, "False"),
        ("method.objective.mu", not own and size * mu > 2, f"at most {2 / size:.4g}", f"{mu:g}"),
        ("training.momentum", not own and momentum and mu, "0, or objective plain", f"{momentum:g}"),
    )


def _unclipped(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of what the account by draws does not cover: it needs convex losses with bounded gradients, and plain
    steps."""
    training, objective, model = experiment.training, experiment.method.objective.name, experiment.model_name
    norm = training.largest_norm if "clip_norm" in training.model_fields_set else None
    controlled, loss, momentum = experiment.method.traits.controlled, training.loss.name, training.momentum
    yield from refused(
        "input_bound knows plain steps on a convex loss, whose gradients it bounds",
        ("training.clip_norm", norm is not None, "null, as clipped gradients are none", norm),
        ("model", model not in ("auto", "softmax", "logistic"), "softmax or logistic", model),
        ("training.loss", loss != "cross-entropy", "cross-entropy", loss),
        ("method.objective", objective not in ("plain", "proximal"), "plain or proximal", objective),
        ("control.enabled", controlled, "false, as the controller weighs noise by the clip norm", "true"),
        ("training.momentum", momentum > 0, "0, as steps may expand", momentum),
    )
