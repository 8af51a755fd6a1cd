"""Bunches of subnets in this process: which subnets go together, when they are built, how many train at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from h2fdp.nodes import Bunch, Team
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.section import RuntimeSection

_CPU = torch.device("cpu")
_KEPT_VALUES = 1 << 28  # inputs; of more data each bunch gets its own when its turn comes
DEVICES_IN_A_BUNCH = 128  # enough to share the cost of a call; engines cut them into stacks by themselves


def bunches(sizes: np.ndarray, numbers: Sequence[int], workers: int) -> list[range]:
    """Runs of neighbouring subnets of about equally many devices, at least one run for each worker where possible.

    Args:
        sizes: (N,) devices of each subnet.
        numbers: ascending numbers of the subnets that are here.

    >>> bunches(np.full(10, 5), range(10), workers=2)
    [range(0, 5), range(5, 10)]
    """
    largest = min(DEVICES_IN_A_BUNCH, -(-int(sizes[list(numbers)].sum()) // workers))
    found: list[range] = []
    devices = 0
    for number in numbers:
        fits = found and found[-1].stop == number and devices + sizes[number] <= largest
        found[-1:] = [range(found[-1].start, number + 1)] if fits else [*found[-1:], range(number, number + 1)]
        devices = devices + sizes[number] if fits else sizes[number]
    return found


class BunchTeam:
    """All edge servers of one process, bunch by bunch, some bunches at once.

    What a device computes does not depend on its bunch or its thread, so neither changes a bit.

    Args:
        names: of all subnets of the network.
        runs: of subnets that make up the bunches.
        build: makes a bunch.
        workers: threads, each with one intra-op thread.
        device: where bunches compute; the model goes there once a call, and uploads come back from there.
        keep: hold built bunches. Else each is built for a call and forgotten: memory follows the active devices.
    """

    def __init__(
        self,
        names: Sequence[str],
        runs: Sequence[range],
        build: Callable[[range], Bunch],
        workers: int,
        keep: bool,
        device: torch.device = _CPU,
    ) -> None:
        self._device = device
        self._runs = runs
        self._build = build
        self._bunch_of = {names[number]: at for at, run in enumerate(runs) for number in run}
        self._kept = {at: build(run) for at, run in enumerate(runs)} if keep else None
        self._pool = None
        if workers > 1 and len(runs) > 1:
            self._pool = ThreadPoolExecutor(
                min(workers, len(runs)), "bunch", initializer=torch.set_num_threads, initargs=(1,)
            )

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """See `Team.call`."""
        parts: dict[int, dict[str, Any]] = {}
        for name, item in each.items():
            parts.setdefault(self._bunch_of[name], {})[name] = item
        shared = shared.to(self._device)

        def run(at: int) -> dict[str, Any]:
            bunch = self._build(self._runs[at]) if self._kept is None else self._kept[at]
            return bunch.call(method, shared, parts[at])

        answers = map(run, parts) if self._pool is None else self._pool.map(run, parts)
        return {name: _on_cpu(answer) for answered in answers for name, answer in answered.items()}

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _on_cpu(answer: Any) -> Any:
    return answer.cpu() if isinstance(answer, torch.Tensor) else answer


@contextmanager
def local_team(blueprint: Blueprint, numbers: Sequence[int], workers: int) -> Iterator[Team]:
    """The edge servers of these subnets in this process."""
    engine = blueprint.local_engine()
    team = BunchTeam(
        [subnet.name for subnet in blueprint.topology.subnets],
        bunches(blueprint.topology.sizes, numbers, workers),
        lambda run: blueprint.bunch(run, engine),
        workers,
        keep=blueprint.data.values <= _KEPT_VALUES,
        device=blueprint.device,
    )
    try:
        yield team
    finally:
        team.close()


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread: how a sum is split over threads changes its last bits, and equal seeds give equal bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def training_device(section: RuntimeSection) -> torch.device:
    """A GPU where one is asked for and there is one; else the CPU, with a message."""
    if section.gpus_per_host > 0 and not torch.cuda.is_available():
        print("note: runtime.gpus_per_host asks for a GPU and torch finds none here; training on CPUs", file=sys.stderr)
    return torch.device("cuda" if section.gpus_per_host > 0 and torch.cuda.is_available() else "cpu")
