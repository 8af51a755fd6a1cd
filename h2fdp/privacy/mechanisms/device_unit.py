"""The device as the unit of privacy, wherever trust ends: uploads are clipped as a whole before their noise is added.

Neighbours: all uploads of one device become zero; weights and the facts of the network are public and stay, and so is
who takes part, unless that is drawn in secret (`secret_draws`). An upload then moves by its clip norm C at most,
whatever the device did to make it: any optimiser, loss, number of local steps, or memory. Each aggregation that a
device takes part in is a release of its own.
Source: McMahan et al. 2018 (clipped updates); H2FDP, Lemma 3.2 (who adds the noise).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.errors import refused
from h2fdp.network import Trust
from h2fdp.privacy.accounting import Sampling
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, Span
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    StatedNoise,
    Unit,
    UploadClipping,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline, Stage
from h2fdp.privacy.mechanisms.secure_sums import SecureSumSection
from h2fdp.privacy.mechanisms.stages import ClippedUpdate, ModularShares, UpdateNoise
from h2fdp.privacy.places import Holder, Observer, Place, ReleaseKind, Seen
from h2fdp.privacy.views import Sensitivities, Uploads

ABOUT_DEVICES = (
    "devices: epsilon is about a whole device - neighbours differ in one device's uploads, which become zero - not "
    "about one record; weights are public, and who takes part, unless that is drawn in secret"
)


@dataclass(frozen=True)
class LongestUpload:
    """C, whatever the number of steps: the clip norm of the first interval, which falls as step sizes do.

    So the noise falls with them, and the last model has less of it: an upload is about as long as its step size.
    """

    clip_norm: float
    step_size: float

    def __call__(self, step_size: float, steps: int) -> float:
        return self.clip_norm * step_size / self.step_size


@dataclass(frozen=True)
class ClippedUploads(Mechanism):
    """Gaussian noise of z C on each upload, or of z C max_j(rho_j) on a node's average of uploads.

    Attributes:
        noise_multiplier: z.
        longest: C of an interval, of a device's whole upload; where it takes part by chance, that is divided by its
            probability.
        rate: this probability, where all observers with an account do not learn who takes part; 1 elsewhere.
    """

    noise_multiplier: float
    longest: LongestUpload
    rate: float = 1.0

    def unit(self, span: Span) -> float:
        """The unit of the noise (`Mechanism.unit`), equal for every number of local steps."""
        return self.noise_multiplier * self.longest(span.segment.step_size, span.planned) / self.rate

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """C / q; a device is in all its batches, so that nothing is credited for sampling records."""
        ones = np.ones(len(uploads.rows))
        moved = self.longest(uploads.segment.step_size, 1) / self.rate * ones
        sampling: Sampling = "fixed" if self.rate == 1 else "poisson"
        return Sensitivities(moved, self.rate * ones, ones, sampling, "update", least=moved)

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """None: no formula promises anything; there is an account."""
        return None

    def scaled(self, factor: float) -> ClippedUploads:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)


@dataclass(frozen=True)
class CentralMechanism(ClippedUploads):
    """Clipped uploads with noise on the cloud's average: sigma = z C max_i(rho_i varrho_c).

    Attributes:
        formula: (15) at a sensitivity and a rate of 1: what z it asks for.
    """

    formula: PaperCalibration = field(kw_only=True)
    releases: ClassVar[ReleaseKind] = "central"

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """Sensitivities of a global average."""
        if uploads.segment.kind != "global":
            raise AssertionError("nothing leaves a subnet between global aggregations: peers would see it raw")
        return super().sensitivities(uploads)

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """(15) read backwards for q = 1: it grows with the root of the intervals."""
        if made.unplanned_noise or made.local:
            return None
        promised = self.formula.noise_std("global", 1.0, 1.0) * self.formula.epsilon / self.noise_multiplier
        return promised * math.sqrt(made.global_ / self.formula.global_releases)


class _WholeUploads(StatedNoise):
    """Noise that protects devices: all that they send is clipped, and what they remember stays with them."""

    protects: ClassVar[Unit] = "device"

    @property
    def clips(self) -> Clips:
        return "update"

    @property
    def notes(self) -> tuple[str, ...]:
        """The other unit."""
        return (ABOUT_DEVICES,)

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of settings that would send vectors unclipped, or reveal how many records a device has."""
        name, by_size = experiment.method.objective.name, experiment.training.weights == "by-size"
        yield from refused(
            "devices are protected as a whole",
            ("method.objective", name == "scaffold", "one that sends clipped uploads alone", name),
            ("training.weights", by_size, "uniform, as the number of records of a device is private", "by-size"),
        )
        yield from super().problems(experiment)
        yield from uncontrolled(experiment)

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        """Clipped uploads of those who take part, before any noise."""
        draw = () if clipping.draw is None else (clipping.draw,)
        return Pipeline((ClippedUpdate(_longest(clipping.norm, clipping.step_size), clipping.gamma), *draw))


