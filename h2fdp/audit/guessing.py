"""From what is seen of canaries to scores and guesses, and from right guesses to a lower bound on epsilon.

Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Corollary 5.4: the largest scores are called in, the smallest out, the
others left alone. A score is the likelihood ratio of "in" against "out".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta, binom

from h2fdp.audit.canaries import CanaryKind


def log_likelihood_ratio(values: np.ndarray, shift: float, noise_std: float, steps: int, rate: float) -> np.ndarray:
    """log p(value | in) / p(value | out), for each value.

    A canary that is in was drawn Bin(steps, rate) times and moved its coordinate by `shift` each time; one that is out
    left it at 0; N(0, noise_std^2) came on top. For a weak canary this is the linear statistic
    value * shift * steps * rate / noise_std^2 up to a constant; for a strong one it sees single draws. Ratios of
    independent observations add up. The score is only a way to guess: a wrong model costs power, never validity.

    Args:
        values, shift, noise_std: in one unit.

    >>> log_likelihood_ratio(np.array([0.0, 1.0]), shift=1.0, noise_std=1.0, steps=1, rate=1.0)
    array([-0.5,  0.5])
    """
    moved = np.arange(steps + 1) * (shift / noise_std)
    exponents = _log_drawn(steps, rate) + np.multiply.outer(values / noise_std, moved) - moved**2 / 2
    return np.asarray(np.logaddexp.reduce(exponents, axis=-1))


@lru_cache(maxsize=4096)  # a call of scipy takes longer than the rest of a score, and devices are mostly alike
def _log_drawn(steps: int, rate: float) -> np.ndarray:
    """(steps + 1,) log probability of so many draws of a canary."""
    return np.asarray(binom.logpmf(np.arange(steps + 1), steps, rate))


@dataclass(frozen=True)
class TurningEffect:
    """A canary from whose first draw on the data of its device pull its way.

    Attributes:
        own: its gradient when it is drawn: G.
        others: that of the data on its coordinate, one way or the other, on average: batches may be empty.
    """

    own: float
    others: float

    def score(
        self, values: np.ndarray, unit: float, noise_std: float, segments: tuple[int, ...], rate: float
    ) -> np.ndarray:
        """log p(value | in) / p(value | out), for each value: the mixture by the first draw in each upload, as if batches were like their average."""
        centres, log_chances = _turned_by(segments, rate, self.own, self.others)
        out = -self.others * sum(segments)
        shifted, scale = values / noise_std, unit / noise_std
        exponents = log_chances - (np.subtract.outer(shifted, centres * scale)) ** 2 / 2
        return np.asarray(np.logaddexp.reduce(exponents, axis=-1) + (shifted - out * scale) ** 2 / 2)


@lru_cache(maxsize=4096)
def _turned_by(segments: tuple[int, ...], rate: float, own: float, others: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) where the coordinate may be after these uploads, and the log probability of each place."""
    sums = {0.0: 1.0}
    for steps in segments:
        places = [(-others * steps, (1 - rate) ** steps)]
        for before in range(steps):
            places.append((-others * before + own + others * (steps - before - 1), (1 - rate) ** before * rate))
        found: dict[float, float] = {}
        for total, chance in sums.items():
            for place, own_chance in places:
                at = round(total + place, 9)
                found[at] = found.get(at, 0.0) + chance * own_chance
        sums = {place: chance for place, chance in found.items() if chance > 0}
    return np.array(list(sums)), np.log(np.array(list(sums.values())))


