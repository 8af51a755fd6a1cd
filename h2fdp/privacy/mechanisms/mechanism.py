"""The interface of a noise mechanism: noise levels, releases and claims; and the one for accumulated gradients.

`GradientSumMechanism` adds noise to sums of gradients, by devices or by edge servers (H2FDP, Prop. 3.1, Lemma 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

import numpy as np

from h2fdp.privacy.accounting import Accountant
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.calibration import Calibration
from h2fdp.privacy.gradient_bounds import (
    ESTIMATE_BATCHES,
    ClippedRecords,
    GradientBound,
    estimate_sensitivity,
    expected_batches,
)
from h2fdp.privacy.releases import PlannedUpload, Release, Sampling, releases_of
from h2fdp.privacy.trust_model import AggregationKind, ReleaseKind, Tier, TrustModel


@dataclass(frozen=True)
class NoiseRequest:
    """One interval of a subnet, for which noise is wanted.

    Attributes:
        segments: local steps before each aggregation, the last one global.
        step_size: eta_k.
        weights: (s,) of the uploads of the active devices, or (len(segments), s) of those that arrive at each
            aggregation, 0 for the others: with fewer devices each weighs more.
        sampling_rates: (s,) q_j.
        records: (s,) D_j.
        tiers: the tier of each local aggregation; empty in a network of one tier.
        portions: (len(segments), s) the share of the noise on all planned steps that each device's upload asks for;
            None for all of it.
    """

    trust_model: TrustModel
    segments: Sequence[int]
    step_size: float
    weights: np.ndarray
    sampling_rates: np.ndarray
    records: np.ndarray
    tiers: Sequence[Tier] = ()
    portions: np.ndarray | None = None


SensitivityRule = Literal["paper", "tight"]


@dataclass(frozen=True)
class MechanismContext:
    """A run for which noise is worked out, in plain values.

    Attributes:
        intervals: K_g, the global aggregations planned.
        local_aggregations: l_c, the local ones of a subnet over the whole run.
        tiers: the same of each tier of aggregators, in a network of more than one.
        local_steps: the most that a device takes in an interval.
        records, sampling_rates: (I,) D_i and q_i.
        gain: maps m steps to the number of gradients that their upload adds up (more than m with momentum).
        by_record: each record's gradient is clipped, and their sum divided by the public q_i D_i.
        own_objective: the objective is a user's own, of which no more is known than that it keeps 2 eta m G.
        step_size: the largest that the schedule can choose.
        mu: of the proximal pull; 0 for none.
        biased: whether the model has a bias: a feature that is always 1.
        accounted: the noise will be scaled until an account meets the target; what a formula asks for is a beginning.
    """

    epsilon: float
    delta: float
    c2: float
    sensitivity: SensitivityRule
    clip_norm: float | None
    intervals: int
    local_aggregations: int
    local_steps: int
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
    accounted: bool = False


@dataclass(frozen=True)
class AggregationCounts:
    """The aggregations that a run has made, for formulas that count them.

    Attributes:
        unplanned_noise: some had other noise than the formula asks for.
        tiers: the local ones of each tier, in a network of more than one.
    """

    local: int
    global_: int
    unplanned_noise: bool = False
    tiers: Mapping[Tier, int] = field(default_factory=dict)


class Mechanism(Protocol):
    """The noises of a run, what its uploads release, and what is said about that; a frozen value.

    What it answers does not hang on an edge server's name: of those that look alike one is asked.
    """

    def of_subnet(self, subnet: NoiseRequest) -> np.ndarray:
        """(len(segments), s) levels of noise from devices, (.., 1) from the edge server, (.., 0) from neither.

        A level is a standard deviation where the mechanism does not say otherwise.
        """
        ...

    def portions(self, steps: np.ndarray, planned: int, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """(s,) the least share of the noise on `planned` local steps that covers devices' uploads of `steps` (s,)."""
        return np.ones(len(steps))

    def of_aggregator(self, tier: Tier | None, step_size: float, interval: int, segment: int, exposure: float) -> float:
        """Standard deviation of the noise that an aggregator above edge servers adds to its average.

        Args:
            tier: of a local aggregation; None of the global one.
            interval, segment: local steps of the whole interval, and since the last released model.
            exposure: the largest share, times `exposures`, of a device whose update is still raw in the average.
        """
        raise AssertionError("only edge servers and devices add noise under this mechanism")

    def exposures(self, sampling_rates: np.ndarray, records: np.ndarray, interval: int, segment: int) -> np.ndarray:
        """(s,) by what the noise on a sum of devices' raw updates must grow: rate times sensitivity, in its unit.

        Args:
            sampling_rates, records: (s,) q_j and D_j.
            interval, segment: local steps of the whole interval, and since the last released model.
        """
        raise AssertionError("no update is raw above a device under this mechanism")

    def of_cloud(self, weights: Sequence[np.ndarray]) -> float:
        """Standard deviation of the cloud's own noise on the global average; 0 for none.

        Args:
            weights: for each subnet (s,), of the devices really averaged, in that average.
        """
        return 0.0

    def of_estimates(self, trust_model: TrustModel, numbers: int, sampling_rates: np.ndarray) -> np.ndarray:
        """(s,) or (1,) standard deviations for a number of estimates for a controller, in units of their ranges."""
        raise AssertionError("a controller is refused under this mechanism")

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        """What the ledger calls the releases of an aggregation."""
        ...

    def releases(self, upload: PlannedUpload) -> Iterator[Release]:
        """The ledger's rows of an upload, for all observers; those of the same upload later are the same, later."""
        ...

    def upload_variance(self, upload: PlannedUpload) -> float:
        """Of the noise on each coordinate of the subnet's average, as the cloud receives it."""
        ...

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """The epsilon that the mechanism's source promises so far; None where its formula says nothing any more."""
        ...

    @property
    def step_noise_multiplier(self) -> float | None:
        """Of the noise on every local step; None where there is none."""
        return None

    def iterations(self, epsilon: float, accountant: Accountant) -> int | None:
        """R_c: the local steps of a device that the noise is made for, or that meet the target; None where none count.

        Raises:
            UserError: nothing meets it.
        """
        return None

    def scaled(self, factor: float) -> Self:
        """The same under noise `factor` times as large."""
        ...

    def clipped_to(self, length: float) -> Self:
        """The same where what one record, or device, adds is no longer than this: noises keep their multipliers.

        For a clip norm that moves, see `AdaptiveClipping`.
        """
        raise AssertionError("the clip norm of this mechanism does not move")


