"""Trust in a topology file: what an edge server states, and how it is drawn for those that state none."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from h2fdp.config.fields import Expect, Probability, Section
from h2fdp.topology.trust import TRUSTS, Trust, TrustProbabilities, TrustShares

DEFAULT_TRUST_PROBABILITY = 0.5

TrustLevel = Annotated[Trust, Expect(f"one of {', '.join(TRUSTS)}")]


class SharesSection(Section):
    """Shares of the edge servers, of two levels of trust.

    Attributes:
        trusted: the share that is trusted.
        secure-sum: the share that learns sums alone.
    """

    trusted: Probability = 0.0
    secure_sum: Probability = Field(default=0.0, alias="secure-sum")


class TrustSection(Section):
    """How trust is drawn for an edge server that states none (H2FDP, Eq. 27).

    Attributes:
        probability: that an edge server is trusted.
        trusted: with three levels, the probability that an edge server is trusted.
        secure-sum: with three levels, the probability that an edge server learns sums alone.
        share: instead of probabilities: just this share of the edge servers is trusted; or `{trusted, secure-sum}`, the
            shares of these two.
    """

    probability: Probability | None = None
    trusted: Probability | None = None
    secure_sum: Probability | None = Field(default=None, alias="secure-sum")
    share: Probability | SharesSection | None = None

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
        if isinstance(self.share, SharesSection):
            return TrustShares(self.share.trusted, self.share.secure_sum)
        return None if self.share is None else TrustShares(self.share)

    @property
    def drawn(self) -> TrustProbabilities:
        """The probabilities; trusted and secure-sum are 0 where only the other one is stated."""
        if self.trusted is None and self.secure_sum is None:
            return TrustProbabilities(DEFAULT_TRUST_PROBABILITY if self.probability is None else self.probability)
        return TrustProbabilities(self.trusted or 0.0, self.secure_sum or 0.0)
