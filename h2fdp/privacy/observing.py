"""The observers of a network, and who sees what of an upload (docs/privacy.md, table of observers)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from h2fdp.privacy.trust_model import TrustModel

Observer = str  # one of `observers`
OBSERVERS: tuple[Observer, ...] = ("edge", "peer", "cloud", "public")  # of a network of one tier


def tier_name(height: int) -> Observer:
    """What an aggregator of this height is called as an observer: it has devices, or `height - 1` tiers, below it.

    >>> tier_name(1), tier_name(3)
    ('edge', 'tier-3')
    """
    return "edge" if height == 1 else f"tier-{height}"


def height_of(observer: Observer) -> int:
    """The height of the aggregator that an observer is; 1 for those that are none.

    >>> height_of("tier-3"), height_of("edge"), height_of("cloud")
    (3, 1, 1)
    """
    name, _, height = observer.partition("-")
    return int(height) if name == "tier" and height.isdigit() else 1


def observers(depth: int = 1) -> tuple[Observer, ...]:
    """All observers in a network with this number of tiers of aggregators below the cloud.

    >>> observers(), observers(depth=3)
    (('edge', 'peer', 'cloud', 'public'), ('edge', 'tier-2', 'tier-3', 'peer', 'cloud', 'public'))
    """
    return (*(tier_name(height) for height in range(1, depth + 1)), *OBSERVERS[1:])


def observers_beside(names: Iterable[str]) -> tuple[Observer, ...]:
    """All observers of a network in which there are these; names of anything else do not matter.

    >>> observers_beside(["claimed", "cloud"]), observers_beside(["tier-2"])
    (('edge', 'peer', 'cloud', 'public'), ('edge', 'tier-2', 'peer', 'cloud', 'public'))
    """
    return observers(max(map(height_of, names), default=1))


def views(
    trust_model: TrustModel,
    heights: Sequence[int] = (1,),
    trusted: int = 0,
    passed: int = 1,
    edge_is_cloud: bool = False,
    sums: Collection[int] = (),
    cloud_sums: bool = False,
) -> dict[Observer, int]:
    """Who sees what of an upload: each observer's level, see `PlannedUpload`.

    An aggregator sees what its child sends, the vector one level below its own; one above the aggregation sees it as
    part of what that broadcast and later sent up. Edge servers that see no more than the sum of their devices' uploads
    see the subnet's average. Aggregators in the trusted chain see raw vectors, which is outside the threat model: they
    have no account, and where the cloud adds the noise that is the whole tree.

    Args:
        heights: of the aggregators above the device, from its edge server up.
        trusted: how many of them, from the first on, form its chain of trust.
        passed: how many of them average the upload: the aggregation is the last one's, or the cloud's after all.
        edge_is_cloud: the edge server is the cloud's own (a star), so that the cloud sees what an edge server would.
        sums: places in `heights`, from 1 on, of aggregators that see the sum of what their children send and nothing
            else; of edge servers the trust model says it.
        cloud_sums: the aggregation is the cloud's, which sees such a sum: then nobody sees what its children send.

    >>> views(TrustModel("device")), views(TrustModel("edge"), trusted=1)
    ({'edge': 0, 'peer': 1, 'cloud': 1, 'public': 1}, {'peer': 1, 'cloud': 1, 'public': 1})
    >>> views(TrustModel("edge"), heights=(1, 2, 3), trusted=1, passed=2)
    {'tier-2': 1, 'tier-3': 2, 'peer': 2, 'cloud': 2, 'public': 2}
    >>> views(TrustModel("device", edge_sees="sum")), views(TrustModel("cloud"))
    ({'edge': 1, 'peer': 1, 'cloud': 1, 'public': 1}, {'peer': 1, 'public': 1})
    >>> views(TrustModel("device"), heights=(1, 2), passed=2, sums={1}, cloud_sums=True)
    {'edge': 0, 'tier-2': 2, 'peer': 3, 'cloud': 3, 'public': 3}
    """
    if not trust_model.noisy:
        return {}
    if trust_model.cloud_adds_noise:
        return {"peer": passed, "public": passed}
    lowest, last = trust_model.edge_level, passed + cloud_sums
    above = {
        tier_name(height): max(lowest, min(place + (place in sums), last))
        for place, height in enumerate(heights)
        if place >= trusted
    }
    cloud = lowest if edge_is_cloud and trust_model.devices_add_noise else last
    return {**above, "peer": last, "cloud": cloud, "public": last}
