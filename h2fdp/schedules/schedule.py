"""The interface of a schedule, an axis of a method: it decides the coming interval, from what the cloud holds after
the last one (released vectors, and measurements if any).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class IntervalObservation:
    """One interval as the cloud saw it.

    Attributes:
        model: (M,) w(t_k), the model that went down.
        uploads: (M,) from each active child of the cloud, everything it accumulated; releases with the noise below, if
            any. Only their average, under all noise, where the cloud adds the noise or holds a secure sum: the public,
            who sees what a schedule decides, is accounted for no more. Empty where no device was active.
        weights: (uploads,) varrho_c, summing to 1.
        noise_variance: (uploads,) variance of the noise on each coordinate of an upload.
        mean_steps: (uploads,) gradients that an upload accumulates, the mean over its devices: tau_k unless some fail.
        measured: by the schedule's `measures`, of the n devices of the last aggregation, and as `weights` (n,) their
            shares, which sum to 1; None where nothing is measured, or no device was there.
        spent: what the interval cost, by resource as the metrics name it (`energy_j`, `delay_s`, `clock_s`); without
            those that were not metered.
        children: names of the cloud's active children, also where `uploads` has their average alone.
    """

    interval: int
    local_steps: int
    step_size: float
    model: Tensor
    uploads: list[Tensor]
    weights: np.ndarray
    noise_variance: np.ndarray
    mean_steps: np.ndarray
    measured: Mapping[str, np.ndarray] | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    children: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Backlog:
    """The uploads of a subnet's devices between a model of the cloud's and the upload of their edge server.

    An edge server's models are numbered by the averages that it made before: it begins the backlog with number `first`,
    the model that came down, and has number `first` + i after i averages. Matrices have a row for each average and a
    column for each of the s devices that upload in the backlog.

    Attributes:
        version: number of the cloud's model that came down, which is the number of global aggregations before it.
        first: number of the edge server's first model.
        rows: (s,) the devices, ascending.
        arrives: (averages, s) whether a device uploads.
        versions: (averages, s) number of the model that its upload began with.
        tasks: (averages, s) uploads that the device finished before: its own clock.
        carried: ascending numbers of the models before `first` that devices train from at the beginning.
        kept: ascending numbers, below `first` + averages, of those that devices still train from at the end.
        weights: (averages, s) what the age of a model leaves of an upload's weight.
        weight: what the age of a model leaves of the weight of the edge server's own upload.
        step_size: of its local steps.
    """

    version: int
    first: int
    rows: np.ndarray
    arrives: np.ndarray
    versions: np.ndarray
    tasks: np.ndarray
    carried: tuple[int, ...]
    kept: tuple[int, ...]
    weights: np.ndarray
    weight: float = 1.0
    step_size: float = 0.0

    @classmethod
    def of(
        cls,
        version: int,
        first: int,
        uploads: Sequence[Sequence[tuple[int, int, int]]],
        carried: Sequence[int] = (),
        kept: Sequence[int] = (),
    ) -> Backlog:
        """A backlog of the uploads of each average: (row, number of the model, tasks before); of full weight.

        >>> one = Backlog.of(0, 4, [[(2, 4, 7)], [(0, 3, 6), (2, 5, 8)]], carried=[3])
        >>> one.rows.tolist(), one.arrives.tolist(), one.versions.tolist()
        ([0, 2], [[False, True], [True, True]], [[0, 4], [3, 5]])
        >>> one.staleness.tolist()
        [[0, 0], [2, 0]]
        """
        rows = np.array(sorted({row for each in uploads for row, _, _ in each}), dtype=np.int64)
        shape = len(uploads), len(rows)
        arrives, versions, tasks = np.zeros(shape, dtype=bool), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for number, each in enumerate(uploads):
            own, began, before = (np.array(column, dtype=np.int64) for column in zip(*each, strict=True))
            at = np.searchsorted(rows, own)
            arrives[number, at], versions[number, at], tasks[number, at] = True, began, before
        return cls(version, first, rows, arrives, versions, tasks, tuple(carried), tuple(kept), np.ones(shape))

    @property
    def staleness(self) -> np.ndarray:
        """(averages, s) averages that the edge server made between the model of an upload and its arrival."""
        own = self.first + np.arange(len(self.arrives))[:, None]
        return np.where(self.arrives, own - self.versions, 0)

    @property
    def in_step(self) -> bool:
        """Whether all these devices upload to each average, from the newest model, as in a synchronous round."""
        if self.carried or self.kept:
            return False
        clock = self.first + np.arange(len(self.arrives))[:, None]
        return bool(self.arrives.all() and (self.versions == clock).all() and (self.tasks == clock).all())

    def models(self, average: int) -> list[tuple[int, int, np.ndarray]]:
        """The models behind one average: number, tasks before, and (s',) places in `rows` that began so; by these."""
        arriving = np.flatnonzero(self.arrives[average])
        began = np.stack([self.versions[average, arriving], self.tasks[average, arriving]], axis=1)
        kinds, of = np.unique(began, axis=0, return_inverse=True)
        return [(*kind, arriving[of.reshape(-1) == number]) for number, kind in enumerate(kinds.tolist())]


@dataclass(frozen=True)
class Arrivals:
    """Uploads that arrive at the cloud for one of its averages.

    Attributes:
        backlogs: number of the subnet, ascending -> what its devices did.
        kept: numbers of the cloud's earlier models that edge servers still work from.
        at_s: when, from the beginning of the run.
        waiting: number of the subnet -> row -> uploads that arrived at the edge server since the cloud's last average,
            less those in this one; below 0 where these arrived earlier.
        charged: backlogs that are accounted for with this average, which may end later or never: number of the subnet
            -> its next one, and in a second mapping the one after that.
        ways_s: (I,) half the seconds there and back of each device's last message over the links; None over wires.
    """

    backlogs: Mapping[int, Backlog]
    kept: tuple[int, ...]
    at_s: float
    waiting: Mapping[int, Mapping[int, int]]
    charged: tuple[Mapping[int, Backlog], ...] = ()
    ways_s: np.ndarray | None = None


@dataclass(frozen=True)
class Decision:
    """The plan of interval k (counted from 0).

    Attributes:
        local_steps: tau_k.
        step_size: eta_k.
        participation: (N,) s_c^k, how many devices of each subnet take part.
        noise_factor: multiplies the noise of the interval's steps and uploads; each is accounted with the noise it had.
        reasons: why, as a row of `control.jsonl`; None where nothing was weighed.
        intervals: how many intervals like this one are expected, this one included: what noise that is chosen step by
            step must last for; None for all that are planned.
        devices: for each subnet the ascending rows of the devices that take part; None draws them at random. Who is
            chosen is public, and no amplification is claimed for it.
        arrivals: who uploads when, from which model, where aggregators do not wait for all; None where they do.
        clock_s: how long such an interval takes.
    """

    local_steps: int
    step_size: float
    participation: np.ndarray
    reasons: Mapping[str, Any] | None = None
    noise_factor: float = 1.0
    intervals: int | None = None
    devices: Sequence[np.ndarray] | None = None
    arrivals: Arrivals | None = None
    clock_s: float | None = None


class Schedule(Protocol):
    """Decides one interval after another.

    After each interval it is called with facts about it, in this order: `observe`, `scored`, `kept`, the first two
    where it asks for them. A schedule that is derived from this class learns nothing, measures nothing, scores nothing,
    keeps every model and leaves the end to the number of intervals, unless it says otherwise.
    """

    def alike(self, interval: int) -> int:
        """The number of intervals from this one on with its local steps, participation and noise, known in advance."""
        return 1

    @property
    def observes(self) -> bool:
        """Whether `observe` wants to be called."""
        return False

    @property
    def scores(self) -> bool:
        """Whether `scored` wants to be called."""
        return False

    @property
    def planned(self) -> int | None:
        """The number of intervals it means to have, where these may be fewer than the run's; None for all of them."""
        return None

    def ends(self, slot: int) -> bool:
        """Whether training ends at this slot t_k, whatever the number of intervals."""
        return False

    def devices_left(self, counts: np.ndarray) -> None:
        """Learn how many devices of each subnet (N,) are not out of the run, before it decides on an interval."""
        return

    def decide(self, interval: int, slot: int) -> Decision:
        """The decision for `interval`, counted from 0, which begins at `slot`; the same when asked again."""
        ...

    def observe(self, seen: IntervalObservation) -> None:
        """Learn from what the cloud received in the interval that just ended."""
        return

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        """Let an interval pass that is planned but not run, at what it would cost: how a run is forecast."""
        return

    def scored(self, loss: float) -> None:
        """Learn the loss, on public records, of the model that the interval ended with."""
        return

    def kept(self, model: Tensor) -> Tensor:
        """The (M,) model to continue from after an interval that ended with `model`.

        `model` itself, unchanged, or another one in memory of its own: then the interval is given up, and with it what
        the server and the devices remember of it. Metrics describe the model that is continued from.
        """
        return model

    def returned(self, model: Tensor) -> Tensor:
        """The (M,) model that training returns when it ends with `model`."""
        return model

    def state(self) -> dict[str, Any]:
        """The state that it has learned, in plain values and tensors, for a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        return