@dataclass(frozen=True)
class GradientSumMechanism(Mechanism):
    """An upload is a sum of bounded gradients, released under noise at each aggregation.

    Attributes:
        bound: how far one record moves an upload.
        sensitivity: `paper` takes tau_k steps for every release; `tight` the steps that the upload accumulated.
    """

    calibration: Calibration
    bound: GradientBound
    sensitivity: SensitivityRule

    def of_subnet(self, subnet: NoiseRequest) -> np.ndarray:
        """See `Mechanism.of_subnet`.

        An edge server's noise covers the largest rho_j q_j Delta_j, so that unequal weights, rates or batches cost
        noise, never privacy; a device's own upload carries no weight.
        """
        last, whole = len(subnet.segments) - 1, sum(subnet.segments)
        weights = np.broadcast_to(subnet.weights, (len(subnet.segments), len(subnet.sampling_rates)))
        rows = []
        for segment, (accumulated, shares) in enumerate(zip(subnet.segments, weights, strict=True)):
            kind: AggregationKind = "global" if segment == last else "local"
            tier = subnet.tiers[segment] if subnet.tiers and segment < last else None
            exposed = self.exposures(subnet.sampling_rates, subnet.records, whole, accumulated)
            if subnet.portions is not None:
                exposed = exposed * subnet.portions[segment]
            shown = subnet.trust_model.exposure(shares, exposed)
            rows.append(self._of_exposure_one(kind, tier, subnet.step_size, whole, accumulated) * shown)
        return np.stack(rows)

    def exposures(self, sampling_rates: np.ndarray, records: np.ndarray, interval: int, segment: int) -> np.ndarray:
        batches = expected_batches(sampling_rates, records)
        relative = self.bound.relative(self._counted(interval, segment), batches)
        return np.asarray(self.calibration.by_rate(sampling_rates) * relative)

    def portions(self, steps: np.ndarray, planned: int, sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
        """See `Mechanism.portions`: sensitivities of uploads of these steps, in those of the planned ones."""
        batches = expected_batches(sampling_rates, records)
        found = np.zeros(len(steps))
        for done in np.unique(steps).tolist():
            same = steps == done
            found[same] = self.bound.sensitivity(1.0, done, batches[same])
        return np.asarray(found / self.bound.sensitivity(1.0, planned, batches))

    def of_aggregator(self, tier: Tier | None, step_size: float, interval: int, segment: int, exposure: float) -> float:
        """See `Mechanism.of_aggregator`: sized by the largest share of a device times its rate and sensitivity."""
        kind: AggregationKind = "global" if tier is None else "local"
        return self._of_exposure_one(kind, tier, step_size, interval, segment) * exposure

    def _of_exposure_one(
        self, kind: AggregationKind, tier: Tier | None, step_size: float, interval: int, segment: int
    ) -> float:
        """The noise on a vector that one record moves by the bound's unit, and whose batches have a rate of 1.

        Args:
            interval: tau_k.
            segment: local steps since the last released model.
        """
        unit = self.bound.unit(step_size, self._counted(interval, segment))
        return self.calibration.noise_std(kind, unit, 1.0, tier)

    def _counted(self, interval: int, segment: int) -> int:
        """The steps that noise is sized for."""
        return interval if self.sensitivity == "paper" else segment

    def of_estimates(self, trust_model: TrustModel, numbers: int, sampling_rates: np.ndarray) -> np.ndarray:
        """See `Mechanism.of_estimates`; as many as global aggregations.

        An edge server's maximum has no weights to shrink it.
        """
        if not trust_model.noisy:
            raise ValueError("private estimates are released under noise")
        exposed = trust_model.exposure(np.ones(len(sampling_rates)), sampling_rates)
        return np.asarray(self.calibration.noise_std("global", estimate_sensitivity(numbers), 1.0) * exposed)

    def kind(self, aggregation: AggregationKind) -> ReleaseKind:
        return aggregation

    def releases(self, upload: PlannedUpload) -> Iterator[Release]:
        """See `Mechanism.releases`.

        A straggler's upload holds fewer steps, and is written down as what it is; its noise is that of the planned
        steps. An edge server's maximum over its devices moves with any of them by the whole range, whatever its weight.
        """
        if upload.kind == "estimate":
            count, by_devices = len(upload.rows), upload.trust_model.devices_add_noise
            weights = np.full(count, 1 / count) if by_devices else np.ones(count)
            drawn = np.full(count, ESTIMATE_BATCHES)
            asked = replace(upload, steps=drawn, weights=weights, bound="range")
            yield from releases_of(asked, estimate_sensitivity(upload.numbers))
            return
        batches = expected_batches(upload.sampling_rates, upload.records)
        moved = np.zeros(len(upload.rows))
        for steps in np.unique(upload.steps).tolist():
            same = upload.steps == steps
            moved[same] = self.bound.sensitivity(upload.step_size, steps, batches[same])
        if upload.rounding:  # every move is at least that of one step, so it grows by this share at most
            least = upload.weights * self.bound.sensitivity(upload.step_size, 1, batches)
            moved = moved * (1 + upload.rounding / least)
        asked = replace(upload, bound=self.bound.name, own_gradient=self.bound.own_gradient(batches))
        for release in releases_of(asked, moved):
            assert release.noise_std > 0, "no node outside the trusted chain sees an update without noise"
            yield release

    def upload_variance(self, upload: PlannedUpload) -> float:
        parts = upload.trust_model.noise_parts(upload.noise_std, upload.weights)
        return float((parts**2).sum())

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """See `Mechanism.claimed`: the larger of what (15) says of local and of global releases."""
        return None if made.unplanned_noise else self.calibration.claimed(made.local, made.global_, made.tiers)

    def scaled(self, factor: float) -> GradientSumMechanism:
        return replace(self, calibration=self.calibration.scaled(factor))

    def clipped_to(self, length: float) -> GradientSumMechanism:
        """See `Mechanism.clipped_to`; of uploads of one step, the only ones that count votes."""
        assert isinstance(self.bound, ClippedRecords), "votes are those of records"
        return replace(self, bound=replace(self.bound, clip_norm=length))
