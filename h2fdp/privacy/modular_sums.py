"""Sums of integers modulo 2^b: how devices turn vectors into residues with noise in them, and what a sum of them says.

The distributed discrete Gaussian mechanism (Kairouz, Liu and Steinke 2021), with another rounding. A device

1. multiplies its update by its public weight, and rotates it: random signs, then a Hadamard matrix, so that no
   coordinate is much longer than the others;
2. divides by the spacing gamma and rounds at random, floor(x + u) with u uniform in [0, 1), which keeps the mean;
3. adds a discrete Gaussian share of the noise, and takes the residue modulo 2^b.

The edge server adds the residues up modulo 2^b, centres them, multiplies by gamma and rotates back. Everything after
the sum is a function of it, so wrapping around costs accuracy, never privacy.

The paper rounds until the vector is short, which is made for neighbours that differ in a whole vector. Ours differ in
one record: both are rounded with the same u, so that no coordinate of the difference grows by more than gamma, and the
vector moves by at most gamma sqrt(d) more. See docs/record-sensitivity.md; proof: experiments/proofs/.

Discrete Gaussian noise is exact, by rejection from a discrete Laplace law (Canonne, Kamath and Steinke 2020, Sec. 5):
P(k) is proportional to exp(-k^2 / (2 sigma^2)) over the integers. All arithmetic is on integers: whether a proposal
with probability exp(-a / b) is kept is decided by draws of whole numbers, so no rounding of a float moves the law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.streams import Streams

if TYPE_CHECKING:
    from torch import Tensor


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
    samples, have = np.empty(count, dtype=np.int64), 0
    while have < count:
        proposed = _discrete_laplace(std, 16 + int(2.2 * (count - have)), generator)
        distance = np.abs(proposed) - std
        kept = proposed[_bernoulli_exp(distance**2, 2 * std * std, generator)]
        took = min(len(kept), count - have)
        samples[have : have + took] = kept[:took]
        have += took
    return samples


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
    counts, alive = np.zeros(count, dtype=np.int64), np.arange(count)
    while alive.size:
        alive = alive[_bernoulli_exp_below_one(np.ones(alive.size, np.int64), 1, generator)]
        counts[alive] += 1
    return counts


def _bernoulli_exp(numerators: np.ndarray, denominator: int, generator: np.random.Generator) -> np.ndarray:
    """(n,) true with probabilities exp(-a / b), for whole a >= 0 and b >= 1: their Algorithm 1."""
    whole, rest = np.divmod(numerators, denominator)
    draws = _bernoulli_exp_below_one(rest, denominator, generator)
    often = np.flatnonzero(draws & (whole > 0))
    draws[often] = _geometric(often.size, generator) >= whole[often]  # that often in a row with probability exp(-whole)
    return draws


def _bernoulli_exp_below_one(numerators: np.ndarray, denominator: int, generator: np.random.Generator) -> np.ndarray:
    """The draw for a <= b: the first K at which something of probability a / (b K) does not happen is odd."""
    alive, round_ = np.flatnonzero(_below(numerators, denominator, generator)), 2
    draws = np.ones(len(numerators), dtype=bool)
    while alive.size:
        happens = _below(numerators[alive], denominator * round_, generator)
        draws[alive[~happens]] = round_ % 2 == 1
        alive, round_ = alive[happens], round_ + 1
    return draws


def _below(numerators: np.ndarray, denominator: int, generator: np.random.Generator) -> np.ndarray:
    """(n,) true with probabilities a / b."""
    return np.asarray(generator.integers(0, denominator, size=len(numerators)) < numerators)


WRAPPED = 1e-6  # the most that the probability of a wrong coordinate in a sum may be
SMOOTHING = 3  # grid cells of noise that make a discrete Gaussian of a continuous one
LEAST_STD = 4  # grid cells of a share's noise; then all sums are discrete Gaussians up to a factor exp(1e-30)


@dataclass(frozen=True)
class ModularCode:
    """The code by which vectors of one secure sum are residues.

    Attributes:
        bits: b.
        spacing: gamma, of the grid that the weighted updates are rounded to.
        parameters: M, coordinates of an update.
        node: whose sum it is, the node of the rotation's stream.

    >>> ModularCode(bits=16, spacing=0.5, parameters=7850, node="library").dimension
    8192
    """

    bits: int
    spacing: float
    parameters: int
    node: str

    @property
    def dimension(self) -> int:
        """d, the power of 2 that Hadamard matrices want."""
        return padded(self.parameters)

    @property
    def inflation(self) -> float:
        """gamma sqrt(d), by which rounding may move a weighted sum further."""
        return self.spacing * math.sqrt(self.dimension)

    def cells(self, noise_std: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """(s,) whole grid cells of the devices' noise, of levels (s,) on updates of weights (s,)."""
        return np.asarray(np.rint(noise_std * shares / self.spacing).astype(np.int64))

    def accounted(self, noise_std: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """(s,) levels of continuous noise that hides no less than these: each without its `SMOOTHING`."""
        cells = self.cells(noise_std, shares)
        return np.asarray(noise_std * np.sqrt(1 - (SMOOTHING / np.maximum(cells, LEAST_STD)) ** 2))

    def signs(self, streams: Streams, interval: int, slot: int) -> np.ndarray:
        """(d,) the public signs of a sum's rotation."""
        drawn = streams.public.open(self.node, "rotation", interval, slot).integers(0, 2, size=self.dimension)
        return np.asarray(2.0 * drawn - 1.0)

    def encode(self, update: Tensor, share: float, cells: int, signs: np.ndarray, drawn: np.random.Generator) -> Tensor:
        """(d,) int64, the residue of a device's update (M,).

        Args:
            share: its weight in the sum.
            cells: of its noise.
            drawn: a stream of its own, for rounding and noise.
        """
        import torch

        if cells < LEAST_STD:
            raise AssertionError("no device here uploads with less noise than its sum needs")
        vector = np.zeros(self.dimension)
        vector[: self.parameters] = update.detach().double().cpu().numpy()
        rotated = hadamard(vector * signs) * (share / self.spacing)
        rounded = np.floor(rotated + drawn.random(self.dimension)).astype(np.int64)
        noise = discrete_gaussian(cells, self.dimension, drawn)
        return torch.from_numpy((rounded + noise) & ((1 << self.bits) - 1))

    def decode(self, residues: Tensor, signs: np.ndarray) -> Tensor:
        """(M,) float32, the weighted sum of the updates whose residues (s, d) these are."""
        import torch

        half = 1 << (self.bits - 1)
        total = residues.sum(dim=0).cpu().numpy()
        centred = ((total + half) & ((1 << self.bits) - 1)) - half
        vector = hadamard(centred * self.spacing) * signs
        return torch.from_numpy(vector[: self.parameters].astype(np.float32))


@dataclass(frozen=True, eq=False)
class IntegerSum:
    """A sum of residues as it is planned: its code, and who has which share in it.

    Attributes:
        rows, shares: (s,) of the devices that begin.
    """

    code: ModularCode
    rows: np.ndarray
    shares: np.ndarray

    def shares_of(self, rows: np.ndarray) -> np.ndarray:
        """(s,) of some of them, whatever else arrives."""
        return np.asarray(self.shares[np.searchsorted(self.rows, rows)])

    def stated(self, levels: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(s,) levels of continuous noise that hide no less than these, of the devices `rows`."""
        return self.code.accounted(levels, self.shares_of(rows))

    def inflation(self, rows: np.ndarray) -> float:
        """The factor by which rounding may move further the average of the devices `rows`."""
        return self.code.inflation / float(self.shares_of(rows).sum())


def hadamard(vector: np.ndarray) -> np.ndarray:
    """(d,) the vector times the orthogonal Hadamard matrix, which is its own inverse; d is a power of 2.

    >>> hadamard(np.array([1.0, 0.0, 0.0, 0.0])).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    transformed, half = vector.astype(np.float64), 1
    while half < len(transformed):
        pairs = transformed.reshape(-1, 2, half)
        transformed = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return np.asarray(transformed / math.sqrt(len(transformed)))


def code_for(bits: int, parameters: int, node: str, longest: float, noises: np.ndarray) -> ModularCode | None:
    """The code whose sums wrap around in any coordinate with a probability of at most `WRAPPED`.

    A coordinate of the rotated sum is sub-Gaussian: with variance proxy U^2 / d by the random signs, sigma_j^2 for each
    discrete Gaussian (Canonne et al. 2020, Lemma 22) and gamma^2 / 4 for each rounding. So it stays below
    2^(b-1) gamma but for a probability of 2 exp(-4^(b-1) gamma^2 / (2 V)).

    Args:
        node: see `ModularCode`.
        longest: U, the longest weighted sum of updates.
        noises: (s,) rho_j sigma_j, standard deviations of the shares in the sum.

    Returns:
        None where the shares would be less than `LEAST_STD` cells of such a grid.
    """
    dimension = padded(parameters)
    tail = 2 * math.log(2 * dimension / WRAPPED)
    room = 4.0 ** (bits - 1) - tail * len(noises) / 4
    if room <= 0:
        return None
    # Rounded up to whole cells a share grows by one cell at most, so by a quarter of itself: 25/16 of its variance.
    variance = longest**2 / dimension + (1 + 1 / LEAST_STD) ** 2 * float((noises**2).sum())
    finest = float(noises.max()) / (LARGEST_STD / 2)  # a finer grid is of no use, and its noise would not fit
    spacing = max(math.sqrt(tail * variance / room), finest)
    return ModularCode(bits, spacing, parameters, node) if noises.min() >= LEAST_STD * spacing else None


def padded(parameters: int) -> int:
    """d, coordinates of a rotated vector: the power of 2 from M on.

    >>> padded(7850), padded(1)
    (8192, 1)
    """
    return 1 << max(parameters - 1, 0).bit_length()
