"""A release as accountants see it: its type, and the mixture of shifts that one record makes of it.

Mixtures of Gaussians: what the accumulated update of a device reveals about one of its records.

Neighbouring relation: one record becomes a null record. Without the record a release is N(0, z^2), with it
sum_j p_j N(s_j, z^2), where z is the noise multiplier and shifts s_j are in units of the sensitivity. A vector release
is dominated by the scalar one whose shifts are the norms (Choquette-Choo, Ganesh, Steinke, Thakurta 2023, Cor. 4.7).

Where the record becomes another one, both are drawn at the same steps: the laws are a mixture of shifts to one side,
and its mirror image (experiments/proofs/, "Replaced records").

Noise of another law than the Gaussian states its own pair of laws (`LawPair`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

Sampling: TypeAlias = Literal["poisson", "fixed", "allocated"]
Bound: TypeAlias = Literal["batch", "record", "draws", "update", "none"]
"""How the sensitivity of a release is known.

`batch`: from its first draw on the record may turn every clipped batch gradient by 2G, 2 eta m G in all. `record`: its
own clipped gradient counts 1 / (q D) of a batch's, and the later batch gradients of the same release may turn. `draws`:
steps do not expand, so that each draw moves the model by eta G / (q D) and nothing else does. `update`: a whole upload
is clipped. `none`: it is not known.
"""


@dataclass(frozen=True, slots=True, order=True)
class ReleaseType:
    """One noisy release about one device, as one observer sees it, in units of its sensitivity.

    Neighbours: one record of the device becomes a null record, which contributes nothing and is not counted when it
    is drawn. The sensitivity is that of a record which is drawn at every step.

    Attributes:
        noise_multiplier: standard deviation of the noise / sensitivity; 0 is no noise, inf a release that does not
            depend on the record at all.
        steps: m, the local steps that the release accumulates.
        sampling_rate: q, the probability that one step's batch holds the record.
        sampling: `poisson` draws the record independently of everything else, so that sampling amplifies; so does
            `allocated`, all 1 / q batches of an epoch as one release, one of which the record chose by itself; `fixed`
            batches claim no amplification: a plain Gaussian of the full sensitivity.
        bound: the kind of bound on the sensitivity, which also says how much less a record does that is drawn later.
        own_gradient: of a draw under `record`: how far the record's own clipped gradient moves that step, in units of
            2 eta G; 1 elsewhere.
        replaced: neighbours differ in a record that becomes another one, not a null record; the sensitivity is then the
            distance of the two outputs.
        law: of the noise; the sensitivity is in the norm that goes with it.
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float
    sampling: Sampling = "poisson"
    bound: Bound = "batch"
    own_gradient: float = 1.0
    replaced: bool = False
    law: str = "gaussian"

    def __post_init__(self) -> None:
        assert self.noise_multiplier >= 0, self
        assert self.steps >= 1, self
        assert 0 <= self.sampling_rate <= 1, self
        assert self.sampling in get_args(Sampling), self
        assert self.bound in get_args(Bound), self
        assert 0 < self.own_gradient <= 1, self


Composition: TypeAlias = Mapping[ReleaseType, int]
"""How often each type of release was seen, by one observer, about one device."""


def revealing(composition: Composition) -> dict[ReleaseType, int]:
    """The releases that say anything at all about the record.

    >>> silent = ReleaseType(math.inf, steps=5, sampling_rate=0.1)
    >>> revealing({silent: 3, ReleaseType(2.0, 5, 0.1): 0, ReleaseType(3.0, 5, 0.0): 7})
    {}
    """
    assert all(count >= 0 for count in composition.values()), "a release cannot be taken back"
    return {
        release: count
        for release, count in composition.items()
        if count and not math.isinf(release.noise_multiplier) and release.sampling_rate > 0
    }


CHUNK = 1 << 20  # entries of a (points, components) table in memory at once


