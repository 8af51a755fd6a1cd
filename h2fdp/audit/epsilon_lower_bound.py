"""From scores of canaries to guesses, and from right guesses to a lower bound on epsilon.

Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Corollary 5.4: the largest scores are called in, the smallest out, the
others left alone.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta, binom

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
