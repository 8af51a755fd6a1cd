"""What travels down the tree beside the model: the plan of an interval for a subnet, and orders to its devices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from h2fdp.privacy.calibration import ReleaseKind


@dataclass(frozen=True)
class SubnetPlan:
    """One interval of one subnet.

    Attributes:
        interval: k, from 0.
        first_slot: t_k; the interval covers t_k + 1 .. t_k + tau_k.
        segments: local steps before each aggregation; the last one is the global one.
        step_size: eta_k.
        rows: (s_c^k,) rows of the devices that take part, ascending.
        weights: (s_c^k,) rho_j, summing to 1.
        noise_std: (len(segments), s_c^k) where devices add noise, (len(segments), 1) where the edge server does,
            (len(segments), 0) where nobody does.
        estimate_noise: (s_c^k,) or (1,), as above, on estimates for the controller that follow the interval, in units
            of their ranges; (0,) where they go up raw; None where nothing is measured.
    """

    interval: int
    first_slot: int
    segments: tuple[int, ...]
    step_size: float
    rows: np.ndarray
    weights: np.ndarray
    noise_std: np.ndarray
    estimate_noise: np.ndarray | None = None

    @property
    def last_slot(self) -> int:
        """t_{k+1}."""
        return self.first_slot + sum(self.segments)

    def ends(self) -> tuple[int, ...]:
        """The slot of each aggregation."""
        return tuple(self.first_slot + end for end in accumulate(self.segments))

    def kind(self, segment: int) -> ReleaseKind:
        """Whether the aggregation that ends this segment is local or global."""
        return "global" if segment == len(self.segments) - 1 else "local"


@dataclass(frozen=True)
class TrainingOrder:
    """Train from the broadcast model over the slots `first_slot + 1 .. last_slot`, then upload.

    Attributes:
        rows: (s,) rows within the subnet of the group's devices that take part.
        noise_std: (s,) standard deviation that each device adds to its upload; empty where it adds none.
    """

    interval: int
    first_slot: int
    last_slot: int
    kind: ReleaseKind
    step_size: float
    rows: np.ndarray
    noise_std: np.ndarray

    @property
    def slots(self) -> range:
        """The slots of its local steps."""
        return range(self.first_slot + 1, self.last_slot + 1)


@dataclass(frozen=True)
class MeasuringOrder:
    """Measure at the broadcast model w(t_{k+1}), then send up what may leave.

    Attributes:
        slot: t_{k+1}.
        reach: how far apart, in gradients, the two points of a secant are.
        rows: (s,) rows within the subnet of the group's devices that took part.
        noise_std: (s,) that each device adds to its numbers; empty where it adds none.
    """

    interval: int
    slot: int
    reach: float
    rows: np.ndarray
    noise_std: np.ndarray
