"""Trust in edge servers: its three levels, what a topology file says, and how trust is drawn where it states none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from h2fdp.config.fields import Expect, Probability, Section, shape
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


DEFAULT_TRUST_PROBABILITY = 0.5

TrustLevel = Annotated[Trust, Expect(f"one of {', '.join(TRUSTS)}")]


Drawn = Annotated[Literal["trusted", "secure-sum"], Expect("one of trusted, secure-sum")]
Shares = Annotated[
    Annotated[Probability, Tag("scalar")] | Annotated[dict[Drawn, Probability], Tag("mapping")],
    Discriminator(shape),
    Expect("a number from 0 to 1, or shares of levels, as {trusted: 0.3, secure-sum: 0.2}"),
]


class TrustSection(Section):
    """How trust is drawn for an edge server that states none (H2FDP, Eq. 27).

    Attributes:
        probability: that an edge server is trusted.
        trusted: with three levels, the probability that an edge server is trusted.
        secure-sum: with three levels, the probability that an edge server learns sums alone.
        share: instead of probabilities: just this share of the edge servers is trusted; or shares of the two levels,
            `{trusted: 0.3, secure-sum: 0.2}`.
    """

    probability: Probability | None = None
    trusted: Probability | None = None
    secure_sum: Probability | None = Field(default=None, alias="secure-sum")
    share: Shares | None = None

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        levels = self.trusted is not None or self.secure_sum is not None
        if levels + (self.probability is not None) + (self.share is not None) > 1:
            raise ValueError("expected `probability:`, `share:`, or `trusted:` and `secure-sum:`, found several")
        for what, drawn in (("probabilities", self.drawn), ("shares", self.shares)):
            if drawn is not None and drawn.trusted + drawn.secure_sum > 1:
                found = f"{drawn.trusted:g} and {drawn.secure_sum:g}"
                raise ValueError(f"expected {what} whose sum is at most 1, found {found}")
        return self

    @property
    def shares(self) -> TrustShares | None:
        """The exact shares, where these are asked for."""
        if isinstance(self.share, dict):
            return TrustShares(self.share.get("trusted", 0.0), self.share.get("secure-sum", 0.0))
        return None if self.share is None else TrustShares(self.share)

    @property
    def drawn(self) -> TrustProbabilities:
        """The probabilities; trusted and secure-sum are 0 where only the other one is stated."""
        if self.trusted is None and self.secure_sum is None:
            return TrustProbabilities(DEFAULT_TRUST_PROBABILITY if self.probability is None else self.probability)
        return TrustProbabilities(self.trusted or 0.0, self.secure_sum or 0.0)
