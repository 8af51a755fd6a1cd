"""A clip norm that follows a quantile of the norms that it clips (Andrew, Thakkar, McMahan and Ramaswamy 2021).

What is clipped to C, a record's gradient or a device's update, gets one coordinate more: its vote, c C if it was no
longer than C and -c C if it was. One Gaussian noise covers all coordinates. A null record has neither gradient nor
vote, so a record moves the whole by C sqrt(1 + c^2) at most: one release, whose account is that of its noise in units
of this length (docs/record-sensitivity.md). In Andrew et al.'s words z is the multiplier of the account, z_Delta = z
sqrt(1 + c^2) that of the gradients and 2 sigma_b = z sqrt(1 + c^2) / c that of the count: 1/z^2 = 1/z_Delta^2 + 1/(2
sigma_b)^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOVES = (
    "clip norm: it follows noisy votes, which every release contains beside the gradients or updates; the ledger's "
    "sensitivities and noises are those of both together, at the clip norm of their interval, and a null record (or, "
    "under central, a device whose updates become zero) casts no vote"
)
FARTHEST = 1000.0  # factor between a clip norm and the first one: noise is sized for 32-bit numbers in between


@dataclass(frozen=True)
class AdaptiveClipping:
    """How the clip norm of an interval follows from what was released before it.

    Attributes:
        initial: C of the first interval.
        quantile: gamma, the share of norms that should be at most C.
        learning_rate: eta_C of C <- C exp(-eta_C (b - gamma)).
        share: of 1/z^2 that the votes take: c^2 / (1 + c^2).

    >>> adaptive = AdaptiveClipping(initial=3.0, quantile=0.5, learning_rate=0.2, share=0.36)
    >>> adaptive.length(4.0), adaptive.vote(4.0)
    (5.0, 3.0)
    """

    initial: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    share: float = 0.01

    def length(self, norm: float) -> float:
        """C sqrt(1 + c^2): no clipped vector is longer together with its vote."""
        return norm / math.sqrt(1 - self.share)

    def vote(self, norm: float) -> float:
        """c C, the length of a vote."""
        return norm * math.sqrt(self.share / (1 - self.share))

    def fraction(self, votes: float, norm: float) -> float:
        """b, the share of norms that are at most C, by a noisy mean of votes; noise may lead out of [0, 1].

        >>> AdaptiveClipping(initial=3.0, share=0.36).fraction(votes=-1.5, norm=4.0)
        0.25
        """
        return min(max(0.5 + votes / (2 * self.vote(norm)), 0.0), 1.0)

    def after(self, norm: float, fraction: float) -> float:
        """The next clip norm; it never leaves the first one by more than a factor of `FARTHEST`.

        >>> AdaptiveClipping(initial=1.0, learning_rate=1.0).after(1.0, fraction=1.0) == math.exp(-0.5)
        True
        """
        moved = norm * math.exp(-self.learning_rate * (fraction - self.quantile))
        return min(max(moved, self.initial / FARTHEST), self.initial * FARTHEST)
