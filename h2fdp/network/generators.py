"""Networks made to order. A new generator is one method and its name in `h2fdp.network.GENERATORS`.

Every generator gives a network as drawn under `seed`, by the same rules as a file: `regular()` equals what
topologies/paper.yaml gives under the same seed, but for its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from h2fdp.config import Section, check, empty_document
from h2fdp.config.fields import Count, Expect, Probability, Whole
from h2fdp.errors import UserError
from h2fdp.network.network import MOST_TIERS
from h2fdp.network.schema import Name, TopologyFile
from h2fdp.network.templates import MOST_DEVICES, MOST_EDGES, expand

DISTANCE_RANGE_M = [10.0, 100.0]  # ours: the paper states no distances


Tiers = Annotated[
    list[Count],
    Field(min_length=2, max_length=MOST_TIERS + 1),
    Expect(f"2 to {MOST_TIERS + 1} whole numbers of at least 1"),
]


class _Arguments(Section):
    """The arguments of generators, checked as files are."""

    edges: Count = 1
    devices: Count = 1
    tiers: Tiers | None = None
    trust: Probability
    secure_sum: Probability = 0.0
    seed: Whole
    name: Name

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        if self.trust + self.secure_sum > 1:
            raise ValueError(f"expected trust + secure_sum of at most 1, found {self.trust + self.secure_sum:g}")
        return self


class Generated:
    """The generators, as class methods of `Topology`.

    Where they have these arguments, `trust` is the probability that an edge server, of whatever tier, is trusted,
    `secure_sum` that it is not, but holds secure sums; `seed` is what trust and distances are drawn under.
    """

    @classmethod
    def regular(
        cls, edges: int = 10, devices: int = 5, trust: float = 0.5, seed: int = 1, name: str | None = None,
        secure_sum: float = 0.0,
    ) -> Self:  # fmt: skip
        """Every edge server has equally many devices, 10 to 100 m away.

        Args:
            edges: the number of edge servers N.
            devices: the number of devices of each, s_c.
            trust: the probability that an edge server is trusted, p_c.
            seed: under which trust and distances are drawn.
            name: of the network; by default ``regular-<edges>x<devices>``.
            secure_sum: the probability that an edge server is not trusted, but holds secure sums.

        Raises:
            UserError: for an argument out of its range.

        >>> from h2fdp import Topology
        >>> Topology.regular(edges=4, devices=3, trust=0.0).sizes.tolist()
        [3, 3, 3, 3]
        """
        name = name or f"regular-{edges}x{devices}"
        return cls(**_drawn(edges=edges, devices=devices, trust=trust, secure_sum=secure_sum, seed=seed, name=name))

    @classmethod
    def deep(
        cls, tiers: Sequence[int] = (2, 5, 5), trust: float = 0.5, seed: int = 1, name: str | None = None,
        secure_sum: float = 0.0,
    ) -> Self:  # fmt: skip
        """A tree of any depth in which every node has as many children as the others of its tier.

        Args:
            tiers: the number of edge servers below the cloud, of those below each of them, and so on; last the number
                of devices of each lowest one, 10 to 100 m away. Two numbers give the network of :meth:`regular`.
            trust: the probability that an edge server, of whatever tier, is trusted.
            seed: under which trust and distances are drawn.
            name: of the network; by default ``deep-<tiers>``, as ``deep-2x5x5``.
            secure_sum: the probability that an edge server is not trusted, but holds secure sums.

        Raises:
            UserError: for an argument out of its range.

        >>> from h2fdp import Topology
        >>> network = Topology.deep(tiers=(2, 3, 4))
        >>> network.depth, network.edges, network.devices, network.children("edge-2")
        (2, 6, 24, ('edge-2-1', 'edge-2-2', 'edge-2-3'))
        """
        name = name or f"deep-{'x'.join(map(str, tiers))}"
        return cls(**_drawn(tiers=list(tiers), trust=trust, secure_sum=secure_sum, seed=seed, name=name))


def _drawn(**arguments: Any) -> dict[str, Any]:
    """The attributes of a `Topology` in which every node of a tier has equally many children."""
    given = check(_Arguments, empty_document("topology", Path(), arguments))
    *above, lowest, devices = given.tiers or [given.edges, given.devices]
    servers, keys = list(accumulate([*above, lowest], mul)), ("tiers", "tiers") if given.tiers else ("edges", "devices")
    if sum(servers) > MOST_EDGES:
        raise UserError(f"expected at most {MOST_EDGES:,}, found {sum(servers):,}", "topology", keys[0])
    if (total := servers[-1] * devices) > MOST_DEVICES:
        raise UserError(f"expected at most {MOST_DEVICES:,} devices in all, found {total:,}", "topology", keys[1])
    below: dict[str, Any] = {"devices": {"count": devices, "distance_m": {"uniform": DISTANCE_RANGE_M}}}
    for count in reversed([*above, lowest]):
        below = {"edges": [{"name": "{parent}-{i}", "repeat": count, **below}]}
    below["edges"][0]["name"] = "edge-{i}"
    trust = {"trusted": given.trust, "secure-sum": given.secure_sum}
    return expand(TopologyFile.model_validate({"name": given.name, "trust": trust, **below}), given.seed)
