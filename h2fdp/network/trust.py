"""Trust in the nodes of a network: its three levels, what a topology file says, how it is drawn where that is open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from h2fdp.config.fields import Expect, Probability, Section, word_to_bool
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


def _word(value: Any) -> Any:
    """`true` and `false` are short for the highest level and the lowest; yes, no, on and off are booleans too."""
    value = word_to_bool(value)
    return trust_of(value, "") if isinstance(value, bool) else value


TrustLevel = Annotated[Trust, BeforeValidator(_word), Expect(f"one of {', '.join(TRUSTS)}, true or false")]
CloudTrust = Annotated[Literal["untrusted", "secure-sum"], Expect("one of untrusted, secure-sum")]


class TrustSection(Section):
    """How trust is drawn for an edge server that states none (H2FDP, Eq. 27).

    Attributes:
        trusted: p_c, the probability that an edge server is trusted, also called `probability`; null is 0.5, or 0 where
            `secure-sum` is stated.
        secure-sum: the probability that an edge server is not trusted, but learns sums alone.
        exact: both are shares instead: just so many of the edge servers (of those with devices, and of those above
            them), rounded, halves up. The seed decides only which ones they are.
    """

    trusted: Probability | None = Field(default=None, validation_alias=AliasChoices("trusted", "probability"))
    secure_sum: Probability | None = Field(default=None, alias="secure-sum")
    exact: Annotated[bool, Expect("true or false")] = False

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        trusted, known = self.bounds
        if known > 1:
            what = "shares" if self.exact else "probabilities"
            raise ValueError(f"expected {what} whose sum is at most 1, found {trusted:g} and {self.secure_sum:g}")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Between 0 and 1, below which numbers mean trusted, and below which trusted or secure sums."""
        trusted = self.trusted if self.trusted is not None else 0.5 if self.secure_sum is None else 0.0
        return trusted, trusted + (self.secure_sum or 0.0)

    def draw(self, names: Iterable[str], streams: Streams) -> dict[str, Trust]:
        """The trust in each edge server of these names, from a number between 0 and 1 that no probability moves.

        It is trusted if the number is below `trusted`, and holds secure sums if it is below the sum of both. So raising
        `trusted` takes no trust away, and raising `secure-sum` moves untrusted edge servers only. Exact shares go by
        the order of the same numbers.

        >>> TrustSection(trusted=0.5, exact=True).draw(["edge-1", "edge-2", "edge-3"], Streams(1))
        {'edge-3': 'trusted', 'edge-1': 'trusted', 'edge-2': 'untrusted'}
        """
        numbers: dict[str, float] = {name: float(streams.open(name, "trust").random()) for name in names}
        trusted, known = self.bounds
        if self.exact:
            ordered = sorted(numbers, key=lambda name: (numbers[name], name))
            numbers = {name: place for place, name in enumerate(ordered)}
            trusted, known = (int(share * len(ordered) + 0.5) for share in (trusted, known))
        return {
            name: "trusted" if number < trusted else "secure-sum" if number < known else "untrusted"
            for name, number in numbers.items()
        }
