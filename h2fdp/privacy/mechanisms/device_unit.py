"""The device as the unit of privacy, wherever trust ends: uploads are clipped as a whole before their noise is added.

Neighbours: all uploads of one device become zero; weights, who takes part and the facts of the network are public and
stay. An upload then moves by its clip norm C at most, whatever the device did to make it: any optimiser, loss, number
of local steps, or memory. Each aggregation that a device takes part in is a release of its own.
Source: McMahan et al. 2018 (clipped updates); H2FDP, Lemma 3.2 (who adds the noise).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from h2fdp.errors import refused
from h2fdp.network import Trust
from h2fdp.privacy.accounting import Sampling
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, Span
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    RequestedExperiment,
    StatedNoise,
    Unit,
    UploadClipping,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline, Stage
from h2fdp.privacy.mechanisms.secure_sums import SecureSumSection
from h2fdp.privacy.mechanisms.stages import ClippedUpdate, ModularShares, UpdateNoise
from h2fdp.privacy.places import Observer, Place, Seen
from h2fdp.privacy.views import Sensitivities, Uploads

ABOUT_DEVICES = (
    "devices: epsilon is about a whole device - neighbours differ in one device's uploads, which become zero - not "
    "about one record; weights are public, and who takes part, unless that is drawn in secret"
)


@dataclass(frozen=True)
class ClippedUploads(Mechanism):
    """Gaussian noise of z C on each upload, or of z C max_j(rho_j) on a node's average of uploads.

    Attributes:
        noise_multiplier: z.
        clip_norm: C, of a device's whole upload; where it takes part by chance, that is divided by its probability.
        rate: this probability, where all observers with an account do not learn who takes part; 1 elsewhere.
    """

    noise_multiplier: float
    clip_norm: float
    rate: float = 1.0

    def unit(self, span: Span) -> float:
        """See `Mechanism.unit`: the same for every number of local steps."""
        return self.noise_multiplier * self.clip_norm / self.rate

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """C / q; a device is in all its batches, so that nothing is credited for sampling records."""
        ones = np.ones(len(uploads.rows))
        moved = self.clip_norm / self.rate * ones
        sampling: Sampling = "fixed" if self.rate == 1 else "poisson"
        return Sensitivities(moved, self.rate * ones, ones, sampling, "update", least=moved)

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """None: no formula promises anything; there is an account."""
        return None

    def scaled(self, factor: float) -> ClippedUploads:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)


@dataclass(frozen=True)
class _Longest:
    """The longest upload, whatever the step size and the number of steps."""

    clip_norm: float

    def __call__(self, step_size: float, steps: int) -> float:
        return self.clip_norm


class DeviceDp(StatedNoise):
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

    protects: ClassVar[Unit] = "device"
    trusted: ClassVar[frozenset[Observer]] = frozenset({"edge"})

    @property
    def clips(self) -> Clips:
        return "update"

    @property
    def rounding(self) -> int | None:
        return self._for_records.rounding

    @property
    def notes(self) -> tuple[str, ...]:
        """The other unit."""
        return (ABOUT_DEVICES,)

    @property
    def _for_records(self) -> HierarchicalDp:
        """The placement that adds noise at the same nodes."""
        return HierarchicalDp(secure_sum=self.secure_sum)

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        return self._for_records.place(chain, passed)

    def sees(self, trust: Trust) -> Seen:
        return self._for_records.sees(trust)

    def problems(self, request: RequestedExperiment) -> Iterator[tuple[str, str]]:
        """What would reach an observer unclipped, or what tells how many records a device has."""
        by_formula = request.calibration == "paper" and self.noise_multiplier is None
        stated, by_size = "accounted, or a stated noise_multiplier", request.weights == "by-size"
        yield from refused(
            "devices are protected as a whole",
            ("method.objective", request.objective == "scaffold", "one that sends clipped uploads alone", "scaffold"),
            ("training.weights", by_size, "uniform, as the number of records of a device is private", "by-size"),
            ("privacy.calibration", by_formula, stated, "paper, whose formula is about records"),
        )
        yield from super().problems(request)
        yield from uncontrolled(request)

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        assert clipping.norm is not None, "a guarantee comes with clipping"
        draw = clipping.draw
        stages: tuple[Stage, ...] = (ClippedUpdate(clipping.norm, clipping.gamma), *([] if draw is None else [draw]))
        if trust == "trusted":
            return Pipeline(stages)
        if self.sees(trust) == "sum" and self.rounding is not None:
            longest = clipping.norm if draw is None else clipping.norm / draw.rate
            return Pipeline((*stages, ModularShares(self.rounding, _Longest(longest))))
        return Pipeline((*stages, UpdateNoise()))

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        assert setting.clip_norm is not None, "a guarantee comes with clipping"
        releases = setting.intervals + setting.local_aggregations
        begin = float(np.sqrt(releases)) / setting.epsilon if self.noise_multiplier is None else self.noise_multiplier
        return ClippedUploads(begin, setting.clip_norm, setting.rate)
