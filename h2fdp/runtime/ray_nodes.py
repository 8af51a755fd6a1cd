"""A run's hosts on Ray, and their nodes, called together; a lost host is recreated and its work repeated.

A wait for hosts can end in four ways: an answer, a loss, a mistake, silence.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import Tensor

from h2fdp.errors import UserError
from h2fdp.protocol import NodeGroup
from h2fdp.records.log import about
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.host import Host, HostLocation, split_servers
from h2fdp.runtime.placement import (
    GIB,
    PLACEMENTS,
    HostResources,
    HostSpec,
    Machine,
    RuntimeSection,
    number_of_hosts,
    shares,
    smallest_number_of_hosts,
)
from h2fdp.runtime.ray_session import ray_session
from h2fdp.wording import counted, note

_log = logging.getLogger(__name__)
TIMEOUT_S = 1800.0  # without an answer from a host; then the run stops and names it


@contextmanager
def ray_nodes(blueprint: Blueprint, section: RuntimeSection) -> Iterator[NodeGroup]:
    """The run's edge servers on hosts that end with the context.

    Raises:
        UserError: no cluster at the address; more was asked for than there is; a host was lost too often or is late.
    """
    with ray_session(section.address, blueprint.data_bytes):
        cluster = machines()
        smallest = smallest_number_of_hosts(section.placement, blueprint.topology)
        share = shares(section, cluster, smallest)
        free = ray.available_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
        hosts = number_of_hosts(section, cluster, share, smallest, free)
        specs = PLACEMENTS[section.placement](blueprint.topology, hosts)
        with placement_groups(specs, share) as groups:
            settings = HostSettings(share, f"h2fdp-{secrets.token_hex(4)}", TIMEOUT_S, groups)
            nodes = RayNodes(specs, blueprint, settings)
            try:
                yield nodes
            finally:
                nodes.end()


def machines() -> list[Machine]:
    """The machines of the cluster that are alive."""
    cluster = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            units = node["Resources"]
            cpus, gpus, memory = units.get("CPU", 0.0), units.get("GPU", 0.0), units.get("memory", 0.0) / GIB
            cluster.append(Machine(cpus, gpus, memory))
    return cluster


@contextmanager
def placement_groups(specs: Sequence[HostSpec], share: HostResources) -> Iterator[Mapping[str, PlacementGroup]]:
    """Name of an edge server's host -> room for it and its devices, for as long as the context lasts.

    The driver keeps them, and not the host above: Ray frees those of a lost host with the whole job only.
    """
    edges = [each for spec in specs for each in spec.all() if each.kind == "edge"]
    amounts = {"CPU": share.cpus, "GPU": share.gpus}
    bundle = {name: amount for name, amount in amounts.items() if amount > 0}
    # "PACK": on one machine where they fit there, else on few.
    groups = {edge.name: placement_group([bundle] * (1 + len(edge.below)), "PACK", name=edge.name) for edge in edges}
    try:
        yield groups
    finally:
        for group in groups.values():
            remove_placement_group(group)


_HOST_LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.ActorPlacementGroupRemoved,
    ray.exceptions.OutOfMemoryError,
)
_OBJECT_LOST = (ray.exceptions.ObjectLostError,)
_MOST_NAMES = 10


def gather(pending: Mapping[Any, str], timeout_s: float) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Wait for all, once; the answers by host, and what the others were lost with.

    Args:
        pending: answer to come -> host.

    Raises:
        UserError: a host was silent for `timeout_s`, or a user's mistake came up on one.
    """
    done, late = ray.wait(list(pending), num_returns=len(pending), timeout=timeout_s)
    if late:
        names = [pending[reference] for reference in late]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        text = f"no answer within {timeout_s:g} s from {', '.join(names[:_MOST_NAMES])}{more}"
        raise UserError(f"{text}; {_free_cpus()}", key="runtime")
    answers: dict[str, Any] = {}
    lost: dict[str, Exception] = {}
    for reference in done:
        try:
            answers[pending[reference]] = ray.get(reference, timeout=timeout_s)
        except ray.exceptions.RayError as error:
            lost[pending[reference]] = _loss(error)
    return answers, lost


def lost_for_good(error: Exception) -> bool:
    """Whether the host is gone, and not only an object that it was sent or answered with."""
    return isinstance(error, _HOST_LOST)


