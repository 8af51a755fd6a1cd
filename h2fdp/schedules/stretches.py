"""What an aggregator's children do where it does not wait for the last one: who uploads when, from which model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Stretch:
    """What the devices of a subnet upload between a model of the cloud's and the upload of their edge server.

    An edge server's models are numbered by the averages that it made before: it begins the stretch with number `first`,
    the model that came down, and has number `first` + i after i averages. Matrices have a row for each average and a
    column for each of the s devices that upload in the stretch.

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
        weight: the same of the edge server's own upload.
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
    ) -> Stretch:
        """From the uploads of each average: (row, number of the model, tasks before); of full weight.

        >>> one = Stretch.of(0, 4, [[(2, 4, 7)], [(0, 3, 6), (2, 5, 8)]], carried=[3])
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
        """Of one average: number of the model, tasks before, and (s',) whose places of `rows` began so; by these."""
        arriving = np.flatnonzero(self.arrives[average])
        began = np.stack([self.versions[average, arriving], self.tasks[average, arriving]], axis=1)
        kinds, of = np.unique(began, axis=0, return_inverse=True)
        return [(*kind, arriving[of.reshape(-1) == number]) for number, kind in enumerate(kinds.tolist())]


@dataclass(frozen=True)
class Arrivals:
    """What arrives at the cloud for one of its averages.

    Attributes:
        stretches: number of the subnet, ascending -> what its devices did.
        kept: numbers of the cloud's earlier models that edge servers still work from.
        at_s: when, from the beginning of the run.
        waiting: number of the subnet -> row -> uploads that arrived at the edge server since the cloud's last average,
            less those in this one; below 0 where these arrived earlier.
        charged: stretches that are accounted for with this average, which may end later or never: number of the subnet
            -> its next one, and in a second mapping the one after that.
    """

    stretches: Mapping[int, Stretch]
    kept: tuple[int, ...]
    at_s: float
    waiting: Mapping[int, Mapping[int, int]]
    charged: tuple[Mapping[int, Stretch], ...] = ()