class Mixture(NamedTuple):
    """The law of the shift that the record causes.

    Attributes:
        shifts: in [0, 1], in units of the sensitivity, distinct.
        probabilities: positive, one for each shift, summing to 1.
    """

    shifts: tuple[float, ...]
    probabilities: tuple[float, ...]

    @property
    def mirrored(self) -> bool:
        """Whether the law without the record is the mirror image; here it is N(0, z^2)."""
        return False

    @property
    def distance(self) -> float:
        """The largest one between a centre with the record and a centre without it."""
        return max(self.shifts)


class MirroredMixture(NamedTuple):
    """A mixture for a record that another one replaces: the other law is the mirror image, of shifts -s_j."""

    shifts: tuple[float, ...]
    probabilities: tuple[float, ...]
    mirrored: bool = True

    @property
    def distance(self) -> float:
        """The largest distance between a centre with the record and a centre without it."""
        return 2 * max(self.shifts)


AnyMixture: TypeAlias = Mixture | MirroredMixture


class LawPair(ABC):
    """The laws of a release with the record, P, and without it, Q, under noise that is no Gaussian; a frozen value.

    On a line whose unit is the noise's standard deviation. The privacy loss does not decrease there, and does not move
    beyond `ends`. Both directions of the pair dominate those of the release.

    Attributes:
        shifts: as many as there are laws in the mixture: how fine a grid is worth its memory.
        gaussian: of Gaussian outputs, as a plain Gaussian of full shift has: it dominates, and the loss goes on beyond
            `ends`, with a chance that hardly any delta sees, where it is taken as infinite.
    """

    shifts: tuple[float, ...] = (1.0,)
    gaussian: ClassVar[bool] = False

    @abstractmethod
    def ends(self, noise_multiplier: float) -> tuple[float, float]:
        """First and last point between which the loss moves."""

    @abstractmethod
    def loss(self, noise_multiplier: float, points: np.ndarray) -> np.ndarray:
        """(n,) log of the density of P over that of Q."""

    @abstractmethod
    def masses(self, noise_multiplier: float, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n + 1,) under P and under Q: below, between and above the edges (n,), ascending."""

    @abstractmethod
    def divergence(self, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
        """(len(orders),) the larger of the Renyi divergences of P from Q and of Q from P, or a bound on it."""

    @abstractmethod
    def concentrated(self, noise_multiplier: float) -> float:
        """A rho such that no divergence of order a is above rho a."""


OTHER_LAWS: dict[str, Callable[[ReleaseType], LawPair]] = {}  # than the Gaussian, by name
PLAIN_GAUSSIAN = Mixture((1.0,), (1.0,))


def mixture_of(release: ReleaseType) -> AnyMixture:
    """The accounted mixture: it dominates whatever m steps with this sampling can reveal.

    With Poisson batches the record is first drawn at step l with probability (1-q)^(l-1) q. Nothing changes before;
    from then on its own gradient, and each of the m-l gradients at models that it has moved, may differ: by 2G where
    batches are clipped; its own by r 2G, r = 1 / (2 q D), where records are (R4 of the spec of record sensitivity).
    Where steps do not expand, a record that is drawn J times moves the release by J of m parts, J ~ Bin(m, q) (R6).
    Assumes that everything in the update is bounded, and that no private state of the device outlives a release.
    Fixed batches get a plain Gaussian. A record that another one replaces gets the full shift whenever it is drawn.

    >>> mixture_of(ReleaseType(1.0, steps=2, sampling_rate=0.5))
    Mixture(shifts=(1.0, 0.5, 0.0), probabilities=(0.5, 0.25, 0.25))
    >>> mixture_of(ReleaseType(1.0, steps=2, sampling_rate=0.5, bound="record", own_gradient=0.25))
    Mixture(shifts=(1.0, 0.2, 0.0), probabilities=(0.5, 0.25, 0.25))
    >>> mixture_of(ReleaseType(1.0, steps=1, sampling_rate=0.5, replaced=True))
    MirroredMixture(shifts=(0.5, 0.0), probabilities=(0.5, 0.5), mirrored=True)
    >>> mixture_of(ReleaseType(1.0, steps=2, sampling_rate=0.5, bound="draws")).shifts
    (0.0, 0.5, 1.0)
    """
    assert release.law == "gaussian", "another law states a pair of its own"
    if release.sampling != "poisson":
        return PLAIN_GAUSSIAN
    if release.replaced:
        return coarse_mixture_of(release)
    if release.bound == "draws":
        return _binomial(release.steps, release.sampling_rate)
    m, missed, own = release.steps, 1 - release.sampling_rate, release.own_gradient
    first_draw = [missed ** (step - 1) * release.sampling_rate for step in range(1, m + 1)]
    shifts = [(m - step - 1 + own) / (m - 1 + own) for step in range(m)]
    return _mixture([*shifts, 0.0], [*first_draw, missed**m])


def coarse_mixture_of(release: ReleaseType) -> AnyMixture:
    """The simpler bound: the full shift whenever the record is drawn at all, with probability 1-(1-q)^m."""
    assert release.law == "gaussian", "another law states a pair of its own"
    if release.sampling != "poisson":
        return PLAIN_GAUSSIAN
    never = (1 - release.sampling_rate) ** release.steps
    drawn = -math.expm1(release.steps * math.log1p(-release.sampling_rate)) if release.sampling_rate < 1 else 1.0
    if release.replaced and never > 0 and drawn > 0:
        return MirroredMixture((0.5, 0.0), (drawn, never))
    return _mixture([1.0, 0.0], [drawn, never])


def _binomial(m: int, q: float) -> Mixture:
    """A shift of j/m with the binomial(m, q) probability of j."""
    if q == 1:
        return PLAIN_GAUSSIAN
    log_coefficients = [math.lgamma(m + 1) - math.lgamma(j + 1) - math.lgamma(m - j + 1) for j in range(m + 1)]
    chances = [math.exp(log_c + j * math.log(q) + (m - j) * math.log1p(-q)) for j, log_c in enumerate(log_coefficients)]
    total = math.fsum(chances)
    return _mixture([j / m for j in range(m + 1)], [chance / total for chance in chances])


def _mixture(shifts: list[float], probabilities: list[float]) -> Mixture:
    kept = [(shift, chance) for shift, chance in zip(shifts, probabilities, strict=True) if chance > 0]
    return Mixture(tuple(shift for shift, _ in kept), tuple(chance for _, chance in kept))


def privacy_loss(mixture: AnyMixture, noise_multiplier: float, points: np.ndarray) -> np.ndarray:
    """Log of the density with the record over that without it, N(0, z^2) or the mirror image, at points z u.

    It increases in u. Losses near 0 keep their relative precision (1e-15 in units of their largest summand).

    Args:
        points: (n,) u, in units of the noise's standard deviation.
    """
    losses = over_noise(mixture, noise_multiplier, points)
    return losses - over_noise(mixture, noise_multiplier, -points) if mixture.mirrored else losses


def over_noise(mixture: AnyMixture, noise_multiplier: float, points: np.ndarray) -> np.ndarray:
    """Log of the density with the record over that of N(0, z^2), at points z u (n,)."""
    height = np.asarray(mixture.shifts) / noise_multiplier
    chance = np.asarray(mixture.probabilities)
    rows = max(1, CHUNK // height.size)
    return np.concatenate(
        [_losses(height, chance, points[first : first + rows]) for first in range(0, points.size, rows)] or [points]
    )


def _losses(height: np.ndarray, chance: np.ndarray, points: np.ndarray) -> np.ndarray:
    exponents = np.multiply.outer(points, height) - height**2 / 2
    top = reduce(np.maximum, exponents.T)  # the largest of each row; columns are few, and rows many
    change = np.expm1(np.minimum(exponents, 30.0)) @ chance
    near = (top <= 30) & (change > -0.5)
    losses = np.log1p(np.where(near, change, 0.0))
    far = ~near
    losses[far] = top[far] + np.log(np.exp(exponents[far] - top[far, None]) @ chance)
    return losses
