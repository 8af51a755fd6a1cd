"""Privacy losses of many releases added up, and what they say about epsilon; one direction, one grid."""

from __future__ import annotations

import math

import numpy as np

from h2fdp.privacy.accounting.loss_distribution import LossDistribution

TRUNCATION = 1e-15  # mass of a composition that is cut off, and counted as an infinite loss


def repeated(losses: LossDistribution, count: int) -> LossDistribution:
    """The loss of `count` independent releases, by Fourier convolution between Chernoff bounds, as dp-accounting's
    `self_convolve` has it (its bounds take ten times as long as all the rest)."""
    from scipy.fft import irfft, next_fast_len, rfft

    first, last = chernoff_bounds(losses.masses, count)
    length = next_fast_len(max(last - first + 1, losses.masses.size), real=True)
    wrapped = irfft(rfft(losses.masses, length) ** count, length)
    infinite = TRUNCATION - math.expm1(count * math.log1p(-losses.infinite))
    return LossDistribution(losses.lowest * count + first, np.roll(wrapped, -first)[: last - first + 1], infinite)


def chernoff_bounds(masses: np.ndarray, count: int) -> tuple[int, int]:
    """The places between which the sum of `count` independent draws lies but for `TRUNCATION` of its mass.

    A draw is place k with probability masses[k]. The bounds are count log E exp(t k) + log(2 / TRUNCATION), over t, at
    the 40 t that dp-accounting tries too.
    """
    places = np.arange(masses.size)
    first, last = 0, (masses.size - 1) * count
    for order in np.concatenate((np.arange(-20, 0), np.arange(1, 21))) / masses.size:
        moment = np.sum(np.exp(places * order) * masses)
        if moment <= 0:  # all losses are infinite
            continue
        bound = (count * math.log(moment) + math.log(2 / TRUNCATION)) / order
        if order > 0:
            last = min(last, math.ceil(bound))
        else:
            first = max(first, math.floor(bound))
    return first, last


def together(one: LossDistribution, other: LossDistribution) -> LossDistribution:
    """The loss of two independent releases on the same grid."""
    from scipy.signal import fftconvolve

    infinite = one.infinite + other.infinite - one.infinite * other.infinite
    return LossDistribution(one.lowest + other.lowest, fftconvolve(one.masses, other.masses), infinite)


def epsilon_of(losses: LossDistribution, interval: float, delta: float) -> float:
    """The smallest epsilon >= 0 with E[(1 - exp(epsilon - loss))_+] <= delta; inf if there is none.

    With S_k the mass of the losses from grid point k on, infinite ones included, and G_k their mass weighted by
    exp(loss_k - loss): delta(epsilon) = S_k - exp(epsilon - loss_k) G_k for epsilon between points k-1 and k.
    G_k = mass_k + exp(-interval) G_(k+1) never overflows.
    """
    from scipy.signal import lfilter

    if losses.infinite > delta:
        return math.inf
    down = losses.masses[::-1]
    mass = losses.infinite + np.cumsum(down)
    weighted = lfilter([1.0], [1.0, -math.exp(-interval)], down)
    below = np.flatnonzero(mass - weighted > delta)  # grid points below the epsilon sought, from the top
    last = (int(below[0]) if below.size else down.size) - 1
    if mass[last] <= delta:
        return 0.0
    top = (losses.lowest + down.size - 1) * interval
    return max(0.0, top - last * interval + math.log((mass[last] - delta) / weighted[last]))
