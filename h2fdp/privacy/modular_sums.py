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
vector moves by at most gamma sqrt(d) more. See docs/record-sensitivity.md, which has the account too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.privacy.discrete_gaussian import LARGEST_STD, discrete_gaussian
from h2fdp.streams import Streams

if TYPE_CHECKING:
    from torch import Tensor

WRAPPED = 1e-6  # the most that the probability of a wrong coordinate in a sum may be
SMOOTHING = 3  # grid cells of noise that make a discrete Gaussian of a continuous one
LEAST_STD = 4  # grid cells of a share's noise; then all sums are discrete Gaussians up to a factor exp(1e-30)


@dataclass(frozen=True)
class ModularCode:
    """How the vectors of one secure sum are residues.

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


def hadamard(vector: np.ndarray) -> np.ndarray:
    """(d,) the vector times the orthogonal Hadamard matrix, which is its own inverse; d is a power of 2.

    >>> hadamard(np.array([1.0, 0.0, 0.0, 0.0])).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    found, half = vector.astype(np.float64), 1
    while half < len(found):
        pairs = found.reshape(-1, 2, half)
        found = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return np.asarray(found / math.sqrt(len(found)))


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
