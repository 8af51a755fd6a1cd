"""The interface of a noise mechanism: noise levels, releases and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

import numpy as np

from h2fdp.privacy.accounting import Accountant
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.releases import PlannedUpload, Release, Sampling
from h2fdp.privacy.trust_model import TrustModel
from h2fdp.privacy.words import AggregationKind, ReleaseKind, Tier


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

        For a clip norm that moves, see `adaptive_clipping`.
        """
        raise AssertionError("the clip norm of this mechanism does not move")
