"""What a cluster's machines have, what a host takes of it, and how many hosts fit; asking for more fails at once.

Subnets that should stay together get placement groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from h2fdp.errors import UserError
from h2fdp.runtime.host_placement import HostSpec
from h2fdp.runtime.section import RuntimeSection

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


GIB = 2**30
HOST_GIB = 0.17  # of a process that has imported torch, without records
_GRAIN = 1e-4  # Ray's smallest part of a CPU
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster."""

    cpus: float
    gpus: float = 0
    memory_gib: float = float("inf")


@dataclass(frozen=True)
class HostResources:
    """What one host takes; 0 of what it does not ask for."""

    cpus: float
    gpus: float = 0

    def fits(self, machine: Machine) -> int:
        """How many such hosts fit on a machine."""
        wanted = ((self.cpus, machine.cpus), (self.gpus, machine.gpus))
        return min(int(there / asked + _ROUNDING) for asked, there in wanted if asked > 0)


def fitting(machines: Sequence[Machine], share: HostResources) -> int:
    """How many hosts of this share fit on all machines; a host does not span two.

    >>> fitting([Machine(cpus=3), Machine(cpus=1)], HostResources(cpus=2))
    1
    """
    return sum(share.fits(machine) for machine in machines)


def even_cpus(machines: Sequence[Machine], hosts: int) -> float:
    """The largest number of CPUs up to 1 of which `hosts` hosts fit.

    >>> even_cpus([Machine(cpus=1), Machine(cpus=1)], hosts=7)
    0.25
    """
    cpus = min(1.0, sum(machine.cpus for machine in machines) / hosts)
    while cpus >= _GRAIN and fitting(machines, HostResources(cpus)) < hosts:
        cpus = max(machine.cpus / (HostResources(cpus).fits(machine) + 1) for machine in machines)
    return max(int(cpus / _GRAIN + _ROUNDING) * _GRAIN, _GRAIN)


def shares(section: RuntimeSection, machines: Sequence[Machine], smallest: int) -> HostResources:
    """What a host takes.

    Args:
        smallest: how many hosts there are at least, which `auto` has room for.
    """
    gpus = section.gpus_per_host if any(machine.gpus for machine in machines) else 0  # without a GPU the run uses CPUs
    cpus = section.cpus_per_host
    if cpus == "auto":
        cpus = 1.0 if section.placement == "packed" else even_cpus(machines, smallest)
    return HostResources(cpus, gpus)


def number_of_hosts(
    section: RuntimeSection, machines: Sequence[Machine], share: HostResources, smallest: int, free: float | None = None
) -> int:
    """How many hosts to start where `runtime.hosts` counts them; `auto` is as many as fit on the free CPUs.

    Args:
        smallest: how many hosts the placement has when `hosts` is 1.

    Raises:
        UserError: more was asked for than there is; the message states both.
    """
    _check_gpus(section, machines, share)
    cpus = sum(machine.cpus for machine in machines)
    there = f"{_have(section, machines)} {cpus:g} CPUs"
    most = fitting(machines, share)
    if most < 1:
        largest = max(machine.cpus for machine in machines)
        text = f"hosts of {share.cpus:g} CPUs were requested, {there}"
        raise UserError(f"{text}; expected at most {largest:g}", key="runtime.cpus_per_host")
    asked = smallest if section.hosts == "auto" else smallest - 1 + section.hosts
    if asked > most:
        key, right = "runtime.hosts", f"at most {most - smallest + 1}"
        if most < smallest:
            key, right = "runtime.cpus_per_host", f"at most {even_cpus(machines, smallest):.4g}"
        text = f"{asked} hosts of {share.cpus:g} CPUs were requested, {there}"
        raise UserError(f"{text}; expected {right}", key=key)
    _check_processes(section, machines, asked)
    if section.hosts != "auto":
        return section.hosts
    unused = most if free is None else min(most, int(free / share.cpus + _ROUNDING))
    return max(1, unused - smallest + 1)


def _have(section: RuntimeSection, machines: Sequence[Machine]) -> str:
    """Who has so many: this machine, the one of a cluster, or several."""
    if len(machines) > 1:
        return f"{len(machines)} machines have"
    return "this machine has" if section.address is None else f"the machine of the cluster at {section.address} has"


def _check_gpus(section: RuntimeSection, machines: Sequence[Machine], share: HostResources) -> None:
    if share.gpus == 0:
        return
    gpus = sum(machine.gpus for machine in machines)
    sharing = fitting(machines, HostResources(0, share.gpus))
    if sharing < 1 or (section.hosts != "auto" and section.hosts > sharing):
        text = f"hosts of {section.gpus_per_host:g} GPUs were requested, {_have(section, machines)} {gpus:g} GPUs"
        raise UserError(f"{text}; at most {sharing} such hosts fit", key="runtime.gpus_per_host")


def _check_processes(section: RuntimeSection, machines: Sequence[Machine], hosts: int) -> None:
    """CPUs can be shared by ever more hosts, memory cannot."""
    memory = sum(machine.memory_gib for machine in machines)
    if hosts * HOST_GIB > memory:
        text = f"{hosts} hosts take at least {HOST_GIB} GiB each, and {memory:.3g} GiB are available"
        raise UserError(f"{text}; expected at most {int(memory / HOST_GIB)} hosts", key="runtime.placement")
