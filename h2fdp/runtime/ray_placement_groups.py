"""Resources of the machines of a Ray cluster, and placement groups for subnets that should stay together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from h2fdp.runtime.capacity import GIB, HostResources, Machine
from h2fdp.runtime.host_placement import HostSpec

_SECONDS_TO_PACK = 5.0


def machines() -> list[Machine]:
    """The machines of the cluster that are alive."""
    found = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            there = node["Resources"]
            cpus, gpus, memory = there.get("CPU", 0.0), there.get("GPU", 0.0), there.get("memory", 0.0) / GIB
            found.append(Machine(cpus, gpus, memory))
    return found


@contextmanager
def placement_groups(places: Sequence[HostSpec], share: HostResources) -> Iterator[Mapping[str, PlacementGroup]]:
    """Edge server's place -> room for it and its devices, for as long as the context lasts.

    The driver keeps them, and not the host above: Ray frees those of a lost host with the whole job only.
    """
    groups: dict[str, PlacementGroup] = {}
    try:
        for place in places:
            for each in place.all():
                if each.kind == "edge":
                    groups[each.name] = _placement_group(each, share)
        yield groups
    finally:
        for group in groups.values():
            remove_placement_group(group)


def _placement_group(edge: HostSpec, share: HostResources) -> PlacementGroup:
    """On one machine where they fit there, else on few."""
    amounts = {"CPU": share.cpus, "GPU": share.gpus}
    bundles = [{name: amount for name, amount in amounts.items() if amount > 0} for _ in edge.all()]
    if max(share.fits(machine) for machine in machines()) >= len(bundles):
        together: PlacementGroup = placement_group(bundles, strategy="STRICT_PACK", name=edge.name)
        if together.wait(_SECONDS_TO_PACK):
            return together
        remove_placement_group(together)
    apart: PlacementGroup = placement_group(bundles, strategy="PACK", name=edge.name)
    return apart
