"""The subnets of this process in lockstep: which go together, when they are built; a block trains in one call."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.arithmetic import worker_threads
from h2fdp.data.synthetic import LARGEST_HELD
from h2fdp.models.construct import ParameterLayout
from h2fdp.privacy import Moment
from h2fdp.protocol import Broadcast, DeviceGroup, EdgeServer, InProcessNodes, Order, Plan, Upload, in_step
from h2fdp.protocol.devices import released
from h2fdp.protocol.messages import moved_to
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.placement import Share
from h2fdp.training.batches import Batches, draw_together, joined
from h2fdp.training.engine import Engine
from h2fdp.training.local_steps import StepTerms, TrainingResult

_MOST_VALUES = 1 << 22  # that are released by one call, which may hold them in double precision


@dataclass(frozen=True)
class _Job:
    """The work of one group of devices in a phase."""

    edge: str
    name: str
    group: DeviceGroup
    model: Tensor
    order: Order

    @property
    def train_key(self) -> tuple[int, int, float, bool]:
        """Jobs with equal slots and step sizes train together, under noise at every step or without: their key."""
        at = self.order.segment
        return at.first_slot, at.last_slot, at.step_size, self.group.pipeline.noisy_steps

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.order.rows)

    @property
    def release_key(self) -> Hashable:
        """Equal for jobs of one `train_key` whose devices may release together."""
        return self.group.pipeline, self.order.segment.kind, self.order.facts


class Lockstep:
    """Edge servers by name, a `NodeGroup`. All their device groups are here, with one block of records and one engine.

    Args:
        threads: where parts of the devices may train side by side; None for the caller's thread alone.
        parts: how many at once.
    """

    def __init__(self, servers: Mapping[str, EdgeServer], threads: Executor | None = None, parts: int = 1) -> None:
        self._threads = threads
        self._parts = parts
        self._servers = dict(servers)
        self._nodes = InProcessNodes(servers)

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """Intervals run in lockstep; everything else is asked of one edge server after another."""
        return self._run(shared, each) if method == "run_interval" else self._nodes.call(method, shared, each)

    def _run(self, broadcast: Tensor, plans: Mapping[str, Plan]) -> dict[str, Upload]:
        """Run an interval of several edge servers, phase by phase, the devices of all at once."""
        intervals = {name: self._servers[name].interval(broadcast, plan) for name, plan in plans.items()}
        return in_step(intervals, self._train)

    def _train(self, calls: Mapping[str, Broadcast]) -> dict[str, dict[str, TrainingResult]]:
        """Edge server -> group -> what its devices upload."""
        together: dict[tuple[int, int, float, bool], list[_Job]] = {}
        for job in self._jobs(calls):
            together.setdefault(job.train_key, []).append(job)
        uploads: dict[str, dict[str, list[TrainingResult]]] = {name: {} for name in calls}
        for one_key in together.values():
            crowds = list(self._crowds(one_key))
            jobs = [job for crowd in crowds for job in crowd]
            models = [job.model for job in jobs]
            starts = torch.cat([model.expand(job.devices, -1) for model, job in zip(models, jobs, strict=True)])
            first = jobs[0].group
            assert all(job.group.records is first.records for job in jobs), "subnets in lockstep share their records"
            rows = np.concatenate([job.group.held(job.order) for job in jobs])
            trained = self._trained(jobs[0], starts, rows, _batches(jobs), _terms(jobs))
            sizes = [sum(job.devices for job in crowd) for crowd in crowds]
            released = self._at_once(_released, crowds, trained.split(sizes), starts.split_with_sizes(sizes))
            for crowd, result in zip(crowds, released, strict=True):
                for job, upload in zip(crowd, result.split([job.devices for job in crowd]), strict=True):
                    uploads[job.edge].setdefault(job.name, []).append(upload)
        return {
            edge: {name: TrainingResult.joined(each) for name, each in own.items()} for edge, own in uploads.items()
        }

    def _crowds(self, jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
        """Jobs whose devices release together, in parts for the threads and of few values."""
        crowds: dict[Hashable, list[_Job]] = {}
        for job in jobs:
            crowds.setdefault(job.release_key, []).append(job)
        for crowd in crowds.values():
            devices, lanes = sum(job.devices for job in crowd), 1 if self._threads is None else self._parts
            most = min(-(-devices // lanes), _MOST_VALUES // crowd[0].model.shape[-1])
            part, size = list[_Job](), 0
            for job in crowd:
                if part and size + job.devices > most:
                    yield part
                    part, size = [], 0
                part.append(job)
                size += job.devices
            yield part

    def _trained(
        self,
        first: _Job,
        starts: Tensor,
        rows: np.ndarray,
        batches: Batches,
        terms: StepTerms,
    ) -> TrainingResult:
        """These rows of the block; what a device computes does not depend on the part it is in."""
        engine, records, step_size = first.group.engine, first.group.records, first.order.segment.step_size

        def part(devices: np.ndarray) -> TrainingResult:
            own = starts[torch.from_numpy(devices)]
            given = batches.part(devices), step_size, terms.part(devices)
            return engine.train(own, records, rows[devices], *given)

        if self._threads is None or len(rows) < 2 * self._parts:
            return engine.train(starts, records, rows, batches, step_size, terms)
        return TrainingResult.joined(self._at_once(part, np.array_split(np.arange(len(rows)), self._parts)))

    def _at_once(self, work: Callable[..., TrainingResult], *items: Iterable[Any]) -> list[TrainingResult]:
        """The work on each item, in their order, by whatever threads there are."""
        return list(map(work, *items) if self._threads is None else self._threads.map(work, *items))

    def _jobs(self, calls: Mapping[str, Broadcast]) -> Iterator[_Job]:
        for edge, call in calls.items():
            groups = self._servers[edge].groups
            assert isinstance(groups, InProcessNodes), "devices in lockstep are in one process"
            for name, order in call.parts.items():
                group = groups.node(name)
                order = group.drawn(order)
                # Noise on the uploads of one group is drawn by all threads, too.
                lanes = self._parts if group.pipeline.draws and self._threads is not None else 1
                cuts = [len(order.rows) * lane // lanes for lane in range(lanes + 1)]
                for own in (slice(*each) for each in pairwise(cuts) if each[0] < each[1]):
                    yield _Job(edge, name, group, call.model, order.part(own))


def _released(crowd: Sequence[_Job], trained: TrainingResult, starts: Tensor) -> TrainingResult:
    """The results that may leave the devices of these jobs."""
    first, moments = crowd[0], [job.group.moment(job.order) for job in crowd]
    return released(first.group.pipeline, trained, starts, Moment.joined(moments))


def _batches(jobs: Sequence[_Job]) -> Batches:
    """The batches of all jobs, device after device."""
    if not all(job.group.sampler.together for job in jobs):
        return joined([job.group.batches(job.order) for job in jobs])
    order = jobs[0].order
    parts = [(job.group.sampler, job.order.rows) for job in jobs]
    drawn = draw_together(parts, order.segment.interval, order.segment.slots)
    divisors = [each for job in jobs if (each := job.group.expected_batches(job.order)) is not None]
    assert len(divisors) in (0, len(jobs)), "batches are divided alike in the whole network"
    expected = np.concatenate(divisors) if divisors else None
    if all(job.order.steps is None for job in jobs):
        return replace(drawn, expected=expected)
    every = len(order.segment.slots)
    finished = [np.full(len(job.order.rows), every) if job.order.steps is None else job.order.steps for job in jobs]
    return replace(drawn, steps=np.concatenate(finished), expected=expected)


def _terms(jobs: Sequence[_Job]) -> StepTerms:
    """The terms of all jobs, device after device."""
    return StepTerms.joined([job.group.terms(job.model, job.order) for job in jobs])


_CPU = torch.device("cpu")
# Devices in a block: enough to share the cost of a call (10,000 devices of 210 parameters took 0.42 s an interval in
# blocks of 128, 0.21 in blocks of 1024), and a bound on the values of all their models; engines
# cut them into stacks.
_BLOCKS_BETWEEN_TRIMS = 16  # a million devices took 1.1 GB and 16.8 s an interval; with none 3.2 GB and 17.2
_FEWEST_DEVICES, _MOST_DEVICES, _MODELS_VALUES = 64, 1024, 1 << 22


def devices_in_lockstep(parameters: int) -> int:
    """The number of devices that train in one call, by the number of the model's parameters.

    >>> devices_in_lockstep(210), devices_in_lockstep(7840), devices_in_lockstep(550_570)
    (1024, 534, 64)
    """
    return max(_FEWEST_DEVICES, min(_MOST_DEVICES, _MODELS_VALUES // parameters))


def blocks(sizes: np.ndarray, numbers: Sequence[int], workers: int, most: int = _FEWEST_DEVICES) -> list[range]:
    """Runs of neighbouring subnets of about equally many devices, at least one run for each worker where possible.

    Args:
        sizes: (N,) devices of each subnet.
        numbers: ascending numbers of the subnets that are here.
        most: devices in a block of more than one subnet.

    >>> blocks(np.full(10, 5), range(10), workers=2)
    [range(0, 5), range(5, 10)]
    """
    largest = min(most, -(-int(sizes[list(numbers)].sum()) // workers))
    blocks: list[range] = []
    devices = 0
    for number in numbers:
        fits = blocks and blocks[-1].stop == number and devices + sizes[number] <= largest
        blocks[-1:] = [range(blocks[-1].start, number + 1)] if fits else [*blocks[-1:], range(number, number + 1)]
        devices = devices + sizes[number] if fits else sizes[number]
    return blocks


class LockstepNodes:
    """All edge servers of one process, block by block, some blocks at once.

    What a device computes does not depend on its block or its thread, so neither changes a bit.

    Args:
        names: of all subnets of the network.
        runs: of subnets that make up the blocks.
        build: makes a block, by its run.
        threads: where several blocks work at once; None for one after another.
        device: where blocks compute; the model goes there once a call, and uploads come back from there.
        keep: hold built blocks. Else each is built for a call and forgotten: memory follows the active devices.
    """

    def __init__(
        self,
        names: Sequence[str],
        runs: Sequence[range],
        build: Callable[[range], Lockstep | InProcessNodes],
        threads: Executor | None,
        keep: bool,
        device: torch.device = _CPU,
    ) -> None:
        self._device = device
        self._runs = runs
        self._build = build
        self._block_of = {names[number]: at for at, run in enumerate(runs) for number in run}
        self._kept = {at: build(run) for at, run in enumerate(runs)} if keep else None
        self._threads = threads

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        parts: dict[int, dict[str, Any]] = {}
        for name, item in each.items():
            parts.setdefault(self._block_of[name], {})[name] = item
        shared = shared.to(self._device)

        def run(at: int) -> dict[str, Any]:
            if self._kept is not None:
                return self._kept[at].call(method, shared, parts[at])
            answers = self._build(self._runs[at]).call(method, shared, parts[at])
            if at % _BLOCKS_BETWEEN_TRIMS == 0:
                give_free_memory_back()
            return answers

        answers = map(run, parts) if self._threads is None else self._threads.map(run, parts)
        items = [item for answered in answers for item in answered.items()]
        return dict(items) if self._device.type == "cpu" else {name: _on_cpu(answer) for name, answer in items}


def give_free_memory_back() -> None:
    """Hand back to the system what the allocator keeps: uploads that stay lie among the pages of freed records."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
        if trim is not None:
            trim(0)


