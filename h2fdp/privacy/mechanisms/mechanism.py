"""The interface of a noise mechanism: noise levels, releases and claims; and the one for accumulated gradients.

`GradientSumMechanism` adds noise to sums of gradients, by devices or by edge servers (H2FDP, Prop. 3.1, Lemma 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, Self

import numpy as np

from h2fdp.privacy.accounting import Accountant, Sampling
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import Calibration
from h2fdp.privacy.gradient_bounds import GradientBound, expected_batches, moved
from h2fdp.privacy.places import AggregationKind, Place, ReleaseKind, Segment, Tier
from h2fdp.privacy.vectors import GAUSSIAN, NoiseLaw
from h2fdp.privacy.views import Sensitivities, Uploads, variance_of


@dataclass(frozen=True)
class Span:
    """An aggregation for which noise is sized.

    Attributes:
        tier: of a local aggregation in a network of several tiers.
        segment: since the last released model.
        planned: local steps of the whole interval.
    """

    place: Place
    tier: Tier | None
    segment: Segment
    planned: int


SensitivityRule = Literal["paper", "tight"]


@dataclass(frozen=True)
class MechanismContext:
    """A run for which noise is worked out, in plain values.

    Attributes:
        intervals: K_g, the global aggregations planned.
        local_aggregations: l_c, the local ones of a subnet over the whole run.
        tiers: the local aggregations of each tier of aggregators, in a network of more than one.
        local_steps: the most that a device takes in an interval.
        step_releases: the most that noise on steps counts of a device in an interval: its steps, or its epochs.
        records, sampling_rates: (I,) D_i and q_i.
        gain: maps m steps to the number of gradients that their upload adds up (more than m with momentum).
        by_record: each record's gradient is clipped, and their sum divided by the public q_i D_i.
        own_objective: the objective is a user's own, with no bound but 2 eta m G.
        step_size: the largest that the schedule can choose.
        mu: of the proximal pull; 0 for none.
        biased: whether the model has a bias: a feature that is always 1.
        parameters: M, the numbers of a device's update.
        accounted: the noise will be scaled until an account meets the target; what a formula asks for is a beginning.
        no_formula: none says anything about the law of the noise.
        open_ended: a run takes as many local steps as the target allows, however many are planned.
        rate: with which each device takes part in an interval, where it draws that in secret; 1 elsewhere.
    """

    epsilon: float
    delta: float
    c2: float
    sensitivity: SensitivityRule
    clip_norm: float | None
    intervals: int
    local_aggregations: int
    local_steps: int
    step_releases: int
    records: np.ndarray
    sampling_rates: np.ndarray
    sampling: Sampling
    gain: Callable[[int], float]
    by_record: bool
    own_objective: bool
    step_size: float
    mu: float
    biased: bool
    tiers: Mapping[Tier, int] = field(default_factory=dict)
    parameters: int = 0
    accounted: bool = False
    no_formula: bool = False
    open_ended: bool = False
    rate: float = 1.0


@dataclass(frozen=True)
class AggregationCounts:
    """The aggregations that a run has made, for formulas that count them.

    Attributes:
        unplanned_noise: some had other noise than the formula asks for, or devices released other numbers of uploads.
        tiers: the local ones of each tier, in a network of more than one.
    """

    local: int
    global_: int
    unplanned_noise: bool = False
    tiers: Mapping[Tier, int] = field(default_factory=dict)


class Mechanism(Protocol):
    """The noises of a run, what its uploads release, and what is said about that; a frozen value.

    The level of a noise is `unit` times what `Place.levels` makes of `exposures`: a standard deviation where the
    mechanism does not say otherwise. What it answers does not hang on an edge server's name.

    Attributes:
        releases: what the ledger calls all its releases; None: as their aggregations.
    """

    releases: ClassVar[ReleaseKind | None] = None

    def unit(self, span: Span) -> float:
        """The noise for an exposure of 1."""
        ...

    def exposures(self, span: Span, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """(s,) by what the noise on a device's upload must grow: rate times sensitivity, in its unit.

        Args:
            sampling_rates, records: (s,) q_j and D_j.
        """
        return np.ones(len(sampling_rates))

    def portions(self, steps: np.ndarray, planned: int, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """(s,) the least share of the noise on `planned` local steps that covers devices' uploads of `steps` (s,)."""
        return np.ones(len(steps))

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        """The ledger's name of an aggregation's releases."""
        return self.releases or aggregation

    def stated(self, levels: np.ndarray) -> np.ndarray:
        """(n,) standard deviations of the noise on what leaves, as the ledger states them, of levels (n,)."""
        return levels

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """The distance by which a record moves what devices upload."""
        ...

    def variance(self, uploads: Uploads) -> float:
        """The variance of the noise on each coordinate of the subnet's average, as the cloud receives it."""
        return variance_of(uploads.parts)

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """The epsilon that the mechanism's source promises so far; None where its formula says nothing any more."""
        ...

    @property
    def step_noise_multiplier(self) -> float | None:
        """The multiplier of the noise on every local step; None where there is none."""
        return None

    def iterations(self, epsilon: float, accountant: Accountant) -> int | None:
        """R_c: the local steps of a device that the noise is made for, or that meet the target; None where none count.

        Raises:
            UserError: nothing meets it.
        """
        return None

    def scaled(self, factor: float) -> Self:
        """The mechanism under noise `factor` times as large."""
        ...


