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

import numpy as np
from pydantic import Field, model_validator

from h2fdp.config import Section, check, empty_document
from h2fdp.config.fields import Count, Expect, Positive, Probability, Whole
from h2fdp.errors import UserError
from h2fdp.network.devices import NEAREST_M, Floats
from h2fdp.network.network import MOST_TIERS, TrustSection
from h2fdp.network.schema import DevicesSection, EdgeSection, Name, TopologyFile, UpperEdgeSection
from h2fdp.network.templates import DRAWN_DECIMALS, MOST_DEVICES, MOST_EDGES, expand
from h2fdp.streams import Streams

_LAYOUT = "layout"
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
    tiers: Tiers = Field(default=[1, 1])
    trust: Probability
    secure_sum: Probability = 0.0
    seed: Whole
    name: Name
    side_m: Positive = 1.0

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        if self.trust + self.secure_sum > 1:
            raise ValueError(f"expected trust + secure_sum of at most 1, found {self.trust + self.secure_sum:g}")
        return self

    def network(self, edges: Sequence[EdgeSection | UpperEdgeSection]) -> dict[str, Any]:
        """The attributes of the `Topology` with these edge servers."""
        trust = TrustSection.model_validate({"trusted": self.trust, "secure-sum": self.secure_sum})
        return expand(TopologyFile(name=self.name, trust=trust, edges=list(edges)), self.seed)


