"""The privacy of a search: the best of a random number of private trials is released, and nothing else.

A trial Q draws its settings from a fixed distribution, trains privately, and hands back what it releases with a score.
A search runs Q independently K times and releases the trial of the highest score. If K is fixed, the release of the
best costs nearly as much as that of all. If K is random and unknown it does not (Liu and Talwar 2019; Papernot and
Steinke 2022, "Hyperparameter tuning with Renyi differential privacy").

K is geometric here, P[K = k] = g (1 - g)^(k - 1): their truncated negative binomial distribution of shape 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from h2fdp.privacy.accounting.renyi import ORDERS

_MOST_TRIALS = 10_000_000
_STEPS = 200  # of the bisection for g, on its logarithm


@dataclass(frozen=True)
class TrialNumbers:
    """The number of trials of a search, which is geometric.

    Attributes:
        success: g, in (0, 1); the paper's gamma.

    >>> law = TrialNumbers.of_mean(30)
    >>> round(law.success, 6), round(law.mean, 6)
    (0.033333, 30.0)
    """

    success: float

    @classmethod
    def of_mean(cls, mean: float) -> TrialNumbers:
        """The distribution with this mean, above 1."""
        assert mean > 1, "one trial is no search"
        low, high = math.log(1e-12), math.log1p(-1e-12)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(math.exp(middle)).mean > mean else (low, middle)
        return cls(math.exp(high))

    @property
    def mean(self) -> float:
        """E[K]."""
        return (1 - self.success) / (self.success * -math.expm1(math.log(self.success)))

    def probabilities(self, most: int) -> np.ndarray:
        """(most,) P[K = 1], ..., P[K = most]."""
        g, number = self.success, np.arange(1, most + 1)
        return np.asarray(np.exp(number * math.log1p(-g)) / math.expm1(-math.log(g)))

    def draw(self, rng: np.random.Generator) -> int:
        """K, by inversion of a uniform number."""
        uniform, most = rng.random(), 1024
        while True:
            reached = np.cumsum(self.probabilities(most))
            if uniform < reached[-1] or most >= _MOST_TRIALS:
                return min(int(np.searchsorted(reached, uniform, side="right")) + 1, most)
            most *= 4

    def divergence(self, order: float, at_order: float, other_order: float, at_other: float) -> float:
        """A bound on the Renyi divergence of the released best trial, at `order`.

        Guarantee: for trials with a divergence of at most `at_order` at `order` and at most `at_other` at
        `other_order`, between neighbouring data sets, whatever the settings that they draw. K stays secret, and so
        do all other trials.
        Source: Papernot and Steinke 2022, Theorem 2.

        Args:
            order: above 1.
            other_order: at least 1.
        """
        return (
            at_order
            + 2 * (1 - 1 / other_order) * at_other
            - 2 * math.log(self.success) / other_order
            + math.log(self.mean) / (order - 1)
        )


@dataclass(frozen=True)
class SearchBudget:
    """The budget of each trial of a search, so that the whole search is (epsilon, delta)-DP.

    All bounds lie on a line: a divergence of at most `slope` times the order, as Gaussian noise of variance
    1 / (2 slope) has at a sensitivity of 1. The orders are chosen before any data are seen, as the conversion needs.

    Attributes:
        order: at which the total is converted to epsilon.
        other_order: the second one that a trial is bounded at.
        slope: of a trial, and of the final run.
    """

    order: int
    other_order: int
    slope: float

    @property
    def bounds(self) -> dict[int, float]:
        """Order -> the largest divergence that a trial, or the final run, may have."""
        return {each: self.slope * each for each in (self.order, self.other_order)}

    @property
    def score_deviation(self) -> float:
        """Standard deviation of Gaussian noise on a count that one record changes by at most 1, within the bounds."""
        return 1 / math.sqrt(2 * self.slope)


def divergence_allowed(order: int, epsilon: float, delta: float) -> float:
    """The divergence at one order, fixed in advance, that is (epsilon, delta)-DP; see `epsilon_at_order`."""
    return epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)


def budget_of_best(law: TrialNumbers, epsilon: float, delta: float) -> SearchBudget | None:
    """The largest bounds at which the best trial and one final run are together (epsilon, delta)-DP.

    Trials and the final run have the same bounds: what is best among noisier trials would not be best in the final run.

    Returns:
        None where the random number of trials alone costs more.
    """
    best: SearchBudget | None = None
    for order in ORDERS.tolist():
        allowed = divergence_allowed(order, epsilon, delta)
        for other in ORDERS.tolist():
            fixed = law.divergence(order, 0.0, other, 0.0)  # what no noise of trials takes away
            per_slope = 2 * order + 2 * (other - 1)
            slope = (allowed - fixed) / per_slope
            if slope > 0 and (best is None or slope > best.slope):
                best = SearchBudget(order, other, slope)
    return best
