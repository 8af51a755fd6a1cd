"""Discrete Gaussian noise, exactly: rejection from a discrete Laplace law (Canonne, Kamath and Steinke 2020, Sec. 5).

P(k) is proportional to exp(-k^2 / (2 sigma^2)) over the integers. All arithmetic is on integers: whether a proposal
with probability exp(-a / b) is kept is decided by draws of whole numbers, so no rounding of a float moves the law.
Draws are vectorised; the same generator gives the same vector everywhere.
"""

from __future__ import annotations

import numpy as np

LARGEST_STD = 2**24  # squares of fifty times as much fit into 64 bits; what is longer comes once in 10^22 draws


def discrete_gaussian(std: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """(count,) independent draws, int64, of the discrete Gaussian with parameter sigma = `std`.

    A discrete Laplace draw Y of scale t = sigma is kept with probability exp(-(|Y| - sigma)^2 / (2 sigma^2)), which is
    their Algorithm 3 for t = sigma.

    Args:
        std: a whole number from 1 to `LARGEST_STD`.

    >>> discrete_gaussian(3, 5, np.random.Generator(np.random.Philox(key=1))).shape
    (5,)
    """
    if not 1 <= std <= LARGEST_STD:
        raise AssertionError("the noise of a modular sum is a moderate number of grid cells")
    found, have = np.empty(count, dtype=np.int64), 0
    while have < count:
        proposed = _discrete_laplace(std, 16 + int(2.2 * (count - have)), generator)
        distance = np.abs(proposed) - std
        kept = proposed[_bernoulli_exp(distance**2, 2 * std * std, generator)]
        took = min(len(kept), count - have)
        found[have : have + took] = kept[:took]
        have += took
    return found


def _discrete_laplace(scale: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """(at most count,) draws of P(k) proportional to exp(-|k| / scale): their Algorithm 2, less what it rejects."""
    within = generator.integers(0, scale, size=count)
    within = within[_bernoulli_exp_below_one(within, scale, generator)]
    magnitude = within + scale * _geometric(len(within), generator)
    negative = generator.integers(0, 2, size=len(within), dtype=np.uint8).astype(bool)
    kept = ~(negative & (magnitude == 0))  # 0 has one sign
    return np.asarray(np.where(negative, -magnitude, magnitude)[kept])


def _geometric(count: int, generator: np.random.Generator) -> np.ndarray:
    """(count,) how often in a row something of probability exp(-1) happens."""
    found, alive = np.zeros(count, dtype=np.int64), np.arange(count)
    while alive.size:
        alive = alive[_bernoulli_exp_below_one(np.ones(alive.size, np.int64), 1, generator)]
        found[alive] += 1
    return found


def _bernoulli_exp(numerators: np.ndarray, denominator: int, generator: np.random.Generator) -> np.ndarray:
    """(n,) true with probabilities exp(-a / b), for whole a >= 0 and b >= 1: their Algorithm 1."""
    whole, rest = np.divmod(numerators, denominator)
    found = _bernoulli_exp_below_one(rest, denominator, generator)
    often = np.flatnonzero(found & (whole > 0))
    found[often] = _geometric(often.size, generator) >= whole[often]  # that often in a row with probability exp(-whole)
    return found


def _bernoulli_exp_below_one(numerators: np.ndarray, denominator: int, generator: np.random.Generator) -> np.ndarray:
    """The same for a <= b: the first K at which something of probability a / (b K) does not happen is odd."""
    alive, round_ = np.flatnonzero(_below(numerators, denominator, generator)), 2
    found = np.ones(len(numerators), dtype=bool)
    while alive.size:
        happens = _below(numerators[alive], denominator * round_, generator)
        found[alive[~happens]] = round_ % 2 == 1
        alive, round_ = alive[happens], round_ + 1
    return found


def _below(numerators: np.ndarray, denominator: int, generator: np.random.Generator) -> np.ndarray:
    """(n,) true with probabilities a / b."""
    return np.asarray(generator.integers(0, denominator, size=len(numerators)) < numerators)
