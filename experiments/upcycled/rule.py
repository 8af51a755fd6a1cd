"""When a comparison of Upcycled-FL's tables has seeds enough.

After 8, 16, 32 and 64 seeds (`ROUNDS`) a comparison ends if the interval of its gain excludes 0 or reaches at most half
a point (`CLOSE`) from its middle. The intervals are Student's at a level of 1 - 0.05/4, so that those of all looks
together, and therefore the one at which a comparison ends, cover the gain with a probability of at least 95 %
(Bonferroni), if gains are normal. This was stated before any run, but for a look after 4 seeds and the level of 1 -
0.05/5 that went with it: both were changed, with up to 64 seeds known, once every verdict of this project had to have
five. What had ended after 4 got four seeds more.

Stated before any run under seeds above 64: a comparison that all rounds leave open is made afresh. Its deviation over
the first 64 seeds says how many new ones it takes to reach half a point (`seeds_afresh`), and they alone judge it, at
the same level and with one look. (Stein 1945 has two stages like these; he keeps the first in the mean, which the looks
forbid here.) Its first seeds chose the number of the others and nothing else, so whatever they were, this interval
covers the gain with a probability of 98.75 %; the looks and this stage together leave one of at least 93.75 %. What the
new seeds leave open can be made afresh once more, in the same way: each such stage takes another 1.25 % off. (That was
stated with the first new seeds known and before any further was run.) No correction is made for the number of
comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ROUNDS = (8, 16, 32, 64)  # seeds 1 to this many
LEVEL = 1 - 0.05 / len(ROUNDS)
CLOSE = 0.5  # points
_SPARE = 1.2  # new seeds have a deviation of their own: a tenth more of it than the first still fits
_MOST = 100_000  # seeds


def half_width(gains: Sequence[float], level: float = LEVEL) -> float:
    """Half the length of Student's interval of a mean.

    >>> round(half_width([1.0, 2.0, 3.0], 0.95), 3)
    2.484
    """
    return _student(len(gains), level) * float(np.std(gains, ddof=1)) / math.sqrt(len(gains))


def ended(gains: Sequence[float]) -> bool:
    """Whether a comparison needs no more seeds: it has the first look's, and its interval excludes 0 or is short.

    >>> [ended(2 * gains) for gains in ([1.0, 1.1, 0.9, 1.0], [-4.0, 4.0, 1.0, 0.0], [-0.01, 0.01, 0.0, 0.0])]
    [True, False, True]
    >>> ended([1.0, 1.1, 0.9, 1.0])
    False
    """
    half = half_width(gains)
    return len(gains) >= ROUNDS[0] and (half <= CLOSE or abs(float(np.mean(gains))) > half)


def seeds_needed(deviation: float, level: float = LEVEL) -> int | None:
    """How many seeds an interval of half a point on either side takes; None where it is more than 100,000.

    >>> seeds_needed(1.0), seeds_needed(1e6)
    (29, None)
    """
    least, most = 2, _MOST
    if _student(most, level) * deviation / math.sqrt(most) > CLOSE:
        return None
    while least < most:
        count = (least + most) // 2
        if _student(count, level) * deviation / math.sqrt(count) <= CLOSE:
            most = count
        else:
            least = count + 1
    return most


def seeds_afresh(gains: Sequence[float], last: int = ROUNDS[-1]) -> range:
    """The seeds that judge a comparison which was left open: new ones, a fifth more than its deviation asks for.

    Args:
        last: the last of the seeds that left it open.

    >>> seeds_afresh([-4.0, 4.0, 1.0, 0.0] * 16)
    range(65, 320)
    """
    needed = seeds_needed(float(np.std(gains, ddof=1)))
    count = _MOST if needed is None else math.ceil(_SPARE * needed)
    return range(last + 1, last + 1 + count)


def verdict(gains: Sequence[float], level: float = LEVEL) -> str:
    """What became of the claim that upcycling is better, and what is needed where it is open.

    >>> verdict([1.0, 1.1, 0.9, 1.0]), verdict([-1.0, -1.1, -0.9, -1.0]), verdict([0.1, -0.1, 0.0, 0.0])
    ('better', 'worse', 'known to half a point')
    >>> verdict([-4.0, 4.0, 1.0, 0.0])
    'open: about 280 seeds'
    """
    half, mean = half_width(gains, level), float(np.mean(gains))
    if abs(mean) > half:
        return "better" if mean > 0 else "worse"
    if half <= CLOSE:
        return "known to half a point"
    needed = seeds_needed(float(np.std(gains, ddof=1)), level)
    return f"open: over {_MOST} seeds" if needed is None else f"open: about {_rounded(needed)} seeds"


def _student(count: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + level) / 2))


def _rounded(count: int) -> int:
    """Two digits: that many seeds are an estimate from few."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return math.ceil(count / unit) * unit