def _longest(clip_norm: float | None, step_size: float) -> LongestUpload:
    assert clip_norm is not None, "a guarantee comes with clipping"
    return LongestUpload(clip_norm, step_size)


class DeviceDp(_WholeUploads):
    """Noise where trust ends, about whole devices.

    A trusted edge server adds noise to its averages of clipped uploads; under an untrusted one every device adds noise
    to its own, under a secure sum a share of it.

    Attributes:
        secure_sum: see `HierarchicalDp`.

    >>> [DeviceDp().place((trust,), 1).holder.name for trust in ("trusted", "secure-sum", "untrusted")]
    ['NODE', 'SHARE', 'DEVICE']
    """

    name: Literal["devices"] = "devices"
    secure_sum: SecureSumSection | None = None

    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge"})

    @property
    def rounding(self) -> int | None:
        return self._for_records.rounding

    @property
    def _for_records(self) -> HierarchicalDp:
        """The placement that adds noise at the same nodes."""
        return HierarchicalDp(secure_sum=self.secure_sum)

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        return self._for_records.place(chain, passed)

    def sees(self, trust: Trust) -> Seen:
        return self._for_records.sees(trust)

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of a formula about records, too."""
        by_formula = experiment.calibration == "paper" and self.noise_multiplier is None
        stated = "accounted, or a stated noise_multiplier"
        yield from refused(
            "devices are protected as a whole",
            ("privacy.calibration", by_formula, stated, "paper, whose formula is about records"),
        )
        yield from super().problems(experiment)

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        clipped, draw = super().pipeline(trust, clipping), clipping.draw
        if trust == "trusted":
            return clipped
        noise: Stage = UpdateNoise()
        if self.sees(trust) == "sum" and self.rounding is not None:
            longest = _longest(clipping.norm, clipping.step_size)
            noise = ModularShares(
                self.rounding, longest if draw is None else replace(longest, clip_norm=longest.clip_norm / draw.rate)
            )
        return Pipeline((*clipped.stages, noise))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        releases = setting.intervals + setting.local_aggregations
        begin = float(np.sqrt(releases)) / setting.epsilon if self.noise_multiplier is None else self.noise_multiplier
        return ClippedUploads(begin, _longest(setting.clip_norm, setting.step_size), setting.rate)


class CentralDp(_WholeUploads):
    """Noise at the cloud: `devices` where all edge servers and the cloud are trusted, and global models leave them.

    What is null is calibrated by (15) with q = 1.
    """

    name: Literal["central"] = "central"

    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge", "cloud"})
    unaudited: ClassVar[str | None] = "an audit reads the noise of devices and edge servers, and here the cloud adds it"

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The cloud adds it."""
        return Place(Holder.NODE, len(chain))

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of settings that would send vectors to peers without the cloud's noise, too."""
        yield from super().problems(experiment)
        if experiment.averages_locally:
            text = "local aggregations are broadcast to peers without noise"
            yield "training.aggregations_per_interval", f"{text}; expected 0 (or a method with topology star)"

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        formula = PaperCalibration(setting.epsilon, setting.delta, setting.c2, 0, setting.intervals)
        given = formula.noise_std("global", 1.0, 1.0) if self.noise_multiplier is None else self.noise_multiplier
        return CentralMechanism(given, _longest(setting.clip_norm, setting.step_size), setting.rate, formula=formula)
