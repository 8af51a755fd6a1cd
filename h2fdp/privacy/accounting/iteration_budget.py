"""R_c: how many local iterations of DP-SGD a privacy budget allows each device (ALI-DPFL, Algorithm 3)."""

from __future__ import annotations

from typing import Literal

from h2fdp.errors import UserError
from h2fdp.privacy.accounting.accountants import Accountant, total_rdp
from h2fdp.privacy.accounting.conversion import classic_epsilon_from_rdp
from h2fdp.privacy.accounting.release_budget import MOST_RELEASES, largest_count
from h2fdp.privacy.accounting.release_types import ReleaseType

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
