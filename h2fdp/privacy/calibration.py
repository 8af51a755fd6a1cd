"""The deviation of each noise for a target (epsilon, delta), by the paper's formula (Prop. 3.1) or an account; and,
under given noise, the number of releases that it allows: R_c local iterations of DP-SGD (ALI-DPFL, Algorithm 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import Accountant, ReleaseType, total_rdp
from h2fdp.privacy.accounting.renyi import classic_epsilon_from_rdp
from h2fdp.privacy.places import AggregationKind, Tier

Composition = dict[ReleaseType, int]
_PRECISION = 1e-3  # relative; the factor returned is on the safe side of it
_SMALLEST, _LARGEST = 1e-6, 1e6
_TRIES = 8  # by lines; then the search goes on from the middle
_UNSURE = 1e-3  # relative; an epsilon that is farther from a target says on which side those of other noises are


def scaled(composition: Composition, factor: float) -> Composition:
    """The releases under noise `factor` times as large."""
    return {
        replace(kind, noise_multiplier=kind.noise_multiplier * factor): count for kind, count in composition.items()
    }


def smallest_factor(
    compositions: Iterable[Composition],
    target: float,
    epsilon: Callable[[Composition], float],
    quick: Callable[[Composition, float], float] | None = None,
) -> float:
    """The smallest common factor on all noises at which every composition's epsilon is at most `target`.

    Bisection on the logarithm, ended on the safe side within 0.1 %. The composition that is worst at one factor need
    not be at another, so the answer is checked against all of them.

    Args:
        compositions: what each watched observer would hold about each distinct device after the planned run.
        epsilon: an accountant's epsilon at the run's delta; falls as the noise grows.
        quick: epsilon where it is above a number, else anything from there up to that number: of many compositions most
            need no account of their own then, and the factor is the same.

    Raises:
        UserError: no noise that is up to a million times as large meets the target.
    """
    remaining, above = list(compositions), quick or (lambda composition, enough: epsilon(composition))
    factor = _SMALLEST
    while remaining:
        worst, largest, first = remaining[0], -math.inf, max(factor, 1.0)
        if quick is not None and len(remaining) > 1:  # after the one that may be largest, few need accounts
            remaining.sort(key=lambda each: -quick(scaled(each, first), math.inf))
        for each in remaining if len(remaining) > 1 else ():
            if (reached := above(scaled(each, first), largest)) > largest:
                worst, largest = each, reached
        factor = _factor_of(worst, target, above, factor)
        remaining = [each for each in remaining if each is not worst and above(scaled(each, factor), target) > target]
    return factor


def _factor_of(
    composition: Composition, target: float, above: Callable[[Composition, float], float], floor: float
) -> float:
    """The smallest factor of at least `floor` for one composition: where bisection ends, to the bit.

    Of the points of its way those are asked for first that lie next to where the epsilons so far put the target. Most
    others are clear then, as epsilon falls with noise.
    """
    reached: dict[float, float] = {}  # factor -> epsilon

    def met(factor: float) -> bool:
        if factor not in reached:
            reached[factor] = above(scaled(composition, factor), target)
        return reached[factor] <= target

    def clear(factor: float) -> bool | None:
        """Whether a factor meets the target; None where it must be asked for."""
        for each, epsilon in reached.items():
            unsure = 0.0 if each == factor else _UNSURE
            if each <= factor and epsilon <= target * (1 - unsure):
                return True
            if each >= factor and epsilon > target * (1 + unsure):
                return False
        return None

    low = high = max(1.0, floor)
    while not met(high):  # accounts of little noise are slow to compute, so the search begins at the noise as it is
        if high >= _LARGEST:
            text = f"no noise up to {_LARGEST:g} times that of the formula meets the target of {target:g}"
            raise UserError(f"{text} by this accountant; expected a larger epsilon or delta", key="privacy.epsilon")
        low, high = high, high * 2
    while low == high or met(low):
        if low <= floor:
            return floor
        low, high = max(low / 2, floor), low
    while True:
        least, most, guess, open_points = low, high, _crossing(reached, target), list[float]()
        while math.log(most / least) > _PRECISION:
            middle = math.sqrt(least * most)
            if (enough := clear(middle)) is None:
                open_points.append(middle)
                enough = middle >= guess
            least, most = (least, middle) if enough else (middle, most)
        if not open_points:
            return most
        asked = open_points[-1 if len(reached) < _TRIES else 0]
        reached[asked] = above(scaled(composition, asked), 0.0)  # sharp: others lie on no line


def _crossing(reached: Mapping[float, float], target: float) -> float:
    """Where the line through the two epsilons next to the target, over factors and both in logarithms, reaches it."""
    low = max(factor for factor, epsilon in reached.items() if epsilon > target)
    high = min(factor for factor, epsilon in reached.items() if epsilon <= target)
    if math.isinf(reached[low]) or reached[high] <= 0:
        return math.sqrt(low * high)
    share = math.log(reached[low] / target) / math.log(reached[low] / reached[high])
    return float(low * (high / low) ** share)


@dataclass(frozen=True)
class EqualMultipliers:
    """Noise of z times the sensitivity, whatever the kind of release and the rate at which batches are drawn.

    Releases of equal multipliers cost a device equally, so none is a bottleneck. There is no formula, only an account.

    Attributes:
        noise_multiplier: z.
    """

    noise_multiplier: float

    def noise_std(
        self, kind: AggregationKind, sensitivity: float, sampling_rate: float, tier: Tier | None = None
    ) -> float:
        """Standard deviation of the Gaussian noise on a release of this kind, in the unit of `sensitivity`."""
        return self.noise_multiplier * sensitivity

    def by_rate(self, sampling_rates: np.ndarray) -> np.ndarray:
        """(s,) how the noise for devices of these rates compares with that for a rate of 1."""
        return np.ones_like(sampling_rates)

    def claimed(
        self, local_releases: int, global_releases: int, tiers: Mapping[Tier, int] | None = None
    ) -> float | None:
        """The epsilon that a formula promises after these releases; None: no formula applies."""
        return None

    def scaled(self, factor: float) -> EqualMultipliers:
        """The calibration with all noises `factor` times as large."""
        return EqualMultipliers(self.noise_multiplier * factor)


@dataclass(frozen=True)
class PaperCalibration:
    """sigma = c2 q Delta sqrt(L log(1/delta)) / epsilon (H2FDP, Eq. 15), L counted for each kind of release.

    What the formula promises is a claim: privacy.md says when an honest account confirms it.

    Attributes:
        c2: the paper's unnamed constant.
        local_releases: l_c, the local aggregations planned for a subnet over the whole run.
        global_releases: K_g, the global aggregations planned.
        factor: on all noises; 1 is the paper, another value comes from an account (`smallest_factor`).
        tiers: in a network of more than one tier the local aggregations planned for each, in place of l_c.

    >>> calibration = PaperCalibration(epsilon=1.0, delta=1e-5, c2=2**0.5, local_releases=600, global_releases=200)
    >>> round(calibration.noise_std("global", sensitivity=4.0, sampling_rate=32 / 1200), 4)
    7.2385
    """

    epsilon: float
    delta: float
    c2: float
    local_releases: int
    global_releases: int
    factor: float = 1.0
    tiers: Mapping[Tier, int] = field(default_factory=dict)

    def noise_std(
        self, kind: AggregationKind, sensitivity: float, sampling_rate: float, tier: Tier | None = None
    ) -> float:
        """Standard deviation of the Gaussian noise on a release of this kind, in the unit of `sensitivity`."""
        local = self.local_releases if tier is None else self.tiers[tier]
        releases = local if kind == "local" else self.global_releases
        paper = self.c2 * sampling_rate * sensitivity * math.sqrt(releases * math.log(1 / self.delta)) / self.epsilon
        return self.factor * paper

    def by_rate(self, sampling_rates: np.ndarray) -> np.ndarray:
        """The rates themselves."""
        return sampling_rates

    def claimed(
        self, local_releases: int, global_releases: int, tiers: Mapping[Tier, int] | None = None
    ) -> float | None:
        """The epsilon that the formula promises after these releases, the larger of local and global.

        Read backwards, (15) grows with the square root of the releases. Beyond the planned number it promises nothing:
        None.

        >>> calibration = PaperCalibration(1.0, 1e-5, 2**0.5, local_releases=600, global_releases=200)
        >>> calibration.claimed(150, 50), calibration.claimed(600, 200), calibration.claimed(601, 200)
        (0.5, 1.0, None)
        """
        counts = [(global_releases, self.global_releases)]
        if self.tiers:
            counts += [((tiers or {}).get(tier, 0), planned) for tier, planned in self.tiers.items()]
        else:
            counts.append((local_releases, self.local_releases))
        if any(done > planned for done, planned in counts):
            return None
        return self.epsilon * math.sqrt(max(done / planned for done, planned in counts if planned)) / self.factor

    def scaled(self, factor: float) -> PaperCalibration:
        return replace(self, factor=self.factor * factor)


Calibration = EqualMultipliers | PaperCalibration  # how the noises of a run relate to the sensitivities of its releases


MOST_RELEASES = 1 << 40
_FASTEST = 64  # by which the search may grow at once


def largest_count(
    release: ReleaseType, epsilon: float, delta: float, accountant: Accountant, most: int = MOST_RELEASES
) -> int:
    """The largest number of releases of one type, up to `most`, that the accountant puts at `epsilon` or below.

    By steps that grow with what is left of the budget, then by bisection. No more than `most` are composed: an account
    of far more than a run makes may take minutes, and gigabytes.

    >>> from h2fdp.privacy.accounting import ACCOUNTANTS
    >>> largest_count(ReleaseType(1.1, steps=1, sampling_rate=0.015), 2.0, 1e-5, ACCOUNTANTS["classic-rdp"])
    314
    """

    def spent(count: int) -> float:
        return accountant.epsilon({release: count}, delta)

    enough, too_many, spends = 0, 1, spent(1)
    while spends <= epsilon:
        if too_many == most:
            return most
        # Epsilon grows like the root of the count at first, like the count in the end: this rarely overshoots.
        growth = min(max(epsilon / spends, 2.0), _FASTEST) if spends > 1 else 2.0
        enough, too_many = too_many, min(most, math.floor(too_many * growth))
        spends = spent(too_many)
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if spent(middle) <= epsilon else (enough, middle)
    return enough


RcSearch = Literal["safe", "paper"]

_TOLERANCE = 0.01  # how far above the target the authors' bisection may stop
_CEILING = 1e5  # where it starts; its midpoints, and so what it finds, depend on that
_NARROW = 1e-3  # steps, where a target is met too steeply to stop within the tolerance


def iteration_budget(
    search: RcSearch,
    step: ReleaseType,
    epsilon: float,
    delta: float,
    accountant: Accountant,
    most: int = MOST_RELEASES,
) -> int:
    """R_c for one device, or `most`.

    Args:
        search: `safe` is the largest number whose epsilon is at most the target. `paper` is the bisection of the
            authors' program, which bisects fractions of a step and stops as soon as it is within 0.01 *above* the
            target: it overspends, and reproduces the papers' table.
        step: one step of DP-SGD.

    Raises:
        UserError: `paper` with another accountant than the papers'.

    >>> from h2fdp.privacy.accounting import ACCOUNTANTS
    >>> step, classic = ReleaseType(1.1, steps=1, sampling_rate=0.015), ACCOUNTANTS["classic-rdp"]
    >>> [iteration_budget(search, step, 2.0, 1e-5, classic) for search in ("safe", "paper")]
    [314, 317]
    """
    if search == "safe":
        return largest_count(step, epsilon, delta, accountant, most)
    if accountant.name != "classic-rdp":
        raise UserError(
            f"rc_search paper needs classic-rdp, found {accountant.name}; choose that accountant, or `safe`",
            key="method.privacy.rc_search",
        )
    return min(_as_published(step, epsilon, delta, most), most)


def _as_published(step: ReleaseType, epsilon: float, delta: float, most: int) -> int:
    of_one = total_rdp({step: 1})

    def spent(steps: float) -> float:
        return float(classic_epsilon_from_rdp(steps * of_one, delta))

    enough, too_many = 0.0, _CEILING
    while spent(too_many) <= epsilon:
        if too_many >= most:
            return most
        too_many *= 2
    while too_many - enough > _NARROW:
        middle = (enough + too_many) / 2
        excess = spent(middle) - epsilon
        if 0 <= excess < _TOLERANCE:
            return int(middle)
        enough, too_many = (enough, middle) if excess > 0 else (middle, too_many)
    return int(enough)
