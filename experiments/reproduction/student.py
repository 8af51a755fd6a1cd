"""Means over seeds as they may have been, for intervals that keep their confidence with five seeds, or two.

Means are drawn from their t-distribution about those found: the residuals of the runs in standard normal
proportions, over a chi with one degree of freedom less than there are runs. A difference, or any other weighted sum, of
such means then has the interval of Student (1908); the ratio of two has that of Fieller (1954).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from h2fdp.streams import Streams

DRAWS = 200_000  # the end of an interval over five seeds is then known to 0.5 % of its distance from the mean

Floats = NDArray[np.float64]


def drawn_means(values: Floats) -> Floats:
    """Means drawn about those of runs, the same draws for all columns and whatever has equally many runs.

    Args:
        values: shape (runs, columns), at least two runs, everything known.

    Returns:
        shape (DRAWS, columns); with each draw there is the one opposite to it.
    """
    middle = values[0]  # where runs agree, rounding would tell them apart
    moved = values - middle
    means = moved.mean(axis=0)
    return np.asarray(_proportions(len(values)) @ (moved - means) + means + middle)


@cache
def _proportions(runs: int) -> Floats:
    stream = Streams(0).open("reproduction", "student", runs)
    normal = stream.standard_normal((DRAWS // 2, runs))
    chi = np.sqrt(stream.chisquare(runs - 1, DRAWS // 2))
    half = normal / (np.sqrt(runs) * chi)[:, None]
    return np.concatenate([half, -half])
