"""The three levels of trust in an edge server, and how one is drawn where a file states none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from h2fdp.errors import UserError
from h2fdp.streams import Streams

Trust = Literal["untrusted", "secure-sum", "trusted"]
TRUSTS: tuple[Trust, ...] = get_args(Trust)


def trust_of(value: Trust | bool, key: str) -> Trust:
    """A level of trust; `True` is trusted and `False` untrusted, as in a file's `trusted:`.

    Raises:
        UserError: under `key`, anything else.

    >>> trust_of(True, "edge-1"), trust_of("secure-sum", "edge-1")
    ('trusted', 'secure-sum')
    """
    if isinstance(value, bool):
        return "trusted" if value else "untrusted"
    if value not in TRUSTS:
        raise UserError(f"expected one of {', '.join(TRUSTS)}, true or false, found {value!r}", key=f"{key}.trust")
    return value


@dataclass(frozen=True)
class TrustProbabilities:
    """With which probabilities an edge server of unstated trust is trusted, or holds secure sums; untrusted otherwise.

    Attributes:
        trusted: p_c (H2FDP, Eq. 27).
        secure_sum: of secure sums.
    """

    trusted: float
    secure_sum: float = 0.0

    def draw(self, name: str, streams: Streams) -> Trust:
        """The trust in the edge server of this name, from one number u between 0 and 1 that no probability moves.

        It is trusted if u is below `trusted`, and holds secure sums if u is below the sum of both. So raising `trusted`
        takes no trust away, and raising `secure_sum` moves untrusted edge servers only.

        >>> odds = TrustProbabilities(trusted=0.3, secure_sum=0.3)
        >>> [odds.draw(f"edge-{number}", Streams(1)) for number in (1, 2, 3)]
        ['secure-sum', 'untrusted', 'secure-sum']
        """
        drawn = _number(name, streams)
        if drawn < self.trusted:
            return "trusted"
        return "secure-sum" if drawn < self.trusted + self.secure_sum else "untrusted"


@dataclass(frozen=True)
class TrustShares:
    """Which shares of the edge servers of unstated trust are trusted, or hold secure sums; the others are untrusted.

    Where trust is drawn with a probability, the number of trusted edge servers varies with the seed, and with it all
    that a run reaches. Here the seed decides only which ones they are.

    Attributes:
        trusted: of trusted ones; times their number, rounded, halves up.
        secure_sum: of those with secure sums; both together are rounded alike.
    """

    trusted: float
    secure_sum: float = 0.0

    def draw(self, names: Iterable[str], streams: Streams) -> dict[str, Trust]:
        """The trust in each edge server of these names: those whose numbers u are smallest are trusted.

        The numbers are those of `TrustProbabilities`, so raising a share takes no trust away.

        >>> TrustShares(trusted=0.5).draw(["edge-1", "edge-2", "edge-3"], Streams(1))
        {'edge-3': 'trusted', 'edge-1': 'trusted', 'edge-2': 'untrusted'}
        """
        ordered = sorted(names, key=lambda name: (_number(name, streams), name))
        trusted = int(self.trusted * len(ordered) + 0.5)
        known = int((self.trusted + self.secure_sum) * len(ordered) + 0.5)
        return {
            name: "trusted" if place < trusted else "secure-sum" if place < known else "untrusted"
            for place, name in enumerate(ordered)
        }


def _number(name: str, streams: Streams) -> float:
    """The number u of an edge server, uniform between 0 and 1."""
    return float(streams.open(name, "trust").random())
