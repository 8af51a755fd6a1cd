"""Laplace noise: pure differential privacy for vectors that move in L1 (Dwork, McSherry, Nissim and Smith 2006).

Each coordinate gets noise of scale b, of density exp(-|x| / b) / 2b and standard deviation sqrt(2) b. A record that
moves a vector by at most D in L1 costs epsilon_0 = D / b, whatever delta. What devices clip is a length in L2, and a
vector of M numbers is at most sqrt(M) times as long in L1: noise and ledger go by that bound.

The account. On a line, P = Lap(D) against Q = Lap(0) dominates the vectors: one that moves by x_1, ..., x_M goes there
in M moves of single coordinates; each has the trade-off function f_|x_i| of a move on the line, moves one after the
other have at least the composed one (Dong, Roth and Su 2022, as for groups), and those of translations of one
log-concave density compose to f_D. A record that is drawn with probability q = 1-(1-q_1)^m in m steps makes of it, in
both directions and at all orders, (1 - q) Q + q P against Q: the hockey-stick divergence of such a mixture is q times
that of P from Q at another order (Balle, Barthe and Gaboardi 2018), and moves of later draws are dominated by P. That
is no proof for a record that another one replaces, so sampling amplifies nothing there.

A sum of Laplace noises is not of this law: see `NoiseLaw.stable`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from h2fdp.privacy.accounting.mixtures import LawPair, ReleaseType
from h2fdp.privacy.vectors import NoiseLaw, check_holdable, noise_law
from h2fdp.streams import generator_of

if TYPE_CHECKING:
    from torch import Tensor

_ROOT_2 = math.sqrt(2)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PER_PANEL = 8.0  # nats by which an integrand may change over a panel of 24 nodes: exact to some 1e-15 then
_ROUNDING = 1e-14  # more than a logarithm of a moment near 0 loses: what is reported is never too small
_SHARPEST = 50.0  # an epsilon of one release beyond which its divergences are taken to be that epsilon


@dataclass(frozen=True, order=True)
class LaplacePair(LawPair):
    """(1 - q) Lap(0) + q Lap(D) against Lap(0).

    Points and D are in standard deviations of the noise, in which b is 1 / sqrt(2).

    Attributes:
        chance: q.

    >>> pair, points = LaplacePair(1.0), np.array([-9.0, 0.25, 9.0])
    >>> pair.loss(2.0, points)  # D is 1/2 deviation, and epsilon_0 half of sqrt(2)
    array([-0.70710678,  0.        ,  0.70710678])
    """

    chance: float

    def ends(self, noise_multiplier: float) -> tuple[float, float]:
        return 0.0, 1 / noise_multiplier

    def loss(self, noise_multiplier: float, points: np.ndarray) -> np.ndarray:
        whole: np.ndarray = _ROOT_2 * (np.abs(points) - np.abs(points - 1 / noise_multiplier))
        return self._mixed(whole)

    def _mixed(self, losses: np.ndarray) -> np.ndarray:
        """log(1 - q + q exp(loss))."""
        mixed: np.ndarray = losses if self.chance == 1 else np.log1p(self.chance * np.expm1(losses))
        return mixed

    def masses(self, noise_multiplier: float, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        still, moved = _masses(edges), _masses(edges - 1 / noise_multiplier)
        return (1 - self.chance) * still + self.chance * moved, still

    def divergence(self, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
        """The divergence, see `LawPair.divergence`; between the ends by Gauss and Legendre, and exact beyond them."""
        whole = _ROOT_2 / noise_multiplier
        if whole >= _SHARPEST:
            return np.full(orders.size, whole)
        largest = float(self._mixed(np.array(whole)))
        bounds = [max(self._log_moment(whole, a), self._log_moment(whole, 1 - a)) / (a - 1) for a in orders.tolist()]
        return np.asarray(np.clip(bounds, 0.0, largest))

    def _log_moment(self, whole: float, power: float) -> float:
        """log E_Q[(P/Q)^power], Q = Lap(0) on a line whose unit is b."""
        panels = math.ceil((2 * abs(power) + 1) * whole / _PER_PANEL)
        width = whole / panels
        points = (np.arange(panels)[:, None] + (_NODES + 1) / 2).ravel() * width
        inside = power * self._mixed(2 * points - whole) - points + np.tile(np.log(_WEIGHTS * width / 2), panels)
        ends = power * self._mixed(np.array([-whole, whole])) - np.array([0.0, whole])
        exponents = np.concatenate([inside, ends])
        top = float(exponents.max())
        return top + math.log(float(np.exp(exponents - top).sum()) / 2) + _ROUNDING

    def concentrated(self, noise_multiplier: float) -> float:
        """epsilon_0^2 / 2 (Bun and Steinke 2016, Prop. 1.4)."""
        return 1 / noise_multiplier**2


def _masses(edges: np.ndarray) -> np.ndarray:
    """(n + 1,) of Lap(0) below, between and above edges (n,), in standard deviations; precise in both tails."""
    below, above = (np.exp(-_ROOT_2 * np.maximum(side, 0.0)) / 2 for side in (-edges, edges))
    left = edges < 0
    lower, upper = np.where(left, below, 1 - above), np.where(left, 1 - below, above)
    inner = np.where(left[1:], np.diff(below), upper[:-1] - upper[1:])
    return np.concatenate([lower[:1], inner, upper[-1:]])


@dataclass(frozen=True)
class Laplace(NoiseLaw):
    """Noise of scale b = level / sqrt(2) on each coordinate, of NumPy's inversion in 64 bits: the usual floating-point
    caveat holds. A GPU gets it from the CPU."""

    name: ClassVar[str] = "laplace"
    note: ClassVar[str | None] = (
        "law laplace: sensitivities are in L1, the square root of the number of parameters times those of clipped "
        "vectors; nothing hides a device but its own noise, or that of the trusted node which adds it"
    )

    def add(self, vectors: Tensor, noise_stds: np.ndarray, keys: Sequence[int]) -> None:
        import torch

        for vector, level, key in zip(vectors, noise_stds.tolist(), keys, strict=True):
            check_holdable(level)
            noise = generator_of(key).laplace(0.0, level / _ROOT_2, vector.numel())
            vector.add_(torch.from_numpy(noise).to(vector))

    def norm_ratio(self, parameters: int) -> float:
        """sqrt(M)."""
        assert parameters >= 1, "a vector has numbers"
        return math.sqrt(parameters)

    def pair(self, release: ReleaseType) -> LawPair:
        if release.sampling == "fixed" or release.replaced or release.sampling_rate == 1:
            return LaplacePair(1.0)
        return LaplacePair(-math.expm1(release.steps * math.log1p(-release.sampling_rate)))


LAPLACE = noise_law(Laplace())
