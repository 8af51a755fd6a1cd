"""Batteries of devices: who can pay for an interval takes part in it, and a device that cannot is gone from then on.

A device pays the energy of a whole interval - its messages, its local steps, what it exchanges for secure sums - as the
plan has it before faults: who drops out later has paid, too. All of it follows from the network, the channels and the
plan, which are public, so that participation reveals nothing of records, and every account of a run stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes, Tasks
from h2fdp.errors import NETWORK_REFUSALS, refused
from h2fdp.network import Topology
from h2fdp.network.devices import Floats, Integers

BATTERY = "battery_j"
_NEVER = np.iinfo(np.int64).max


class Batteries:
    """Interval from 0 -> (I,) whether each device takes part: `Faults.sends` of a network whose devices have batteries.

    Args:
        topology: as it is simulated, with the column `battery_j`.
        segments: (N,) of each subnet, the local steps before each aggregation.
        heights: see `interval_cost`.
        masked: (N,) what devices of each subnet exchange for secure sums; None where they do not.
        sends: whether the channel of each lets it take part in an interval; None where it always does.
    """

    def __init__(
        self,
        topology: Topology,
        costs: NetworkCosts,
        segments: Sequence[Sequence[int]],
        heights: Sequence[int] | None = None,
        masked: Sequence[ExchangeSizes | None] = (),
        sends: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        self._topology, self._costs, self._segments, self._heights = topology, costs, segments, heights
        self._masked, self._sends = masked or [None] * topology.edges, sends
        self._left: Floats = topology.table.columns[BATTERY].copy()
        self._ends: Integers = np.full(topology.devices, _NEVER)  # the first interval that each cannot pay for
        self._next = 0

    def __call__(self, interval: int) -> np.ndarray:
        """(I,) of an interval counted from 0; all intervals before it are worked out once."""
        while self._next <= interval:
            self._pay(self._next)
            self._next += 1
        return np.asarray(self._there(interval))

    def last(self, intervals: int) -> Integers:
        """(I,) in how many of the first `intervals` the battery of each device lasts."""
        self(intervals - 1)
        return np.minimum(self._ends, intervals)

    def _there(self, interval: int) -> np.ndarray:
        there = self._ends > interval
        return there if self._sends is None else there & self._sends(interval)

    def _pay(self, interval: int) -> None:
        there = self._there(interval)
        spent = self._spent(interval, there)
        pays = there & (spent <= self._left)
        self._ends[there & ~pays] = interval
        self._left = self._left - spent * pays

    def _spent(self, interval: int, there: np.ndarray) -> Floats:
        """(I,) joules of each of these devices in this interval, if all of them take part."""
        topology, tasks = self._topology, {}
        firsts = np.cumsum(topology.sizes) - topology.sizes
        for number, (first, size) in enumerate(zip(firsts.tolist(), topology.sizes.tolist(), strict=True)):
            rows = np.flatnonzero(there[first : first + size])
            if rows.size:
                tasks[number] = Tasks.planned(rows, self._segments[number], self._masked[number] is not None)
        if not tasks:
            return np.zeros(topology.devices)
        sums = next((sizes for sizes in self._masked if sizes is not None), None)
        return interval_cost(self._costs.drawn(interval), topology, tasks, self._heights, sums).device_energy_j


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of what decides who takes part by more than the plan and the channels: payments would be unknown."""
    if BATTERY not in network.table.columns:
        return
    training, schedule, pace = experiment.training, experiment.method.schedule.name, experiment.control.least_ghz
    part, turns = training.participation, training.device_turns
    yield from refused(
        f"devices take part as long as their batteries last ({BATTERY})",
        ("method.schedule", schedule != "fixed", "fixed", schedule),
        ("training.participation", part != 1, "1", f"{part:g}"),
        ("training.device_turns", turns != 1, "1", turns),
        ("training.local_epochs", training.local_epochs is not None, "local_steps", training.local_epochs),
        ("topology", topology.mobility is not None, "devices that stay", "mobility"),
        ("control.least_ghz", pace is not None, "null, as who is left computes faster and pays more", pace),
    )