def _loss(error: ray.exceptions.RayError) -> Exception:
    """The loss that an error reports; anything else is raised, a user's mistake as a `UserError`."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    if isinstance(cause, UserError):
        for problem in cause.problems:
            if problem.trace:  # what raised it stayed on the host
                cause.add_note(problem.trace)
        raise cause from None
    if isinstance(cause, _HOST_LOST + _OBJECT_LOST) and not getattr(cause, "actor_init_failed", False):
        return cause
    raise error


def _tell_of_wait(pending: Mapping[Any, str], share: HostResources) -> None:
    """Say it, after some seconds, where hosts wait for CPUs that others use."""
    _, waiting = ray.wait(list(pending), num_returns=len(pending), timeout=_SECONDS_TO_FIND_ROOM)
    free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    if waiting and free < share.cpus:
        note(f"waiting for {counted(len(waiting), 'host')}: each takes {share.cpus:g} CPU; {_free_cpus()}")


def _free_cpus() -> str:
    cpus = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    return f"{free:g} of the cluster's {cpus:g} CPUs are free"


MOST_LOSSES = 3  # of one host in a row
_SECONDS_TO_FIND_ROOM = 20.0  # that a host gets which comes again; a process that imports torch takes a few of them
_TIME_BELOW = 0.8  # of a host's time to answer, for the hosts that it asks: so the one that is late is named


@dataclass(frozen=True)
class HostSettings:
    """The settings with which every host of a run is started.

    Attributes:
        share: what each takes of its machine.
        namespace: the run's own, so that hosts of two runs may have one name.
        timeout_s: how long to wait for an answer.
        groups: name of a host -> the placement group that its host goes into; an edge server's is its devices' too.
        blueprint: where Ray keeps it; None where it is not sent yet.
    """

    share: HostResources
    namespace: str
    timeout_s: float
    groups: Mapping[str, PlacementGroup] = field(default_factory=dict)
    blueprint: Any = None


class RayNodes:
    """Hosts by these specs: one call to each host that holds any node that is asked.

    Hosts belong to the process that made their nodes, and end with it.
    """

    def __init__(self, specs: Sequence[HostSpec], blueprint: Blueprint, settings: HostSettings) -> None:
        self._blueprint = blueprint
        self._settings = settings if settings.blueprint is not None else replace(settings, blueprint=ray.put(blueprint))
        self._hosts = {spec.name: _PlacedHost(spec) for spec in specs}
        self._owners = {node: spec.name for spec in specs for node in spec.nodes}
        self.lost: list[tuple[str, str]] = []  # hosts and reasons, of those below too
        self.has_cloud = any(spec.kind == "cloud" for spec in specs)
        self._locations: dict[str, HostLocation] = {}
        self._split = split_servers(blueprint, specs, self)
        self._start(list(self._hosts))

    @property
    def locations(self) -> dict[str, HostLocation]:
        """The place where each host runs now."""
        return dict(self._locations)

    @property
    def kinds(self) -> dict[str, str]:
        """Host -> what it computes with, of these hosts and those below them."""
        return {name: kind for each in self._locations.values() for name, kind in each.kinds.items()}

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        asked: dict[str, dict[str, Any]] = {}
        answers = {name: getattr(self._split[name], method)(shared, each[name]) for name in each if name in self._split}
        for name, item in each.items():
            if name not in self._split:
                asked.setdefault(self._owners[name], {})[name] = item
        while asked:
            reference = ray.put(shared)  # at every attempt: the lost object may be this one
            pending = {
                self._hosts[name].actor.call.remote(method, reference, part): name for name, part in asked.items()
            }
            reply, lost = gather(pending, self._settings.timeout_s)
            for name, (part, lost_below) in reply.items():
                answers.update(part)
                self._hosts[name].losses = 0
                for loss in lost_below:
                    self._tell(*loss)
            self._replace(lost)
            asked = {name: asked[name] for name in lost}
        return answers

    def add_up(self, method: str, shared: Any, each: Mapping[str, Any]) -> Tensor:
        """The sum, which goes from host to host, each of which adds its own; from the start where one was lost."""
        while True:
            reference, pending, name = ray.put(shared), dict[Any, str](), ""
            before: Sequence[Any] = ()
            for name, item in each.items():
                ask = self._hosts[self._owners[name]].actor.add_up.options(num_returns=2)
                done, total = ask.remote(method, reference, {name: item}, partial(_sum_before, before))
                pending[done], before = self._owners[name], (total,)
            failures, lost = gather(pending, self._settings.timeout_s)
            if not lost and not any(failures.values()):
                found, lost = gather({total: self._owners[name]}, self._settings.timeout_s)
                for host in found and failures:
                    self._hosts[host].losses = 0
                if found:
                    return cast("Tensor", found[self._owners[name]])
            self._replace(lost or {host: LookupError(why) for host, why in failures.items() if why})

    def end(self) -> None:
        """End all hosts."""
        for host in self._hosts.values():
            host.end()

    def _replace(self, lost: Mapping[str, Exception]) -> None:
        """Note the losses; restart the hosts among them that are not just short of an object."""
        for name, error in lost.items():
            _check_repeats(name, self._blueprint)
            self._tell(name, self._hosts[name].note_loss(error))
        self._start([name for name, error in lost.items() if lost_for_good(error)], again=True)

    def _tell(self, name: str, reason: str) -> None:
        self.lost.append((name, reason))
        _log.warning("failure", extra=about(node=name, error=reason, note=f"lost {name}; its work is repeated"))

    def _start(self, names: list[str], again: bool = False) -> None:
        """Start hosts, all at once, until each has built its nodes."""
        while names:
            pending = {self._hosts[name].start(self._settings, self._settings.share): name for name in names}
            if again:
                pending = self._with_room(pending)
            else:
                _tell_of_wait(pending, self._settings.share)
            answers, lost = gather(pending, self._settings.timeout_s)
            for name, where in answers.items():
                _check_kind(name, self._locations.get(name, where), where)
                self._locations[name] = where
            for name, error in lost.items():
                self._tell(name, self._hosts[name].note_loss(error))
            if not all(map(lost_for_good, lost.values())):  # the blueprint went with the machine that kept it
                self._settings = replace(self._settings, blueprint=ray.put(self._blueprint))
            names, again = list(lost), True

    def _with_room(self, pending: Mapping[Any, str]) -> dict[Any, str]:
        """The hosts to come; those without room on what is left of the cluster share the CPUs of others.

        Ray learns late that a machine is lost, so there is no knowing before.
        """
        up = {self._hosts[name].actor.__ray_ready__.remote(): name for name in pending.values()}
        _, waiting = ray.wait(list(up), num_returns=len(up), timeout=_SECONDS_TO_FIND_ROOM)
        without = {up[each] for each in waiting}
        crowded = replace(self._settings.share, cpus=0)
        again = {self._hosts[name].start(self._settings, crowded): name for name in without}
        return {each: name for each, name in pending.items() if name not in without} | again


def _sum_before(sums: Sequence[Any]) -> Tensor | None:
    """The sum of the host before, which is waited for; None before the first.

    Raises:
        LookupError: it is lost.
    """
    try:
        return cast("Tensor", ray.get(sums[0])) if sums else None
    except ray.exceptions.RayError as error:
        raise LookupError(str(error)) from None


def _check_repeats(name: str, blueprint: Blueprint) -> None:
    """A GPU may add up in another order each time: nothing is computed there twice under the same noise."""
    if blueprint.device.type != "cpu" and blueprint.noise_placement.private:
        text = f"the host {name} was lost, and on a GPU its interval may give different results"
        raise UserError(f"{text}; `h2fdp resume` continues with fresh draws", key="runtime")


def _check_kind(name: str, before: HostLocation, now: HostLocation) -> None:
    """A host may not redo an interval where it would not come out the same, to the bit.

    The same noise on another update is another release, which no account knows of.
    """
    if before.kinds != now.kinds:
        text = f"the host {name} was lost and came back on another processor or with other versions"
        raise UserError(
            f"{text}, where the interval may give different results; `h2fdp resume` continues with fresh draws"
        )


@dataclass
class _PlacedHost:
    """One host, the actor that is it now, and how often it was lost in a row."""

    spec: HostSpec
    actor: Any = None
    losses: int = 0
    lives: int = 0

    def start(self, settings: HostSettings, share: HostResources) -> Any:
        """Start an actor, after a loss in place of the one before; the answer to come is its locations."""
        self.end()
        self.lives += 1
        spec, group = self.spec, settings.groups.get(self.spec.name)
        name = spec.name + (f"#{self.lives}" if self.lives > 1 else "")  # a lost one keeps its name in Ray's records
        # Ray restarts and retries nothing: it would not build the nodes again.
        options: dict[str, Any] = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_restarts": 0}
        if group is not None and share.cpus > 0:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group)
        self.actor = ray.remote(Host).options(name=name, namespace=settings.namespace, **options).remote()
        below = replace(
            settings,
            share=share,
            timeout_s=_TIME_BELOW * settings.timeout_s,
            namespace=f"{settings.namespace}/{name}",  # those below the host before may still be ending
            groups=settings.groups if group is None else {each.name: group for each in spec.below},
        )
        return self.actor.build.remote(settings.blueprint, spec, partial(RayNodes, spec.below, settings=below))

    def note_loss(self, error: Exception) -> str:
        """The reason in short; too many losses in a row end the run."""
        self.losses += 1
        reason = str(error).strip().splitlines()[0]
        if self.losses > MOST_LOSSES:
            text = f"the host {self.spec.name} was lost {self.losses} times in a row"
            raise UserError(f"{text}, last with: {reason}", key="runtime")
        return reason

    def end(self) -> None:
        """End the actor, and with it those below."""
        if self.actor is not None:
            ray.kill(self.actor)
            self.actor = None