@dataclass(frozen=True)
class GradientSumMechanism(Mechanism):
    """An upload is a sum of bounded gradients, released under noise at each aggregation.

    Attributes:
        bound: how far one record moves an upload.
        sensitivity: `paper` takes tau_k steps for every release; `tight` the steps that the upload accumulated.
        law: of the noise.
        norm_ratio: how much longer an update may be in the norm of the law than in L2.
    """

    calibration: Calibration
    bound: GradientBound
    sensitivity: SensitivityRule
    law: NoiseLaw = GAUSSIAN
    norm_ratio: float = 1.0

    def unit(self, span: Span) -> float:
        """The unit of noise; see `Mechanism.unit`.

        An edge server's noise covers the largest rho_j q_j Delta_j, so that unequal weights, rates or batches cost
        noise, never privacy; a device's own upload carries no weight.
        """
        moved = self.bound.unit(span.segment.step_size, self._counted(span)) * self.norm_ratio
        return self.calibration.noise_std(span.segment.kind, moved, 1.0, span.tier)

    def exposures(self, span: Span, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        relative = self.bound.relative(self._counted(span), expected_batches(sampling_rates, records))
        return np.asarray(self.calibration.by_rate(sampling_rates) * relative)

    def _counted(self, span: Span) -> int:
        """The steps that noise is sized for."""
        return span.planned if self.sensitivity == "paper" else len(span.segment.slots)

    def portions(self, steps: np.ndarray, planned: int, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """The portions, see `Mechanism.portions`: sensitivities of uploads of these steps, in those of the planned
        ones."""
        batches = expected_batches(sampling_rates, records)
        return np.asarray(moved(self.bound, 1.0, steps, batches) / self.bound.sensitivity(1.0, planned, batches))

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        batches = expected_batches(uploads.sampling_rates, uploads.records)
        return Sensitivities(
            moved=moved(self.bound, uploads.segment.step_size, uploads.steps, batches) * self.norm_ratio,
            rates=uploads.sampling_rates,
            steps=uploads.steps,
            sampling=uploads.sampling,
            bound=self.bound.name,
            own_gradient=self.bound.own_gradient(batches),
            least=self.bound.sensitivity(uploads.segment.step_size, 1, batches) * self.norm_ratio,
            law=self.law.name,
        )

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """The claim, see `Mechanism.claimed`: the larger of what (15) says of local and of global releases."""
        return None if made.unplanned_noise else self.calibration.claimed(made.local, made.global_, made.tiers)

    def scaled(self, factor: float) -> GradientSumMechanism:
        return replace(self, calibration=self.calibration.scaled(factor))
