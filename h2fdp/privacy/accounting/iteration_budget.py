"""How many releases a budget allows, and R_c: how many local iterations of DP-SGD (ALI-DPFL, Algorithm 3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from h2fdp.errors import UserError
from h2fdp.privacy.accounting.accountants import Accountant, total_rdp
from h2fdp.privacy.accounting.mixtures import ReleaseType
from h2fdp.privacy.accounting.renyi import classic_epsilon_from_rdp

MOST_RELEASES = 1 << 40
_FASTEST = 64  # by which the search may grow at once


def largest_count(release: ReleaseType, epsilon: float, delta: float, accountant: Accountant) -> int:
    """The largest number of releases of one type that the accountant puts at `epsilon` or below; 0 if none.

    By interpolation: an account of billions of releases takes seconds, so few are asked for.

    Raises:
        UnsupportedRelease: where the accountant refuses the type.

    >>> from h2fdp.privacy.accounting import ACCOUNTANTS
    >>> largest_count(ReleaseType(1.1, steps=1, sampling_rate=0.015), 2.0, 1e-5, ACCOUNTANTS["classic-rdp"])
    314
    """

    def spent(count: int) -> float:
        return accountant.epsilon({release: count}, delta)

    enough, too_many, spent_by_enough, spent_by_too_many = 0, 1, 0.0, spent(1)
    while spent_by_too_many <= epsilon:
        enough, spent_by_enough = too_many, spent_by_too_many
        # Epsilon grows like the root of the count at first, like the count in the end: this rarely overshoots.
        growth = epsilon / spent_by_enough if spent_by_enough > 1 else 2.0
        too_many = math.floor(enough * min(max(growth, 2.0), _FASTEST))
        assert too_many <= MOST_RELEASES, f"{release} costs nothing"
        spent_by_too_many = spent(too_many)
    return _between(spent, epsilon, (enough, spent_by_enough), (too_many, spent_by_too_many))


def _between(spent: Callable[[int], float], epsilon: float, low: tuple[int, float], high: tuple[int, float]) -> int:
    """The largest count that spends no more than epsilon, of an increasing account.

    A guess by interpolation, then one on the other side of it, twice as far as interpolation says; where both of them
    leave more than a half, the middle.

    Args:
        low, high: counts that spend no more and more than that, and what they spend.
    """
    while high[0] - low[0] > 1:
        width = high[0] - low[0]
        for wider in (1, 2):
            slope = (high[1] - low[1]) / (high[0] - low[0])
            if not (0 < slope < math.inf) or high[0] - low[0] <= 1:
                break
            from_low = wider == 1 or epsilon - low[1] < high[1] - epsilon
            step = wider * (epsilon - low[1] if from_low else high[1] - epsilon) / slope
            guess = low[0] + math.floor(step) + (wider - 1) if from_low else high[0] - math.floor(step) - 1
            low, high = _narrowed(spent, epsilon, low, high, guess)
        if high[0] - low[0] > width // 2:
            low, high = _narrowed(spent, epsilon, low, high, (low[0] + high[0]) // 2)
    return low[0]


def _narrowed(
    spent: Callable[[int], float], epsilon: float, low: tuple[int, float], high: tuple[int, float], guess: int
) -> tuple[tuple[int, float], tuple[int, float]]:
    """The bracket with a guess within it in place of one of its ends."""
    if high[0] - low[0] <= 1:
        return low, high
    count = min(max(guess, low[0] + 1), high[0] - 1)
    found = count, spent(count)
    return (found, high) if found[1] <= epsilon else (low, found)


RcSearch = Literal["safe", "paper"]

_TOLERANCE = 0.01  # how far above the target the authors' bisection may stop
_CEILING = 1e5  # where it starts; its midpoints, and so what it finds, depend on that
_NARROW = 1e-3  # steps, where a target is met too steeply to stop within the tolerance


def iteration_budget(search: RcSearch, step: ReleaseType, epsilon: float, delta: float, accountant: Accountant) -> int:
    """R_c for one device.

    Args:
        search: `safe` is the largest number whose epsilon is at most the target. `paper` is the bisection of the
            authors' program, which bisects fractions of a step and stops as soon as it is within 0.01 *above* the
            target: it overspends, and reproduces the papers' table.
        step: one step of DP-SGD.

    Raises:
        UserError: `paper` with another accountant than the papers'.
        UnsupportedRelease: where the accountant refuses the step.

    >>> from h2fdp.privacy.accounting import ACCOUNTANTS
    >>> step, classic = ReleaseType(1.1, steps=1, sampling_rate=0.015), ACCOUNTANTS["classic-rdp"]
    >>> [iteration_budget(search, step, 2.0, 1e-5, classic) for search in ("safe", "paper")]
    [314, 317]
    """
    if search == "safe":
        return largest_count(step, epsilon, delta, accountant)
    if accountant.name != "classic-rdp":
        raise UserError(
            f"rc_search paper needs classic-rdp, found {accountant.name}; choose that accountant, or `safe`",
            key="method.privacy.rc_search",
        )
    return _as_published(step, epsilon, delta)


def _as_published(step: ReleaseType, epsilon: float, delta: float) -> int:
    of_one = total_rdp({step: 1})

    def spent(steps: float) -> float:
        return float(classic_epsilon_from_rdp(steps * of_one, delta))

    enough, too_many = 0.0, _CEILING
    while spent(too_many) <= epsilon:
        too_many *= 2
        assert too_many <= MOST_RELEASES, f"{step} costs nothing"
    while too_many - enough > _NARROW:
        middle = (enough + too_many) / 2
        excess = spent(middle) - epsilon
        if 0 <= excess < _TOLERANCE:
            return int(middle)
        enough, too_many = (enough, middle) if excess > 0 else (middle, too_many)
    return int(enough)