def _on_cpu(answer: Any) -> Any:
    return moved_to(answer, _CPU) if isinstance(answer, Upload) else answer


def lockstep_of(
    blueprint: Blueprint, numbers: range, engine: Engine, threads: Executor | None = None, parts: int = 1
) -> Lockstep:
    """Neighbouring edge servers whose devices share one block of records and one engine."""
    first, last = int(blueprint.first_devices[numbers.start]), int(blueprint.first_devices[numbers.stop])
    records = blueprint.records(first, last)
    groups = {number: blueprint.group(number, records, first, engine) for number in numbers}
    names = {number: blueprint.topology.subnets[number].name for number in numbers}
    servers = {names[number]: blueprint.edge_server(number, group) for number, group in groups.items()}
    return Lockstep(servers, threads, parts)


@contextmanager
def inline_nodes(
    blueprint: Blueprint, numbers: Sequence[int], workers: int, shares: Sequence[Share] = ()
) -> Iterator[LockstepNodes]:
    """The edge servers of these subnets in this process, and shares of others; `workers` threads share the blocks, and
    the devices of a block that is more than one thread's part of all."""
    sizes, edges = blueprint.topology.sizes, blueprint.topology.edges
    runs = blocks(sizes, numbers, workers, devices_in_lockstep(ParameterLayout(blueprint.module()).size))
    parts = {run: max(1, round(workers * sizes[run].sum() / sizes[list(numbers)].sum())) for run in runs}
    training = sum(each if 2 * each <= sizes[run].sum() else 1 for run, each in parts.items())  # see `_trained`
    alone, engine = len(runs) == 1, blueprint.local_engine(min(workers, training))

    def built(run: range) -> Lockstep | InProcessNodes:
        if run.start >= edges:
            share = shares[run.start - edges]
            return InProcessNodes({share.name: blueprint.devices(share.number, share.rows)})
        return lockstep_of(blueprint, run, engine, within if parts[run] > 1 else None, parts[run])

    # A block's thread waits for those of its parts: they have threads of their own.
    with worker_threads(workers) as threads, worker_threads(workers) as within:
        yield LockstepNodes(
            [*(subnet.name for subnet in blueprint.topology.subnets), *(share.name for share in shares)],
            [*runs, *(range(edges + at, edges + at + 1) for at in range(len(shares)))],
            built,
            None if alone else threads,
            keep=blueprint.data.values <= LARGEST_HELD,  # else each block gets its own when its turn comes
            device=blueprint.device,
        )
