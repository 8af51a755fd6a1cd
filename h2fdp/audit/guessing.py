"""Which canaries are guessed, and how: the largest scores are called in, the smallest out, the others left alone."""

from __future__ import annotations

import numpy as np

GUESSED_SHARE = 0.2  # fixed in advance: near the best for epsilons of 1 to 8 and some hundred canaries


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
