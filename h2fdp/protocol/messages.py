"""Messages of the tree: a plan down to an aggregator, orders to its devices, uploads back up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from h2fdp.costs.traffic import Tasks
from h2fdp.privacy.places import NO_FACTS, Cohort, Segment, StageFacts
from h2fdp.schedules.schedule import Backlog
from h2fdp.training.local_steps import LocalWork, TrainingResult


@dataclass(frozen=True, kw_only=True)
class AggregationPhase:
    """A stretch of an aggregator's interval: its children work, then what they send is averaged.

    Attributes:
        segment: at whose end it averages.
        noise_std: of the noise that this aggregator adds to the average; 0 where it adds none.
        release: its number in the aggregator's noise stream, where the law of the noise has a past.
    """

    segment: Segment
    noise_std: float
    release: int = 0


@dataclass(frozen=True, kw_only=True)
class SubnetPhase(AggregationPhase, Cohort):
    """A stage of devices, whose uploads are averaged; arrays are empty where none arrives.

    Attributes:
        number: of the segment in its plan.
        shares: (s,) rho_j, summing to 1 over these devices.
        weights: (s,) by which the uploads are multiplied; the shares, unless the aggregation is another one.
        reach: (s,) how far the average moves where one upload moves by 1; the weights, where it is a sum.
    """

    number: int
    steps: np.ndarray
    shares: np.ndarray
    weights: np.ndarray
    reach: np.ndarray

    @property
    def accounted(self) -> np.ndarray:
        """The levels as accounts count them: of discrete noise a little less."""
        code = self.facts.code
        return self.levels if code is None or not self.rows.size else code.stated(self.levels, self.rows)

    @property
    def rounding(self) -> float:
        """The factor by which rounding may move the average further."""
        return 0.0 if self.facts.code is None else self.facts.code.inflation(self.rows)


@dataclass(frozen=True, kw_only=True)
class SubnetState:
    """The state that devices of a subnet and their edge server need of earlier stretches of a run.

    It travels with the plan and, renewed, with the upload back, so that hosts keep nothing that could be lost with
    them; the nodes between pass it on unread (see `DeviceMemories`).

    Attributes:
        memory: (s, M) what the devices of the plan remember, by an objective or a stage of their uploads; None for
            others.
        work: what the devices did in earlier stretches of the interval, in the rows of the plan, where they have a
            memory of it.
        models: (m, M) the edge server's models before that devices still train from, by their numbers (`Backlog`).
        watched: whether the devices' own last models, and their last steps, are wanted.
        ends: (s', M) these w_i, of the devices of the last aggregation; `last_steps` likewise.
        variate: (M,) weighted average of the changes of the devices' control variates, where they send any.
    """

    memory: Tensor | None = None
    work: LocalWork | None = None
    models: Tensor | None = None
    watched: bool = False
    ends: Tensor | None = None
    last_steps: Tensor | None = None
    variate: Tensor | None = None


NO_STATE = SubnetState()
_Travels = TypeVar("_Travels", bound="Upload | SubnetState | LocalWork | Order | TrainingResult")


def moved_to(value: _Travels, device: torch.device) -> _Travels:
    """A copy in the memory of that processor."""

    def moved(part: Any) -> Any:
        if isinstance(part, SubnetState | LocalWork):
            return moved_to(part, device)
        return part.to(device) if isinstance(part, Tensor) else part

    return replace(value, **{field.name: moved(getattr(value, field.name)) for field in fields(value)})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One interval of one subnet, or a stretch of it up to an aggregation further up.

    Attributes:
        at: its segments; the last aggregation of an interval is the global one.
        tasks: of the s_c^k devices that take part.
        shares: (s_c^k,) rho_j, summing to 1; an aggregation that lacks some of the devices renormalises them.
        weights: (len(segments), s_c^k) by which uploads are multiplied in each aggregation, 0 for those that do not
            arrive.
        reach: (len(segments), s_c^k) how far each average moves where one upload moves by 1; the weights, where it is
            a sum.
        portions: (len(segments), s_c^k) the share of a whole upload's noise that each upload asks for, at most 1: a
            device that normalises what it sends by the steps that it finished adds as much less. None for all of it.
        noise_std: (len(segments), s_c^k) levels where devices add noise, (len(segments), 1) where the edge server does,
            (len(segments), 0) where neither does. Standard deviations, but for mechanisms that say otherwise.
        state: the state of the subnet that comes with the plan.
        received: which row of the broadcast is the model for this subnet, and which a control variate, if there is one;
            empty where it is the model alone.
        stage_facts: (len(segments),) the facts that stages of uploads need at each aggregation; empty where none do.
        begun: with which models the uploads began, where the edge server does not wait for all; None: each with the
            model of the aggregation before.
    """

    at: tuple[Segment, ...]
    tasks: Tasks
    shares: np.ndarray
    noise_std: np.ndarray
    weights: np.ndarray
    reach: np.ndarray
    portions: np.ndarray | None = None
    state: SubnetState = NO_STATE
    received: tuple[int, ...] = ()
    stage_facts: tuple[StageFacts, ...] = ()
    begun: Backlog | None = None

    @property
    def rows(self) -> np.ndarray:
        """(s_c^k,) rows of the devices that take part, ascending."""
        return self.tasks.rows

    @property
    def segments(self) -> tuple[int, ...]:
        """Local steps before each aggregation."""
        return self.tasks.segments

    @property
    def step_size(self) -> float:
        """eta_k."""
        return self.at[-1].step_size

    @property
    def last_slot(self) -> int:
        """t_{k+1}, or that of the aggregation at the end of the stretch."""
        return self.at[-1].last_slot

    def ends(self) -> tuple[int, ...]:
        """The slot of each aggregation."""
        return tuple(each.last_slot for each in self.at)

    def part(self, first: int, stop: int) -> Plan:
        """The segments first .. stop - 1, for a subnet above which somebody aggregates at their end."""
        return replace(
            self,
            at=self.at[first:stop],
            tasks=self.tasks.part(first, stop),
            noise_std=self.noise_std[first:stop],
            weights=self.weights[first:stop],
            reach=self.reach[first:stop],
            portions=None if self.portions is None else self.portions[first:stop],
            stage_facts=self.stage_facts[first:stop],
        )

    def aggregation(self, segment: int) -> SubnetPhase:
        """The aggregation that ends this segment, counted from 0 or, with -1, from the end."""
        segment %= len(self.segments)
        rows, steps, shares, levels = self.rows, self.tasks.steps[segment], self.shares, self.noise_std[segment]
        weights, reach = self.weights[segment], self.reach[segment]
        if not self.tasks.whole:
            arrived = steps > 0
            if not arrived.any():
                levels = levels[:0]
            elif levels.size == arrived.size > 1:  # of a lone device or of the edge server: the same
                levels = levels[arrived]
            shares = present_shares(shares, arrived)[arrived]
            rows, steps, weights, reach = rows[arrived], steps[arrived], weights[arrived], reach[arrived]
        facts = self.stage_facts[segment] if self.stage_facts else NO_FACTS
        return SubnetPhase(
            segment=self.at[segment],
            number=segment,
            noise_std=0.0,
            release=facts.numbers[0] if facts.numbers else 0,
            rows=rows,
            steps=steps,
            shares=shares,
            weights=weights,
            reach=reach,
            levels=levels,
            facts=facts,
        )

    def aggregations(self) -> Iterator[SubnetPhase]:
        """The aggregations of all segments, in order."""
        return map(self.aggregation, range(len(self.segments)))

    def exposure(self, segment: int, exposures: np.ndarray) -> float:
        """The largest reach of a device in an average, times its exposure (s_c^k,), see `Mechanism.exposures`."""
        if self.portions is not None:
            exposures = exposures * self.portions[segment]
        return float((self.reach[segment] * exposures).max())


def present_shares(shares: np.ndarray, present: np.ndarray) -> np.ndarray:
    """(..., s) shares renormalised over the devices that are there (..., s), 0 for the others.

    >>> present_shares(np.array([0.5, 0.25, 0.25]), np.array([False, True, True])).tolist()
    [0.0, 0.5, 0.5]
    """
    kept = shares * present
    total = kept.sum(axis=-1, keepdims=True)
    return np.asarray(kept / np.where(total > 0, total, 1.0))


@dataclass(frozen=True, kw_only=True)
class Order(Cohort):
    """An order to a group of devices: train from the broadcast model over a segment, then upload.

    Its segment is on the clock of these devices, its levels are empty where they add no noise.

    Attributes:
        corrections: (s, M) added to each device's directions, by what it remembers; None for nothing.
        memory: (s, M) what each device remembers of its earlier uploads; None where no stage of uploads does.
        watched: see `SubnetState`.
        weights: (s,) of the uploads in a sum, where that alone is wanted; None where each is.
    """

    corrections: Tensor | None = None
    memory: Tensor | None = None
    watched: bool = False
    weights: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The upload of an aggregator.

    Attributes:
        update: (M,) the model that was received less the aggregator's own, with all noise that is in it.
        raw: it has updates of trusting devices on which no node has added noise yet.
        state: of an edge server: what its subnet needs next.
    """

    update: Tensor
    raw: bool = False
    state: SubnetState = NO_STATE
