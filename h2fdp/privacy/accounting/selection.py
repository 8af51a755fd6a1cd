"""The privacy of a search: the best of a random number of private trials is released, and nothing else.

A trial Q draws its settings from a fixed distribution, trains privately, and hands back what it releases with a score.
A search runs Q independently K times and releases the trial of the highest score. If K is fixed, the release of the
best costs nearly as much as that of all. If K is random and unknown it does not (Liu and Talwar 2019; Papernot and
Steinke 2022, "Hyperparameter tuning with Renyi differential privacy").

K has the truncated negative binomial distribution of shape s > -1 and success probability g (their Definition 1):

    P[K = k] = (1 - g)^k / (g^-s - 1) prod_{j < k} (j + s) / (j + 1),    k = 1, 2, ...

s = 1 is the geometric distribution, the limit s = 0 the logarithmic one; a larger shape is more concentrated and costs
more.
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
    """How many trials a search has: truncated negative binomial.

    Attributes:
        shape: s; the paper's eta.
        success: g, in (0, 1); the paper's gamma.

    >>> law = TrialNumbers.of_mean(30, shape=1)
    >>> round(law.success, 6), round(law.mean, 6)
    (0.033333, 30.0)
    """

    shape: float
    success: float

    @classmethod
    def of_mean(cls, mean: float, shape: float = 1.0) -> TrialNumbers:
        """The distribution of this shape with this mean, above 1."""
        assert mean > 1, "one trial is no search"
        low, high = math.log(1e-12), math.log1p(-1e-12)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(shape, math.exp(middle)).mean > mean else (low, middle)
        return cls(shape, math.exp(high))

    @property
    def mean(self) -> float:
        """E[K]."""
        g, s = self.success, self.shape
        if s == 0:
            return (1 / g - 1) / -math.log(g)
        return s * (1 - g) / (g * -math.expm1(s * math.log(g)))

    def probabilities(self, most: int) -> np.ndarray:
        """(most,) P[K = 1], ..., P[K = most]."""
        g, s = self.success, self.shape
        number = np.arange(1, most + 1)
        if s == 0:
            return np.asarray((1 - g) ** number / (number * -math.log(g)))
        # prod_{j < k} (j + s)/(j + 1) = s prod_{0 < j < k} (j + s)/j / k, which has no 0 at its start.
        rising = np.concatenate([[0.0], np.cumsum(np.log1p(s / np.arange(1, most)))]) - np.log(number)
        return np.asarray(s / math.expm1(-s * math.log(g)) * np.exp(number * math.log1p(-g) + rising))

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
            + (1 + self.shape) * (1 - 1 / other_order) * at_other
            + (1 + self.shape) * -math.log(self.success) / other_order
            + math.log(self.mean) / (order - 1)
        )


@dataclass(frozen=True)
class SearchBudget:
    """What each trial of a search may reveal, so that all of it together is (epsilon, delta)-DP.

    All bounds lie on a line: a divergence of at most `slope` times the order, as Gaussian noise of variance
    1 / (2 slope) has at a sensitivity of 1. The orders are chosen before any data are seen, as the conversion needs.

    Attributes:
        order: at which the total is converted to epsilon.
        other_order: the second one that a trial is bounded at; the first again where the theorem is not used.
        slope: of a trial, and of the final run where there is one.
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


def budget_of_best(law: TrialNumbers, epsilon: float, delta: float, *, final_runs: int = 1) -> SearchBudget | None:
    """The largest bounds at which the best trial, and final runs beside it, are together (epsilon, delta)-DP.

    Trials and final runs have the same bounds: what is best among noisier trials would not be best in the final run.

    Returns:
        None where the random number of trials alone costs more.
    """
    best: SearchBudget | None = None
    for order in ORDERS.tolist():
        allowed = divergence_allowed(order, epsilon, delta)
        for other in ORDERS.tolist():
            fixed = law.divergence(order, 0.0, other, 0.0)  # what no noise of trials takes away
            per_slope = order * (1 + final_runs) + (1 + law.shape) * (other - 1)
            slope = (allowed - fixed) / per_slope
            if slope > 0 and (best is None or slope > best.slope):
                best = SearchBudget(order, other, slope)
    return best


def budget_of_all(trials: int, epsilon: float, delta: float, *, final_runs: int = 1) -> SearchBudget | None:
    """The same where every trial is seen, each chosen in the light of those before: divergences add up.

    Guarantee: at one order fixed in advance the sum bounds adaptively chosen trials too (Mironov 2017, Prop. 1).
    """
    best: SearchBudget | None = None
    for order in ORDERS.tolist():
        slope = divergence_allowed(order, epsilon, delta) / (order * (trials + final_runs))
        if slope > 0 and (best is None or slope > best.slope):
            best = SearchBudget(order, order, slope)
    return best