@dataclass(frozen=True)
class CanaryEffect:
    """What one local step does to a canary's coordinate of the clipped gradient, on average.

    Attributes:
        baseline: when the canary is not drawn.
        shift: how much more when it is.
    """

    baseline: float
    shift: float

    def score(
        self, values: np.ndarray, unit: float, noise_std: float, segments: tuple[int, ...], rate: float
    ) -> np.ndarray:
        """log p(value | in) / p(value | out), for each value."""
        steps = sum(segments)
        moved = values - unit * self.baseline * steps
        return log_likelihood_ratio(moved, unit * self.shift, noise_std, steps, rate)

    @classmethod
    def expected(
        cls, kind: CanaryKind, clip_scope: str, clip_norm: float, records: int, rate: float, canaries: int
    ) -> CanaryEffect | TurningEffect:
        """The effect of one of a device's canaries; under scope `batch` the account allows a shift of 2 G.

        Under `record` each draw moves the step by G / (q_i D_i), whatever else is drawn. Under `batch` one of B + 1
        drawn records, B ~ Bin(D_i, q_i), has the share h = E[1 / (B + 1)] = (1 - (1-q)^(D+1)) / ((D+1) q).
        `dirac`: G h. `dominating`: from -G / sqrt(n) - unless nothing was drawn, or another of the n canaries - to G.

        Args:
            records, rate, canaries: D_i, q_i and n_i of the device.

        >>> CanaryEffect.expected("dominating", "batch", 2.0, records=1, rate=1.0, canaries=1)
        CanaryEffect(baseline=-2.0, shift=4.0)
        >>> CanaryEffect.expected("dirac", "batch", 2.0, records=1, rate=1.0, canaries=1)
        CanaryEffect(baseline=0.0, shift=1.0)
        """
        if clip_scope == "record":
            return cls(0.0, clip_norm / (rate * records))
        share = (1 - (1 - rate) ** (records + 1)) / ((records + 1) * rate)
        if kind == "dirac":
            return cls(0.0, clip_norm * share)
        against = clip_norm / math.sqrt(canaries)
        baseline = -against * (1 - (1 - rate) ** records) * (1 - rate / 2) ** (canaries - 1)
        return TurningEffect(clip_norm, -baseline) if kind == "turning" else cls(baseline, clip_norm - baseline)


GUESSED_SHARE = 0.2  # fixed in advance: near the best for epsilons of 1 to 8 and some hundred canaries
_HALVINGS = 60  # of an interval of at most about 40: to the last bit of a double


def guesses_planned(canaries: int) -> int:
    """r for N canaries, fixed before anything is seen: a fifth of them, at least one.

    >>> guesses_planned(1000), guesses_planned(7), guesses_planned(1)
    (200, 1, 1)
    """
    return max(1, round(GUESSED_SHARE * canaries))


def guess(scores: np.ndarray, guesses: int) -> np.ndarray:
    """(N,) 1 for "in", -1 for "out", 0 for no guess: the r/2 largest and the r/2 smallest scores.

    An odd guess goes to the largest; of equal scores the first counts as the smaller, whether or not it is in.

    >>> guess(np.array([0.1, -2.0, 5.0, 0.0]), guesses=2)
    array([ 0, -1,  1,  0])
    """
    assert 1 <= guesses <= len(scores)
    order = np.argsort(scores, kind="stable")
    called = np.zeros(len(scores), dtype=np.int64)
    called[order[: guesses // 2]] = -1
    called[order[len(scores) - (guesses - guesses // 2) :]] = 1
    return called


def epsilon_lower_bound(right: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """The smallest epsilon that `right` of `guesses` right guesses leave possible; 0 says nothing.

    eps_LB = sup{e >= 0 : chance_of_as_many(e) < 1 - confidence}. For a mechanism that is (epsilon, delta)-DP for each
    of the canaries' records, P[eps_LB > epsilon] <= 1 - confidence.

    Assumptions: each canary was in or out by its own fair coin; which `guesses` of them would be guessed (not how) may
    depend on the observation, their number may not.

    Args:
        canaries: N, guessed or not.

    >>> round(epsilon_lower_bound(right=100, guesses=100, canaries=100, delta=0.0), 3)  # log(p / (1 - p)), p^100 = 0.05
    3.493
    >>> epsilon_lower_bound(right=50, guesses=100, canaries=100, delta=0.0)
    0.0
    """
    assert 0 <= right <= guesses <= canaries, "right guesses are guesses, guesses are about canaries"
    assert 0 <= delta < 1, "delta is a probability"
    assert 0 < confidence < 1, "confidence is a probability"
    doubt = 1 - confidence
    if right == 0 or chance_of_as_many(0.0, right, guesses, canaries, delta) >= doubt:
        return 0.0
    # At delta = 0 the bound is Clopper's and Pearson's; delta only lowers it. Below it, the chance grows with epsilon.
    low, high = 0.0, float(logit(beta.ppf(doubt, right, guesses - right + 1)))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if chance_of_as_many(middle, right, guesses, canaries, delta) < doubt:
            low = middle
        else:
            high = middle
    return low


def chance_of_as_many(epsilon: float, right: int, guesses: int, canaries: int, delta: float) -> float:
    """Under (epsilon, delta)-DP, at least `right` of `guesses` guesses are right with at most this probability.

    P[B >= v] + 2 N delta max_{1<=i<=v} P[v-i <= B < v]/i with B ~ Bin(r, 1/(1+exp(-epsilon))); may exceed 1.
    """
    share = expit(epsilon)
    by_luck = float(binom.sf(right - 1, guesses, share))
    if delta == 0 or right == 0:
        return by_luck
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, share))
    return by_luck + 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1)))
