"""Blocks of subnets in this process: which subnets go together, when they are built, how many train at once."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from h2fdp.arithmetic import worker_threads
from h2fdp.data.synthetic import LARGEST_HELD
from h2fdp.models.construct import ParameterLayout
from h2fdp.protocol import NodeGroup, Upload
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.lockstep import Lockstep
from h2fdp.runtime.section import RuntimeSection
from h2fdp.schedules.device_estimates import SecantMeasurements
from h2fdp.wording import note

_CPU = torch.device("cpu")
# Devices in a block: enough to share the cost of a call (10,000 devices of 210 parameters took 0.42 s an interval in
# blocks of 128, 0.21 in blocks of 1024), and a bound on the values of all their models; engines
# cut them into stacks.
_BLOCKS_BETWEEN_TRIMS = 16  # a million devices took 1.1 GB and 16.8 s an interval; with none 3.2 GB and 17.2
_FEWEST_DEVICES, _MOST_DEVICES, _MODELS_VALUES = 64, 1024, 1 << 22


def devices_in_lockstep(parameters: int) -> int:
    """How many devices train in one call, by the number of the model's parameters.

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
        build: makes a block.
        threads: where several blocks work at once; None for one after another.
        device: where blocks compute; the model goes there once a call, and uploads come back from there.
        keep: hold built blocks. Else each is built for a call and forgotten: memory follows the active devices.
    """

    def __init__(
        self,
        names: Sequence[str],
        runs: Sequence[range],
        build: Callable[[range], Lockstep],
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
    return answer.cpu() if isinstance(answer, (torch.Tensor, Upload, SecantMeasurements)) else answer


@contextmanager
def inline_nodes(blueprint: Blueprint, numbers: Sequence[int], workers: int) -> Iterator[NodeGroup]:
    """The edge servers of these subnets in this process; `workers` threads share the blocks, or a single block."""
    most = devices_in_lockstep(ParameterLayout(blueprint.module()).size)
    runs = blocks(blueprint.topology.sizes, numbers, workers, most)
    alone, engine = len(runs) == 1, blueprint.local_engine()
    with worker_threads(workers) as threads:
        yield LockstepNodes(
            [subnet.name for subnet in blueprint.topology.subnets],
            runs,
            lambda run: blueprint.lockstep(run, engine, threads if alone else None, workers),
            None if alone else threads,
            keep=blueprint.data.values <= LARGEST_HELD,  # else each block gets its own when its turn comes
            device=blueprint.device,
        )


def training_device(section: RuntimeSection) -> torch.device:
    """A GPU where one is asked for and there is one; else the CPU, with a message."""
    if section.gpus_per_host > 0 and not torch.cuda.is_available():
        note("runtime.gpus_per_host requests a GPU, but torch finds none here; training on CPUs")
    return torch.device("cuda" if section.gpus_per_host > 0 and torch.cuda.is_available() else "cpu")
