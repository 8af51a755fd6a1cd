"""The distance by which one record moves the sum of a device's steps: three bounds, for three kinds of gradients.

Neighbours: one record becomes a null record, which contributes nothing. D_i, q_i and the expected batch b_i = q_i D_i
are public. Proofs: experiments/proofs/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from h2fdp.privacy.accounting import Bound


def accumulated_gradient_sensitivity(step_size: float, steps: float, clip_norm: float, weight: float = 1.0) -> float:
    """L2 sensitivity of `weight` times an update of `steps` clipped local steps: 2 eta m G weight.

    With `weight` 1 it is a device's own upload (18)-(19). In an edge server's average, `weight` is the device's
    share rho; for equal shares 1/s_c it is (16)-(17), and the whole average's sensitivity is that of the largest
    share - a size-weighted average does not get the sensitivity of a uniform one.

    Args:
        step_size: eta_k of the interval.
        steps: tau_k (``sensitivity: paper``) or the local steps really accumulated in this upload (``tight``).
        clip_norm: G, the bound on the norm of each (mini-batch) gradient.

    >>> accumulated_gradient_sensitivity(step_size=0.1, steps=20, clip_norm=1.0, weight=1 / 5)
    0.8
    """
    return 2.0 * step_size * steps * clip_norm * weight


def expected_batches(sampling_rates: np.ndarray, records: np.ndarray) -> np.ndarray:
    """(s,) b_i = q_i D_i, to ten digits, so that devices with equal batches have equal accounts.

    >>> expected_batches(np.array([32 / 1203, 32 / 1200]), np.array([1203, 1200]))
    array([32., 32.])
    """
    product = sampling_rates * records
    scale = 10.0 ** (9 - np.floor(np.log10(product)))
    return np.asarray(np.rint(product * scale) / scale)


class GradientBound(Protocol):
    """A bound on the way of a device between two releases; the sensitivity of an upload is `unit` times `relative`.

    Attributes:
        name: as the ledger says it.
    """

    name: ClassVar[Bound]

    def unit(self, step_size: float, steps: int) -> float:
        """The bound in the unit of the model, for uploads of m steps of size eta."""
        ...

    def relative(self, steps: int, batches: np.ndarray) -> np.ndarray:
        """(s,) in this unit, of devices whose expected batches are b_i (s,)."""
        ...

    def own_gradient(self, batches: np.ndarray) -> np.ndarray | None:
        """(s,) how far a record's own gradient moves its step, in units of 2 eta G; None for 1."""
        return None

    def sensitivity(self, step_size: float, steps: int, batches: np.ndarray) -> np.ndarray:
        """(s,) L2 sensitivity of uploads of m steps, in the unit of the model."""
        return self.unit(step_size, steps) * self.relative(steps, batches)


def moved(bound: GradientBound, step_size: float, steps: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """(s,) sensitivities of uploads of steps (s,), each number of steps by itself."""
    sensitivities = np.zeros(len(steps))
    for done in np.unique(steps).tolist():
        same = steps == done
        sensitivities[same] = bound.sensitivity(step_size, done, batches[same])
    return sensitivities


@dataclass(frozen=True)
class ClippedBatches(GradientBound):
    """Batch gradients are no longer than G, so each may turn by 2G: 2 eta m G (H2FDP, Lemma 3.2).

    Attributes:
        clip_norm: G.
        gain: maps m steps to the number of gradients that their sum holds: more than m with momentum.

    >>> ClippedBatches(3.0).sensitivity(0.1, 5, np.array([8.0, 2.0]))
    array([3., 3.])
    """

    clip_norm: float
    gain: Callable[[int], float] = float
    name: ClassVar[Bound] = "batch"

    def unit(self, step_size: float, steps: int) -> float:
        return accumulated_gradient_sensitivity(step_size, self.gain(steps), self.clip_norm)

    def relative(self, steps: int, batches: np.ndarray) -> np.ndarray:
        return np.ones(len(batches))


@dataclass(frozen=True)
class ClippedRecords(GradientBound):
    """Records' gradients are clipped to G, summed, divided by b_i, and the mean is clipped to G once more.

    The draw itself moves its step by G / b_i at most, each later gradient of the same upload by 2G (R2, R4). The second
    clipping is what bounds those: a Poisson batch may be larger than b_i, and its mean longer than G.

    Attributes:
        clip_norm, gain: see `ClippedBatches`.

    >>> bound = ClippedRecords(3.0)
    >>> bound.sensitivity(0.1, 1, np.array([6.0])).round(9), bound.sensitivity(0.1, 2, np.array([6.0])).round(9)
    (array([0.05]), array([0.65]))
    """

    clip_norm: float
    gain: Callable[[int], float] = float
    name: ClassVar[Bound] = "record"

    def unit(self, step_size: float, steps: int) -> float:
        return accumulated_gradient_sensitivity(step_size, 1.0, self.clip_norm)

    def relative(self, steps: int, batches: np.ndarray) -> np.ndarray:
        own = self.own_gradient(batches)
        return np.asarray(own * self.gain(steps) + (1 - own) * self.gain(max(steps - 1, 0)))

    def own_gradient(self, batches: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(1.0, 0.5 / batches))


@dataclass(frozen=True)
class StepsDoNotExpand(GradientBound):
    """Convex losses with gradients no longer than G: m eta G / b_i for a record that is drawn in every step (R6).

    Attributes:
        gradient: G.

    >>> StepsDoNotExpand(2.0).sensitivity(0.1, 5, np.array([8.0]))
    array([0.125])
    """

    gradient: float
    name: ClassVar[Bound] = "draws"

    def unit(self, step_size: float, steps: int) -> float:
        return step_size * self.gradient

    def relative(self, steps: int, batches: np.ndarray) -> np.ndarray:
        return np.asarray(steps / batches)


@dataclass(frozen=True)
class LinearScores:
    """Cross-entropy of scores that are linear in inputs no longer than R: softmax regression.

    A record's gradient in the weights is (p - e_y) x^T. Its norm is |p - e_y| |x| <= sqrt(2) R, and its derivative in
    the scores, diag(p) - p p^T, has eigenvalues of 1/2 at most. A bias is a feature that is always 1: R^2 + 1 for R^2.

    Attributes:
        input_norm: R.
        biased: whether there is a bias.

    >>> LinearScores(1.0, biased=False).smoothness, LinearScores(1.0, biased=True).gradient
    (0.5, 2.0)
    """

    input_norm: float
    biased: bool

    @property
    def gradient(self) -> float:
        """G: no record's gradient is longer."""
        return math.sqrt(2 * self._squared)

    @property
    def smoothness(self) -> float:
        """beta of a record's loss."""
        return self._squared / 2

    @property
    def _squared(self) -> float:
        return self.input_norm**2 + self.biased

    def largest_step(self, largest_batch: np.ndarray, mu: float) -> float:
        """The largest eta at which no step expands, whatever batch is drawn: eta (beta |batch| / b_i + mu) <= 2 (R5).

        Args:
            largest_batch: (I,) the records of the largest batch over the expected ones: 1 / q_i for Poisson batches,
                1 for fixed ones.
            mu: of the proximal pull, which is curvature too.
        """
        return float(2 / (self.smoothness * largest_batch.max() + mu))
