"""Trust in the nodes of a network: its four levels, what a topology file says, how it is drawn where that is open."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from h2fdp.config.fields import Expect, Probability, Section, word_to_bool
from h2fdp.errors import UserError
from h2fdp.streams import Streams

Trust = Literal["untrusted", "relay", "secure-sum", "trusted"]
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


def _word(value: Any) -> Any:
    """`true` and `false` are short for the highest level and the lowest; yes, no, on and off are booleans too."""
    value = word_to_bool(value)
    return trust_of(value, "") if isinstance(value, bool) else value


TrustLevel = Annotated[Trust, BeforeValidator(_word), Expect(f"one of {', '.join(TRUSTS)}, true or false")]
CloudTrust = Annotated[Literal["untrusted", "secure-sum"], Expect("one of untrusted, secure-sum")]


_DRAWN: tuple[Trust, ...] = ("trusted", "secure-sum", "relay", "untrusted")  # by a number, see `TrustSection.draw`


class TrustSection(Section):
    """How trust is drawn for an edge server that states none (H2FDP, Eq. 27).

    Attributes:
        trusted: p_c, the probability that an edge server is trusted, also called `probability`; null is 0.5, or 0 where
            one of the next two is stated.
        secure-sum: the probability that an edge server is not trusted, but learns sums alone.
        relay: the probability of a relay of masked vectors; all edge servers must be relays: `{relay: 1}`.
        exact: the numbers above are exact shares of the edge servers (of those with devices, and of those above them),
            rounded; the seed decides only which servers they are.
    """

    trusted: Probability | None = Field(default=None, validation_alias=AliasChoices("trusted", "probability"))
    secure_sum: Probability | None = Field(default=None, alias="secure-sum")
    relay: Probability | None = None
    exact: Annotated[bool, Expect("true or false")] = False

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        if self.bounds[-1] > 1:
            what = "shares" if self.exact else "probabilities"
            stated = [f"{each:g}" for each in (self.bounds[0], self.secure_sum, self.relay) if each is not None]
            raise ValueError(f"expected {what} whose sum is at most 1, found {' and '.join(stated)}")
        return self

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Between 0 and 1, below which numbers mean trusted, below which trusted or secure sums, or these or relays."""
        alone = self.secure_sum is None and self.relay is None
        trusted = self.trusted if self.trusted is not None else 0.5 if alone else 0.0
        bound = trusted + (self.secure_sum or 0.0)
        return trusted, bound, bound + (self.relay or 0.0)

    def draw(self, names: Iterable[str], streams: Streams) -> dict[str, Trust]:
        """The trust in each edge server of these names, from a number between 0 and 1 that no probability moves.

        It is trusted if the number is below `trusted`, holds secure sums if it is below the sum of both, and relays
        if it is below that of all three. So raising `trusted` takes no trust away, and raising `secure-sum` moves
        untrusted edge servers and relays only. Exact shares go by the order of the same numbers.

        >>> TrustSection(trusted=0.5, exact=True).draw(["edge-1", "edge-2", "edge-3"], Streams(1))
        {'edge-3': 'trusted', 'edge-1': 'trusted', 'edge-2': 'untrusted'}
        """
        numbers: dict[str, float] = {name: float(streams.open(name, "trust").random()) for name in names}
        bounds: Sequence[float] = self.bounds
        if self.exact:
            ordered = sorted(numbers, key=lambda name: (numbers[name], name))
            numbers = {name: place for place, name in enumerate(ordered)}
            bounds = [int(share * len(ordered) + 0.5) for share in bounds]
        return {name: _DRAWN[bisect_right(bounds, number)] for name, number in numbers.items()}
