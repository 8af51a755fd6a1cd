"""What joules and seconds are worth: multipliers that a controller finds on a forecast, instead of weights to guess.

For any multiplier each interval takes what minimises, per slot, the noise that it brings into the model plus the
multiplier times what it costs (the Lagrangian of least noise within a budget). A larger one costs less and brings more.

- A budget takes the smallest multiplier at which the rest of the run fits into what is left.
- A target takes the one at which cost times noise is least. While noise limits learning, n intervals of tau steps
  average it to noise / (n tau^2) of the squared way that they go, so that any level is reached at a cost proportional
  to cost * noise / tau^2, whatever the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from h2fdp.schedules.offers import Offers
from h2fdp.schedules.problem import Counts, Floats

_DOUBLINGS, _HALVINGS = 120, 12
_HARDLY = 1e-9  # of the multiplier at which noise and cost weigh alike


@dataclass(frozen=True)
class Prices:
    """The direction in which costs are counted: noise per joule and per second at a multiplier of 1."""

    joule: float
    second: float


@dataclass(frozen=True)
class Choice:
    """One interval, as it would be: `noise` is at a step size of 1, `objective` per slot."""

    tau: int
    participation: Counts
    joules: float
    seconds: float
    noise: float
    objective: float


def choices(interval: Sequence[Offers], prices: Prices, multiplier: float) -> list[Choice]:
    """The best of each tau, the best of all first; of equal ones the shorter."""
    joule, second = multiplier * prices.joule, multiplier * prices.second
    found = []
    for each in interval:
        participation = each.chosen(joule, second)
        joules, seconds, noise = each.totals(participation)
        objective = (noise + joule * joules + second * seconds) / each.tau
        found.append(Choice(each.tau, participation, joules, seconds, noise, objective))
    return sorted(found, key=lambda choice: (choice.objective, choice.tau))


@dataclass(frozen=True)
class Rates:
    """Per slot, over the intervals of a forecast."""

    joules: float
    seconds: float
    noise: float


@dataclass(frozen=True)
class Forecast:
    """Intervals like those to come: for every tau, tables as in `Offers`, of H intervals together.

    Attributes:
        intervals: tau, and (H, N, S) joules, seconds and noise. Their channels are drawn as those of the run are, but
            are not those of the run.
    """

    intervals: Sequence[tuple[int, Floats, Floats, Floats]]

    @classmethod
    def of(cls, intervals: Sequence[Sequence[Offers]]) -> Forecast:
        """Each interval has its offers for the same lengths."""
        stacked = []
        for same in zip(*intervals, strict=True):
            tables = (np.stack([getattr(each, name) for each in same]) for name in ("joules", "seconds", "noise"))
            stacked.append((same[0].tau, *tables))
        return cls(stacked)

    def rates(self, prices: Prices, multiplier: float) -> Rates:
        """What all of them come to, per slot."""
        found = np.array([_best_of(each, prices, multiplier) for each in self.intervals])  # (lengths, 5, H)
        best = np.take_along_axis(found, found[:, 0].argmin(axis=0)[None, None], axis=0)[0].sum(axis=1)
        _, slots, joules, seconds, noise = best.tolist()
        return Rates(joules / slots, seconds / slots, noise / slots)


def _best_of(tables: tuple[int, Floats, Floats, Floats], prices: Prices, multiplier: float) -> Floats:
    """(5, H) objective, tau, joules, seconds and noise of the best participation for one tau."""
    tau, joules, seconds, noise = tables
    price = noise + (multiplier * prices.joule) * joules + (multiplier * prices.second) * seconds
    place = price.argmin(axis=2)[:, :, None]
    totals = [np.take_along_axis(each, place, axis=2).sum(axis=(1, 2)) for each in (price, joules, seconds, noise)]
    return np.stack([totals[0] / tau, np.full(len(joules), float(tau)), *totals[1:]])


def within_budget(forecast: Forecast, prices: Prices, joules: float, seconds: float) -> float:
    """The smallest multiplier at which a slot costs no more than this on average.

    Where none is needed, a very small one, at which cost only decides between equal noises. Where none is enough, a
    very large one: then every interval takes the cheapest there is.
    """

    def fits(multiplier: float) -> bool:
        rates = forecast.rates(prices, multiplier)
        return rates.joules <= joules and rates.seconds <= seconds

    base = _scale(forecast, prices)
    if fits(_HARDLY * base):
        return _HARDLY * base
    low, high = 0.0, base
    if fits(base):
        low, high = base / 2, base
        for _ in range(_DOUBLINGS):
            if not fits(low):
                break
            low, high = low / 2, low
    else:
        for _ in range(_DOUBLINGS):
            low, high = high, 2 * high
            if fits(high):
                break
            if forecast.rates(prices, high) == forecast.rates(prices, high * 2**20):
                return high * 2**20
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def least_product(forecast: Forecast, prices: Prices) -> float:
    """The multiplier at which the mean cost of a slot times its mean noise is least."""
    base = _scale(forecast, prices)
    grid = base * 2.0 ** np.arange(-16, 16.0625, 0.125)
    found = [forecast.rates(prices, multiplier) for multiplier in grid.tolist()]
    products = [(prices.joule * each.joules + prices.second * each.seconds) * each.noise for each in found]
    return float(grid[int(np.argmin(products))])


def _scale(forecast: Forecast, prices: Prices) -> float:
    """The multiplier at which noise and cost weigh alike if everybody takes part."""
    rates = forecast.rates(prices, 0.0)
    cost = prices.joule * rates.joules + prices.second * rates.seconds
    return rates.noise / cost if cost > 0 and rates.noise > 0 else 1.0
