"""Placement of a run: the section `runtime:`, the nodes of each host, a host's share of its machine.

Asking for more hosts than fit fails at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from h2fdp.config.fields import LARGEST_INTEGER, Expect, Section
from h2fdp.errors import UserError
from h2fdp.network import CLOUD, Topology
from h2fdp.training.engine import EngineName
from h2fdp.wording import note

IN_ONE_PROCESS = "compute in one process: --set runtime.backend=inline"


def require_ray() -> None:
    """Refuse settings that need Ray where it is not installed.

    Raises:
        UserError: it is not.
    """
    if find_spec("ray") is None:
        raise UserError(f"Ray is not installed; run pip install ray, or {IN_ONE_PROCESS}", key="runtime.backend")


MOST_THREADS = 1024  # of an inline run
Hosts = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
Cpus = Annotated[float, Field(ge=0.0001, le=10_000)]


def _reachable(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if value != "auto" and not (host and colon and "/" not in value and port.isdigit()):
        raise ValueError(
            f'expected auto or HOST:PORT, found "{value}"'
            + ("; start h2fdp on a machine of the cluster instead of through Ray Client" if "://" in value else "")
        )
    if value != "auto" and int(port) > 65535:
        raise ValueError(f"expected a port of at most 65535, found {port}")
    return value


Address = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_reachable)]


class RuntimeSection(Section):
    """`runtime:`; what contradicts itself is refused, not ignored.

    Attributes:
        backend: `inline`, this process; `ray`, Ray actors; `auto`, inline unless another key asks for Ray.
        placement: which nodes share a host: whole subnets are `packed`, and those too large for one host are split; a
            host for each `subnet`, or for each `entity` (device, edge server, cloud).
        hosts: the number of Ray actors, or of threads with `inline`; `auto` is one for each CPU.
        cpus_per_host: CPUs that Ray keeps for a host; `auto` is 1 for `packed`, otherwise an even share of all.
        gpus_per_host: GPUs of a host; may be a fraction.
        address: address of a running Ray cluster, HOST:PORT, or `auto` on one of its machines; null starts one.
        engine: the code that trains devices; `auto` chooses by the experiment alone.
        checkpoint_every: intervals between checkpoints; 60 seconds, if these are sooner.
    """

    backend: Literal["auto", "inline", "ray"] = "auto"
    placement: Literal["packed", "subnet", "entity"] = "packed"
    hosts: Annotated[Literal["auto"] | Hosts, Expect("auto or a whole number of at least 1")] = "auto"
    cpus_per_host: Annotated[Literal["auto"] | Cpus, Expect("auto or a number from 0.0001 to 10000")] = "auto"
    gpus_per_host: Annotated[float, Field(ge=0, le=64), Expect("a number from 0 to 64")] = 0
    address: Annotated[Address | None, Expect("null, auto or HOST:PORT")] = None
    engine: Literal["auto", EngineName] = "auto"
    checkpoint_every: Annotated[int, Field(ge=1, le=LARGEST_INTEGER), Expect("a whole number of at least 1")] = 10

    @field_validator("placement", "address", mode="after")
    @classmethod
    def _not_inline(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("backend") == "inline" and value not in ("packed", None):
            raise ValueError(f'backend: inline is one process and has no {info.field_name}, found "{value}"')
        return value

    @field_validator("hosts", mode="after")
    @classmethod
    def _possible(cls, value: Any, info: ValidationInfo) -> Any:
        placement = info.data.get("placement")
        if value != "auto" and placement in ("subnet", "entity"):
            raise ValueError(f"expected auto with placement: {placement}, which has as many as nodes, found {value}")
        if info.data.get("backend") == "inline" and value != "auto" and value > MOST_THREADS:
            raise ValueError(f"expected at most {MOST_THREADS} threads with backend: inline, found {value}")
        return value


def inline_workers(section: RuntimeSection) -> int:
    """Threads of an inline run: `hosts`, by default one for each CPU that this process may use."""
    return usable_cpus() if section.hosts == "auto" else section.hosts


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def chosen_backend(section: RuntimeSection) -> Literal["inline", "ray"]:
    """`auto` is inline unless hosts, what a host takes, an address or a placement other than packed ask for Ray."""
    if section.backend != "auto":
        return section.backend
    asks_for_ray = (
        section.hosts not in ("auto", 1)
        or section.cpus_per_host not in ("auto", 1)
        or section.gpus_per_host > 0
        or section.address is not None
        or section.placement != "packed"
    )
    return "ray" if asks_for_ray else "inline"


def training_device(section: RuntimeSection) -> torch.device:
    """A GPU where one is asked for and there is one; else the CPU, with a message."""
    if section.gpus_per_host > 0 and not torch.cuda.is_available():
        note("runtime.gpus_per_host requests a GPU, but torch finds none here; training on CPUs")
    return torch.device("cuda" if section.gpus_per_host > 0 and torch.cuda.is_available() else "cpu")


Kind = Literal["subnets", "edge", "device", "cloud"]


@dataclass(frozen=True)
class Share:
    """Devices of a subnet that are on another host than its other devices.

    Attributes:
        name: of the group that they are; with a tab, which no name of a node has.
        number: of the subnet.
        rows: of the devices within it.
    """

    name: str
    number: int
    rows: range


@dataclass(frozen=True)
class HostSpec:
    """One host, and the hosts whose nodes it calls.

    Attributes:
        name: how the host is called in messages and on Ray's dashboard, as `edge:library`.
        kind: subnets (edge servers with their devices) and shares of subnets, or one node alone.
        nodes: names of the nodes that are called on it; on the cloud's, also of the edge servers, which it asks.
        numbers: of the subnets that it holds whole, or that its node belongs to.
        shares: what it holds of other subnets.
        below: the hosts of the nodes that its node calls.
    """

    name: str
    kind: Kind
    nodes: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    shares: tuple[Share, ...] = ()
    below: tuple[HostSpec, ...] = ()

    def all(self) -> Iterator[HostSpec]:
        """This host and every one below it."""
        yield self
        for spec in self.below:
            yield from spec.all()


def packed(sizes: np.ndarray, hosts: int) -> list[tuple[list[int], list[tuple[int, range]]]]:
    """The whole subnets of each host, neighbours together, and (subnet, rows) of its devices of subnets that are split.

    A subnet is split evenly over all hosts where it has more devices than one and a half of them should have. Whole
    subnets and shares take turns on the hosts, so both are balanced, each by itself.

    Args:
        sizes: (N,) devices of each subnet.
        hosts: at most that many are used; none is left empty.

    >>> packed(np.array([5, 5, 5, 5]), hosts=2)
    [([0, 1], []), ([2, 3], [])]
    >>> packed(np.array([8, 1, 1]), hosts=2)
    [([1], [(0, range(0, 4))]), ([2], [(0, range(4, 8))])]
    """
    large = (sizes * hosts >= 1.5 * sizes.sum()) & (sizes > 1)
    whole, first = np.where(large, 0, sizes), 0
    middle = np.cumsum(whole) - whole / 2
    owner = np.minimum((middle * hosts / max(1, whole.sum())).astype(int), hosts - 1)
    found: list[tuple[list[int], list[tuple[int, range]]]] = [
        (np.flatnonzero(~large & (owner == host)).tolist(), []) for host in range(hosts)
    ]
    for number in np.flatnonzero(large).tolist():
        parts = min(hosts, size := int(sizes[number]))
        for at in range(parts):
            rows = range(at * size // parts, (at + 1) * size // parts)
            found[(first + at) % hosts][1].append((number, rows))
        first += parts
    return [each for each in found if any(each)]


def _subnets(topology: Topology, name: str, numbers: list[int], split: Sequence[tuple[int, range]] = ()) -> HostSpec:
    names = [subnet.name for subnet in topology.subnets]
    shares = tuple(Share(f"{names[at]}\t{rows.start + 1}-{rows.stop}", at, rows) for at, rows in split)
    nodes = *(names[number] for number in numbers), *(share.name for share in shares)
    return HostSpec(name, "subnets", nodes, tuple(numbers), shares)


def _place_for_each_node(topology: Topology, hosts: int) -> list[HostSpec]:
    edges = []
    for number, subnet in enumerate(topology.subnets):
        devices = tuple(
            HostSpec(f"device:{name}", "device", (name,), (number,), (Share(name, number, range(row, row + 1)),))
            for row, name in enumerate(subnet.device_names())
        )
        edges.append(HostSpec(f"edge:{subnet.name}", "edge", (subnet.name,), (number,), below=devices))
    names = (subnet.name for subnet in topology.subnets)
    return [HostSpec("cloud", "cloud", (CLOUD, *names), below=tuple(edges))]


PLACEMENTS: dict[str, Callable[[Topology, int], list[HostSpec]]] = {
    "packed": lambda topology, hosts: [
        _subnets(topology, f"host:{at}", *each) for at, each in enumerate(packed(topology.sizes, hosts))
    ],
    "subnet": lambda topology, hosts: [
        _subnets(topology, f"edge:{subnet.name}", [at]) for at, subnet in enumerate(topology.subnets)
    ],
    "entity": _place_for_each_node,
}


def smallest_number_of_hosts(placement: str, topology: Topology) -> int:
    """The number of hosts of a placement when `hosts` is 1: all of them, where the topology says how many."""
    return {"packed": 1, "subnet": topology.edges, "entity": 1 + topology.edges + topology.devices}[placement]


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
    """The resources that one host takes; 0 of those that it does not ask for."""

    cpus: float
    gpus: float = 0

    def fits(self, machine: Machine) -> int:
        """The number of such hosts that fit on a machine."""
        wanted = ((self.cpus, machine.cpus), (self.gpus, machine.gpus))
        return min(int(there / asked + _ROUNDING) for asked, there in wanted if asked > 0)


def fitting(machines: Sequence[Machine], share: HostResources) -> int:
    """The number of hosts of this share that fit on all machines; a host does not span two.

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
    """The resources that a host takes.

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
    """The number of hosts to start where `runtime.hosts` counts them; `auto` is as many as fit on the free CPUs.

    Args:
        smallest: how many hosts the placement has when `hosts` is 1.

    Raises:
        UserError: more was asked for than there is; the message states both.
    """
    _check_gpus(section, machines, share)
    cpus = sum(machine.cpus for machine in machines)
    capacity = f"{_have(section, machines)} {cpus:g} CPUs"
    most = fitting(machines, share)
    if most < 1:
        largest = max(machine.cpus for machine in machines)
        text = f"hosts of {share.cpus:g} CPUs were requested, {capacity}"
        raise UserError(f"{text}; expected at most {largest:g}", key="runtime.cpus_per_host")
    asked = smallest if section.hosts == "auto" else smallest - 1 + section.hosts
    if asked > most:
        key, right = "runtime.hosts", f"at most {most - smallest + 1}"
        if most < smallest:
            key, right = "runtime.cpus_per_host", f"at most {even_cpus(machines, smallest):.4g}"
        text = f"{asked} hosts of {share.cpus:g} CPUs were requested, {capacity}"
        raise UserError(f"{text}; expected {right}", key=key)
    _check_processes(section, machines, asked)
    if section.hosts != "auto":
        return section.hosts
    unused = most if free is None else min(most, int(free / share.cpus + _ROUNDING))
    return max(1, unused - smallest + 1)


def _have(section: RuntimeSection, machines: Sequence[Machine]) -> str:
    """The owner of the CPUs, as a subject and verb: this machine, the one of a cluster, or several."""
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
