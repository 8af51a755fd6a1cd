"""Nodes on Ray actors, addressed together; a host that is lost is placed anew and asked again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from h2fdp.errors import UserError
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.capacity import GIB, Machine, Share, fitting
from h2fdp.runtime.host import Host, Whereabouts
from h2fdp.runtime.placement import Place
from h2fdp.runtime.ray_errors import gather, lost_for_good

MOST_LOSSES = 3  # of one host in a row
_SECONDS_TO_PACK = 5.0
_TIME_BELOW = 0.8  # of a host's time to answer, for the hosts that it asks: so the one that is late is named


@dataclass(frozen=True)
class Ground:
    """What every host of a run is started with.

    Attributes:
        share: what each takes of its machine.
        hosts: how many the whole run has.
        namespace: the run's own, so that hosts of two runs may have one name.
        timeout_s: how long to wait for an answer.
        group: the placement group that hosts go into, if any.
        blueprint: where Ray keeps it; None where it is not sent yet.
    """

    share: Share
    hosts: int
    namespace: str
    timeout_s: float
    group: PlacementGroup | None = None
    blueprint: Any = None


class RayTeam:
    """Hosts with the nodes of these places: one call to each host that holds any node that is asked.

    Hosts belong to the process that made their team, and end with it.
    """

    def __init__(self, places: Sequence[Place], blueprint: Blueprint, ground: Ground) -> None:
        self._blueprint = blueprint
        self._ground = ground if ground.blueprint is not None else replace(ground, blueprint=ray.put(blueprint))
        self._hosts = {place.name: _PlacedHost(place, self._ground) for place in places}
        self._owners = {node: place.name for place in places for node in place.nodes}
        self._whereabouts: dict[str, Whereabouts] = {}
        self._start(list(self._hosts))

    @property
    def whereabouts(self) -> dict[str, Whereabouts]:
        """Where each host runs now."""
        return dict(self._whereabouts)

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """See `Team.call`."""
        asked: dict[str, dict[str, Any]] = {}
        for name, item in each.items():
            asked.setdefault(self._owners[name], {})[name] = item
        answers: dict[str, Any] = {}
        while asked:
            reference = ray.put(shared)  # anew each time: what was lost may be this
            pending = {self._hosts[name].call(method, reference, part): name for name, part in asked.items()}
            found, lost = gather(pending, self._ground.timeout_s)
            for name, part in found.items():
                answers.update(part)
                self._hosts[name].losses = 0
            self._replace(lost)
            asked = {name: asked[name] for name in lost}
        return answers

    def end(self) -> None:
        """End all hosts."""
        for host in self._hosts.values():
            host.end()

    def _replace(self, lost: Mapping[str, Exception]) -> None:
        """Note the losses; start anew the hosts among them that are not just short of an object."""
        for name, error in lost.items():
            self._hosts[name].note_loss(error)
        self._start([name for name, error in lost.items() if lost_for_good(error)])

    def _start(self, names: list[str]) -> None:
        """Start hosts, all at once, until each has built its nodes."""
        while names:
            pending = {self._hosts[name].start(self._ground): name for name in names}
            found, lost = gather(pending, self._ground.timeout_s)
            self._whereabouts.update(found)
            for name, error in lost.items():
                self._hosts[name].note_loss(error)
            if not all(map(lost_for_good, lost.values())):  # the blueprint went with the machine that kept it
                self._ground = replace(self._ground, blueprint=ray.put(self._blueprint))
            names = list(lost)


class _PlacedHost:
    """One host, the actor that is it now, and how often it was lost."""

    def __init__(self, place: Place, ground: Ground) -> None:
        self.losses = 0
        self._place = place
        self._ground = ground
        self._group: PlacementGroup | None = None
        self._actor: Any = None
        self._lives = 0

    def call(self, method: str, reference: Any, part: Mapping[str, Any]) -> Any:
        """The answer to come."""
        return self._actor.call.remote(method, reference, part)

    def start(self, ground: Ground) -> Any:
        """Start the actor in the place of the one before; the answer to come is its whereabouts."""
        self.end()
        self._lives += 1
        self._ground = ground
        share = self._share()
        self._group = self._group_for_below(share)
        below = replace(ground, group=self._group, timeout_s=_TIME_BELOW * ground.timeout_s)
        self._actor = ray.remote(Host).options(**self._options(share)).remote()
        return self._actor.build.remote(
            ground.blueprint, self._place, partial(RayTeam, self._place.below, ground=below)
        )

    def note_loss(self, error: Exception) -> None:
        """Say it; too many losses in a row end the run."""
        self.losses += 1
        reason = str(error).strip().splitlines()[0]
        if self.losses > MOST_LOSSES:
            text = f"the host {self._place.name} was lost {self.losses} times in a row"
            raise UserError(f"{text}, last with: {reason}", key="runtime")
        print(f"note: lost {self._place.name} ({reason}); it is asked again", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the actor, and with it those below."""
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _share(self) -> Share:
        """A host that comes again on what is left of a cluster shares its CPUs when there are too few."""
        share = self._ground.share
        if self._lives == 1 or fitting(machines(), replace(share, gpus=0)) >= self._ground.hosts:
            return share
        return Share(0, share.gpus)

    def _group_for_below(self, share: Share) -> PlacementGroup | None:
        """Room for an edge server and its devices, on one machine where they fit there."""
        if self._place.kind != "edge" or share.cpus == 0:
            return None
        bundles = [_resources(share) for _ in self._place.all()]
        if max(share.fits(machine) for machine in machines()) >= len(bundles):
            together: PlacementGroup = placement_group(bundles, strategy="STRICT_PACK", name=self._place.name)
            if together.wait(_SECONDS_TO_PACK):
                return together
            remove_placement_group(together)
        apart: PlacementGroup = placement_group(bundles, strategy="PACK", name=self._place.name)
        return apart

    def _options(self, share: Share) -> dict[str, Any]:
        """Ray's options. Ray restarts and retries nothing: it would not build the nodes again."""
        label = self._place.label
        named = label is not None and any(label in machine.names for machine in machines())
        options: dict[str, Any] = {
            "name": self._place.name + (f"#{self._lives}" if self._lives > 1 else ""),
            "namespace": self._ground.namespace,
            "num_cpus": share.cpus,
            "num_gpus": share.gpus,
            "memory": int(share.memory_gib * GIB),
            "resources": {label: 0.0001} if named else {},
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        group = self._group or self._ground.group
        if group is not None and share.cpus > 0:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group)
        return options


def _resources(share: Share) -> dict[str, float]:
    named = {"CPU": share.cpus, "GPU": share.gpus, "memory": share.memory_gib * GIB}
    return {name: amount for name, amount in named.items() if amount > 0}


def machines() -> list[Machine]:
    """The machines of the cluster that are alive."""
    found = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            there = node["Resources"]
            cpus, gpus, memory = there.get("CPU", 0.0), there.get("GPU", 0.0), there.get("memory", 0.0) / GIB
            found.append(Machine(cpus, gpus, memory, frozenset(there)))
    return found
