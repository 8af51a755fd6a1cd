"""Batteries of devices: who can pay for an interval takes part in it; a device that cannot is gone from then on, or
until it can, where it harvests.

A device pays the energy of a whole interval - its messages, its local steps, what it exchanges for secure sums - as the
plan has it before faults: who drops out later has paid, too. All of it follows from the network, the channels, batch
sizes and the decision of the schedule, which are public, so that participation reveals nothing of records, and every
account of a run stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from h2fdp.costs.interval_cost import IntervalCost, interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes, Tasks
from h2fdp.errors import NETWORK_REFUSALS, refused
from h2fdp.network import Topology
from h2fdp.network.devices import OF_BATTERIES, Floats, Integers

BATTERY = "battery_j"


def has_batteries(topology: Topology) -> bool:
    """Whether some device may run empty; the default of the column is no battery."""
    stated = topology.table.columns.get(BATTERY)
    return stated is not None and bool((stated < OF_BATTERIES[BATTERY].default).any())


_GOLDEN = (5**0.5 - 1) / 2  # multiples of it are spread evenly between 0 and 1, however many there are


@dataclass(frozen=True, eq=False)
class Charge:
    """The batteries of all devices when an interval begins.

    Attributes:
        left: (D,) joules.
        gone: (D,) whether a device is out of the run for good.
        granted: (D,) what a device may spend so far, less what it spent, where it spreads its turns over the run.
        at_s: the moment of the simulated clock, where batteries need it.
    """

    left: Floats
    gone: np.ndarray
    granted: Floats
    at_s: float = 0.0

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """The charge of a checkpoint, which has tensors in place of arrays."""
        left, gone, granted = (np.asarray(state[name]) for name in ("left", "gone", "granted"))
        return cls(left, gone, granted, state["at_s"])


class Batteries:
    """The batteries of a network as the cloud foresees them.

    Args:
        topology: as it is simulated, with the column `battery_j`.
        sums: what devices exchange for secure sums; None where they do not.
        spread: intervals over which each device spreads its turns evenly; None where it takes part while it can.
    """

    def __init__(
        self, topology: Topology, costs: NetworkCosts, sums: ExchangeSizes | None = None, spread: int | None = None
    ) -> None:
        columns = topology.table.columns
        self._topology, self._costs, self._sums, self._spread = topology, costs, sums, spread
        self._of: Integers = np.arange(topology.devices) if topology.membership is None else topology.membership.device
        rows = np.unique(self._of, return_index=True)[1]  # one of each device
        self._full = columns[BATTERY][rows]
        zeros = np.zeros(len(rows))
        self._harvest_w = columns["harvest_w"][rows] if "harvest_w" in columns else zeros
        self._points = np.repeat(np.arange(len(topology.access_points[1])), topology.access_points[1])[rows]
        self._timed = bool(self._harvest_w.any()) or "idle_w" in columns
        self._early = np.arange(len(rows)) * _GOLDEN % 1.0  # by which part of its cost a turn may come early

    @property
    def full(self) -> Charge:
        """The charge at the start of a run."""
        return Charge(self._full, np.zeros(len(self._full), dtype=bool), np.zeros(len(self._full)))

    def there(self, charge: Charge) -> np.ndarray:
        """(I,) whether the device of each row is not gone."""
        return ~charge.gone[self._of]

    def paying(
        self, charge: Charge, interval: int, slots: int, tasks: Mapping[int, Tasks], heights: Sequence[int] | None
    ) -> tuple[np.ndarray, Charge]:
        """(I,) who takes part of those with these tasks, and the charge after the interval.

        Args:
            interval: counted from 0.
            slots: of the interval.
            tasks: of the devices that are to take part and are not gone, by the numbers of their subnets.
            heights: see `interval_cost`.
        """
        rows = {number: self._topology.firsts[number] + each.rows for number, each in tasks.items()}
        asked = np.zeros(self._topology.devices, dtype=bool)
        for each in rows.values():
            asked[each] = True
        of_devices = np.bincount(self._of, asked) > 0
        cost = self._cost(charge, interval, tasks, heights)
        spent = np.bincount(self._of, cost.device_energy_j)
        enough = spent <= charge.left
        granted = charge.granted
        pays = of_devices & enough
        if self._spread is not None:
            granted = granted + (charge.left - granted) / max(1, self._spread - interval)
            pays = pays & (spent * (1 - self._early) <= granted)
        gone = charge.gone | (of_devices & ~enough & (self._harvest_w == 0))
        left, at_s = charge.left - spent * pays, charge.at_s
        if self._timed:
            taking = {number: each.of(pays[self._of[rows[number]]]) for number, each in tasks.items()}
            idle_s = slots * float(np.min(self._costs.step.seconds))
            seconds = max(self._cost(charge, interval, taking, heights).clock_s, idle_s)
            left = np.minimum(self._full, left + self._harvested(at_s, seconds))
            at_s += seconds
        return pays[self._of], Charge(left, gone, granted - spent * pays, at_s)

    def _cost(
        self, charge: Charge, interval: int, tasks: Mapping[int, Tasks], heights: Sequence[int] | None
    ) -> IntervalCost:
        drawn = self._costs.drawn(interval)
        return interval_cost(drawn, self._topology, tasks, heights, self._sums, began_s=charge.at_s)

    def _harvested(self, began_s: float, seconds: float) -> Floats:
        """(D,) joules of each device in these seconds."""
        trace = self._topology.harvest
        if trace is None:
            return self._harvest_w * seconds
        return self._harvest_w * seconds * trace.mean(self._topology.access_points[0], began_s, seconds)[self._points]


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of settings that decide participation in secret, or its time, and of costs that payments do not know."""
    training, control, columns = experiment.training, experiment.control, network.table.columns
    buffers, pace = experiment.method.traits.buffers, control.least_ghz
    missing = control.gco2 is not None and topology.carbon is None
    yield from refused("grams of CO2 follow from a grid", ("control.gco2", missing, "carbon in the topology", "none"))
    if "idle_w" in columns:
        algorithm_1 = experiment.method.traits.controlled and not control.has_budget
        yield from refused(
            "devices wait for each other (idle_w)",
            ("method.schedule", buffers, "fixed", experiment.method.schedule.name),
            ("control", algorithm_1, "a budget, as other plans price messages and steps alone", "none"),
        )
    if BATTERY not in columns:
        by_battery = training.device_turns == "battery"
        right = "a number, or devices with " + BATTERY
        yield from refused(
            "no device has a battery", ("training.device_turns", by_battery, right, training.device_turns)
        )
        return
    secret = training.draw is not None
    yield from refused(
        f"devices take part as long as their batteries last ({BATTERY})",
        ("method.schedule", buffers, "fixed, as no buffer knows who is left", experiment.method.schedule.name),
        ("training.participation", secret, "a share, as payments would show who took part", "a secret draw"),
        ("control.least_ghz", pace is not None, "null, as who is left computes faster and pays more", pace),
    )
