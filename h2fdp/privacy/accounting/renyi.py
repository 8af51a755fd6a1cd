"""Renyi divergence of a release: one-dimensional quadrature, both directions of the neighbouring relation.

With P the mixture, Q = N(0, z^2) and r = P/Q, order a needs E_Q[r^a] (record removed) and E_Q[r^(1-a)] (added). Both
integrands are analytic, so the trapezoid rule converges exponentially. For integer orders the first is a positive sum
of unit Gaussians, where a step of 1/2 leaves a relative error of 1e-34. The second has no singularity within pi z of
the real axis (in standard deviations); with a step of min(1/8, z/4) its error stayed below 1e-8 on a grid of z from
0.05 to 500, q from 1e-6 to 0.9999 and m up to 20.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from h2fdp.privacy.accounting.mixtures import (
    OTHER_LAWS,
    AnyMixture,
    LawPair,
    ReleaseType,
    coarse_mixture_of,
    mixture_of,
    over_noise,
    privacy_loss,
)


def epsilon_from_rdp(rdp: np.ndarray, delta: float, places: tuple[int, ...] | None = None) -> np.ndarray:
    """The smallest epsilon over all orders, or over some of them.

    Guarantee: (epsilon, delta)-DP for whatever has these divergences, in total. The orders may be compared because the
    divergences are known without looking at the data.
    Source: Canonne, Kamath and Steinke 2020, Prop. 12, and delta <= sqrt(1 - exp(-KL)): as in dp-accounting.

    Args:
        rdp: (..., len(ORDERS)) divergences at `ORDERS`.
        places: of the orders that there are divergences of, see `rdp_of`.

    Returns:
        (...) epsilons, at least 0; a 0-dimensional array for one account.
    """
    orders = ORDERS if places is None else ORDERS[list(places)]
    return np.asarray(_epsilon_at(orders, np.asarray(rdp), delta).min(axis=-1))


def epsilon_at_order(rdp: np.ndarray, order_index: int, delta: float) -> np.ndarray:
    """The epsilon of one order fixed in advance, as an RDP filter needs (Feldman and Zrnic 2021).

    Args:
        rdp: (..., len(ORDERS)).
        order_index: a position in `ORDERS`.
    """
    return np.asarray(_epsilon_at(ORDERS[order_index], np.asarray(rdp)[..., order_index], delta))


def classic_epsilon_from_rdp(rdp: np.ndarray, delta: float) -> np.ndarray:
    """rdp + log(1/delta)/(order - 1), the smallest over orders 2..64 (Mironov 2017, Prop. 3; as in ALI-DPFL)."""
    classic = ORDERS <= 64
    return np.asarray((np.asarray(rdp)[..., classic] - np.log(delta) / (ORDERS[classic] - 1)).min(axis=-1))


def _epsilon_at(orders: np.ndarray, rdp: np.ndarray, delta: float) -> np.ndarray:
    assert 0 < delta < 1, delta
    converted = rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    indistinguishable = delta**2 + np.expm1(-rdp) > 0
    return np.where(indistinguishable, 0.0, np.maximum(converted, 0.0))


ORDERS: np.ndarray = np.array(
    [*range(2, 65), 72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
)
ORDERS.flags.writeable = False
"""(80,) orders of the live account, integers."""

HOPELESS = 500.0  # a divergence beyond which the bound of the plain Gaussian is as good as any
MARGIN = 12.0  # standard deviations beyond the outermost bump: 1e-32 of its mass is left out
SAFETY = 1e-9  # relative, added to cover rounding: what is reported is never too small
SERIES_TERMS = 9


def pair_of(release: ReleaseType, coarse: bool = False) -> AnyMixture | LawPair:
    """The pair of laws of a release: its mixture of Gaussians, or the pair that the law of its noise states.

    Args:
        coarse: of mixtures, that of `coarse_mixture_of`.
    """
    if release.law != "gaussian":
        return OTHER_LAWS[release.law](release)
    if release.sampling == "allocated" and not release.replaced and release.sampling_rate < 1:
        from h2fdp.privacy.accounting.allocation import pair_of_epoch  # few runs need it

        return pair_of_epoch(release)
    return coarse_mixture_of(release) if coarse else mixture_of(release)


def rdp_of(release: ReleaseType, places: tuple[int, ...] | None = None) -> np.ndarray:
    """(len(ORDERS),) Renyi divergence of one release at `ORDERS`: the larger of both directions.

    Guarantee: an upper bound, exact to a relative 1e-9 (or the plain Gaussian's order/(2 z^2) where that exceeds
    500). Neighbours: one record becomes null. Under Poisson sampling, of the mixture of `mixture_of`; under fixed
    sampling, of the plain Gaussian; of another law, what its pair states. Cached; the array is read-only.
    Source: Mironov 2017; the mixture, h2fdp's privacy specification.

    Args:
        places: of the orders that are asked for, which takes a fraction of the time; None for all.

    >>> bool(np.allclose(rdp_of(ReleaseType(2.0, steps=5, sampling_rate=0.01, sampling="fixed")), ORDERS / 8))
    True
    """
    if math.isinf(release.noise_multiplier) or (release.sampling_rate == 0 and release.noise_multiplier > 0):
        return _frozen(np.zeros(ORDERS.size if places is None else len(places)))
    return renyi_divergence(pair_of(release), release.noise_multiplier, places)


@lru_cache(maxsize=8192)
def renyi_divergence(
    mixture: AnyMixture | LawPair, noise_multiplier: float, places: tuple[int, ...] | None = None
) -> np.ndarray:
    """(len(ORDERS),) the larger of D(P||Q) and D(Q||P) at each order; read-only. No noise is inf at every order.

    Args:
        places: of the orders that are asked for; None for all.
    """
    orders = ORDERS if places is None else ORDERS[list(places)]
    if noise_multiplier == 0:
        return _frozen(np.full(orders.size, np.inf))
    if isinstance(mixture, LawPair):
        return _frozen(mixture.divergence(noise_multiplier, orders) * (1 + SAFETY))
    plain = orders * ((mixture.distance / noise_multiplier) ** 2 / 2)
    if len(mixture.shifts) == 1:
        return _frozen(plain)
    hopeful = plain <= HOPELESS
    divergence = plain.copy()
    if hopeful.any():
        asked = mixture, noise_multiplier, orders[hopeful]
        exact = _mirrored_divergence(*asked) if mixture.mirrored else np.maximum(*directed_divergences(*asked))
        divergence[hopeful] = np.minimum(exact * (1 + SAFETY), plain[hopeful])
    return _frozen(divergence)


def _mirrored_divergence(mixture: AnyMixture, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """(len(orders),) D(P||Q) = D(Q||P), Q the mirror image of P.

    r^a Q has its bumps up to (2a - 1) times the highest shift, where hardly anything is unmoved; the nearest
    singularity is where Q is 0, pi / highest off the real axis.
    """
    powers, highest = orders.astype(float), max(mixture.shifts) / noise_multiplier
    first, last = -highest - MARGIN, (2 * float(orders[-1]) - 1) * highest + MARGIN
    moments = _log_moment(mixture, noise_multiplier, powers, first, last, min(1 / 8, 1 / (4 * highest)))
    return np.asarray(moments / (powers - 1))


def directed_divergences(
    mixture: AnyMixture, noise_multiplier: float, orders: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """D(P||Q) and D(Q||P) at increasing whole orders, both (len(orders),), by quadrature.

    The first, a record removed, was the larger in all cases that were tried; Mironov et al. 2019 prove it for one step.
    """
    powers = orders.astype(float)
    highest = max(mixture.shifts) / noise_multiplier
    # r^a Q has its bumps in [0, a highest].
    removed = _log_moment(mixture, noise_multiplier, powers, -MARGIN, float(orders[-1]) * highest + MARGIN, 0.5)
    added = _log_moment(mixture, noise_multiplier, 1 - powers, *_range_added(powers, highest, mixture))
    return removed / (powers - 1), added / (powers - 1)


def _frozen(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


def _range_added(orders: np.ndarray, highest: float, mixture: AnyMixture) -> tuple[float, float, float]:
    """First point, last point and step: r^(1-a) Q has its mass above -(a-1) highest; a chance p_0 of no shift bounds it
    by p_0^(1-a) Q as well.

    The tangent subtracted from it has the mass of P, up to `highest`. The nearest singularity is pi / highest off.
    """
    excess = float(orders[-1]) - 1
    unmoved = sum(chance for shift, chance in zip(mixture.shifts, mixture.probabilities, strict=True) if shift == 0)
    reach = math.sqrt(-2 * excess * math.log(unmoved)) if unmoved > 0 else math.inf
    return -min(excess * highest, reach) - MARGIN, highest + MARGIN, min(1 / 8, 1 / (4 * highest))


def _log_moment(
    mixture: AnyMixture, noise_multiplier: float, powers: np.ndarray, first: float, last: float, step: float
) -> np.ndarray:
    """(len(powers),) log E_Q[r^b], through E_Q[r^b - 1 - b (r - 1)] >= 0, which keeps its precision near 0.

    A row with large exponents is scaled by the largest, so that nothing overflows.
    """
    points = np.arange(math.floor(first / step), math.ceil(last / step) + 1) * step
    loss = privacy_loss(mixture, noise_multiplier, points)
    log_weight = -(points**2) / 2
    if mixture.mirrored:
        log_weight = log_weight + over_noise(mixture, noise_multiplier, -points)
    exponents = np.multiply.outer(powers, loss)
    powers_small, points_small = np.nonzero(np.abs(exponents) < 0.05)
    exponents += log_weight
    highest = exponents.max(axis=1)
    peaks = np.where(highest > 1, highest, 0.0)
    tangent = powers[:, None] * (np.exp(loss + log_weight) - np.exp(log_weight))
    tangent += np.exp(log_weight)
    tangent *= np.exp(-peaks)[:, None]
    exponents -= peaks[:, None]
    terms = np.exp(exponents, out=exponents)  # in place: pages for more tables take longer than their numbers
    terms -= tangent
    terms[powers_small, points_small] = _second_order_on(powers[powers_small], np.expm1(loss[points_small])) * np.exp(
        log_weight[points_small] - peaks[powers_small]
    )
    excess = terms.sum(axis=1) * (step / math.sqrt(2 * math.pi))
    moments: np.ndarray = np.where(peaks == 0, np.log1p(excess), peaks + np.log(excess + np.exp(-peaks)))
    return moments


def _second_order_on(powers: np.ndarray, change: np.ndarray) -> np.ndarray:
    """(1 + x)^b - 1 - b x for small b x, by the binomial series from its second term."""
    term: np.ndarray = powers * change
    total: np.ndarray = np.zeros_like(term)
    for degree in range(2, SERIES_TERMS + 1):
        term = term * (powers - degree + 1) * change / degree
        total += term
    return total