class Generated:
    """The generators, as class methods of `Topology`.

    Where they have these arguments, `trust` is the probability that an edge server, of whatever tier, is trusted,
    `secure_sum` that it is not, but holds secure sums; `seed` is what trust, distances and positions are drawn under.
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
        given = _checked(edges=edges, devices=devices, trust=trust, secure_sum=secure_sum, seed=seed, name=name)
        return cls(**_alike([given.edges, given.devices], given))

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
        given = _checked(tiers=list(tiers), trust=trust, secure_sum=secure_sum, seed=seed, name=name)
        return cls(**_alike(given.tiers, given))

    @classmethod
    def config1(
        cls, edges: int = 10, trust: float = 0.5, seed: int = 1, name: str | None = None, secure_sum: float = 0.0
    ) -> Self:
        """Config. 1 of H2FDP, Sec. 6.3.2: subnets of 5 devices; there are 2 to 10 of them.

        >>> from h2fdp import Topology
        >>> [Topology.config1(edges).devices for edges in (2, 4, 6, 8, 10)]
        [10, 20, 30, 40, 50]
        """
        return cls.regular(edges, 5, trust, seed, name or f"config1-{edges}", secure_sum)

    @classmethod
    def config2(
        cls, devices: int = 25, trust: float = 0.5, seed: int = 1, name: str | None = None, secure_sum: float = 0.0
    ) -> Self:
        """Config. 2 of H2FDP, Sec. 6.3.2: two subnets; each has 5 to 25 devices.

        >>> from h2fdp import Topology
        >>> [Topology.config2(devices).devices for devices in (5, 10, 15, 20, 25)]
        [10, 20, 30, 40, 50]
        """
        return cls.regular(2, devices, trust, seed, name or f"config2-{devices}", secure_sum)

    @classmethod
    def star(cls, devices: int = 50, seed: int = 1, name: str | None = None) -> Self:
        """One untrusted edge server with all devices: a network without a hierarchy.

        >>> from h2fdp import Topology
        >>> [subnet.size for subnet in Topology.star(devices=7).subnets]
        [7]
        """
        return cls.regular(1, devices, 0.0, seed, name or f"star-{devices}")

    @classmethod
    def geometric(
        cls, edges: int = 10, devices: int = 5, trust: float = 0.5, side_m: float = 500.0, seed: int = 1,
        name: str | None = None, secure_sum: float = 0.0,
    ) -> Self:  # fmt: skip
        """Edge servers and devices at random in a square; each device joins the nearest edge server.

        Args:
            edges: the number of edge servers.
            devices: the mean number of devices of each; the network has edges x devices in all.
            trust: the probability that an edge server is trusted.
            side_m: the length of the square's side, in metres.
            seed: under which positions and trust are drawn.
            name: of the network; by default ``geometric-<edges>x<devices>``.
            secure_sum: the probability that an edge server is not trusted, but holds secure sums.

        >>> from h2fdp import Topology
        >>> network = Topology.geometric(edges=4, devices=10)
        >>> network.devices, bool((network.sizes >= 1).all())
        (40, True)
        """
        arguments = {"edges": edges, "devices": devices, "trust": trust, "secure_sum": secure_sum, "seed": seed}
        given = _checked(**arguments, side_m=side_m, name=name or f"geometric-{edges}x{devices}")
        placed = enumerate(_placed(given.edges, given.devices, given.side_m, given.seed), start=1)
        sections = [
            EdgeSection.model_validate({"name": f"edge-{number}", "devices": {"count": len(at), "distance_m": at}})
            for number, at in placed
        ]
        return cls(**given.network(sections))


def _alike(tiers: Sequence[int], given: _Arguments) -> dict[str, Any]:
    """Every node of a tier has equally many children; `tiers` as `deep` takes them."""
    *above, lowest, devices = tiers
    name = "{parent}-{i}" if above else "edge-{i}"
    devices_of_each = DevicesSection.model_validate({"count": devices, "distance_m": {"uniform": DISTANCE_RANGE_M}})
    section: EdgeSection | UpperEdgeSection = EdgeSection(name=name, repeat=lowest, devices=devices_of_each)
    for position in reversed(range(len(above))):
        name = "{parent}-{i}" if position > 0 else "edge-{i}"
        section = UpperEdgeSection(name=name, repeat=above[position], edges=[section])
    return given.network([section])


def _checked(**arguments: Any) -> _Arguments:
    given = check(_Arguments, empty_document("topology", Path(), arguments))
    servers = list(accumulate(given.tiers[:-1], mul)) if "tiers" in arguments else [given.edges]
    devices = servers[-1] * (given.tiers[-1] if "tiers" in arguments else given.devices)
    keys = ("tiers", "tiers") if "tiers" in arguments else ("edges", "devices")
    if sum(servers) > MOST_EDGES:
        raise UserError(f"expected at most {MOST_EDGES:,}, found {sum(servers):,}", "topology", keys[0])
    if devices > MOST_DEVICES:
        raise UserError(f"expected at most {MOST_DEVICES:,} devices in all, found {devices:,}", "topology", keys[1])
    return given


def _placed(edges: int, devices: int, side_m: float, seed: int) -> list[list[float]]:
    """The distances of the devices of edge servers placed uniformly in a square of side `side_m`, in metres.

    Of edges x devices devices, one for each edge server is placed uniformly in the largest disc around it that its cell
    is sure to hold, so that no edge server is without devices; all others uniformly in the square. Each joins the
    nearest edge server, and its distance is the real one, but at least 1 m.
    """
    from sklearn.neighbors import KDTree  # 1 s, for those who place networks

    streams = Streams(seed)
    servers = streams.open(_LAYOUT, "edge servers").random((edges, 2)) * side_m
    free = streams.open(_LAYOUT, "devices").random((edges * (devices - 1), 2)) * side_m
    tree = KDTree(servers)
    apart = tree.query(servers, k=2)[0][:, 1] if edges > 1 else np.array([side_m])
    joined = tree.query(free)[1][:, 0] if len(free) else np.zeros(0, dtype=np.int64)
    positions = np.concatenate([_near(servers, apart, streams), free])
    owners = np.concatenate([np.arange(edges), joined])
    distances = np.round(np.linalg.norm(positions - servers[owners], axis=1), DRAWN_DECIMALS).clip(min=NEAREST_M)
    order = np.argsort(owners, kind="stable")
    bounds = np.cumsum(np.bincount(owners, minlength=edges))[:-1]
    return [of_edge.tolist() for of_edge in np.split(distances[order], bounds)]


def _near(servers: Floats, apart: Floats, streams: Streams) -> Floats:
    """(m, 2) a point in each server's cell: within half the distance to the next server."""
    uniform = streams.open(_LAYOUT, "first devices").random((len(servers), 2))
    angle, reach = 2 * np.pi * uniform[:, 0], apart / 2 * np.sqrt(uniform[:, 1])
    return servers + np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
