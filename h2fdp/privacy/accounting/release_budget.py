"""How many releases a budget allows."""

from __future__ import annotations

from h2fdp.privacy.accounting.accountants import Accountant
from h2fdp.privacy.accounting.release_types import ReleaseType

MOST_RELEASES = 1 << 40


def largest_count(release: ReleaseType, epsilon: float, delta: float, accountant: Accountant) -> int:
    """The largest number of releases of one type that the accountant puts at `epsilon` or below; 0 if none.

    Doubling, then bisection: some 2 log2(count) accounts.

    Raises:
        UnsupportedRelease: where the accountant refuses the type.

    >>> from h2fdp.privacy.accounting import ACCOUNTANTS
    >>> largest_count(ReleaseType(1.1, steps=1, sampling_rate=0.015), 2.0, 1e-5, ACCOUNTANTS["classic-rdp"])
    314
    """

    def within(count: int) -> bool:
        return accountant.epsilon({release: count}, delta) <= epsilon

    too_many = 1
    while within(too_many):
        too_many *= 2
        assert too_many <= MOST_RELEASES, f"{release} costs nothing"
    enough = too_many // 2
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if within(middle) else (enough, middle)
    return enough
