"""Devices of one subnet on one host: local training, noise before anything leaves them, and their own memories.

What a device remembers, during an interval and from one to the next, is refused under a guarantee, unless each of its
steps has noise: then all that it remembers is made of these. What a stage of its upload remembers has noise, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.data.augmentation import Augment, Variants
from h2fdp.privacy import Moment, Pipeline
from h2fdp.privacy.mechanisms.secret_draws import draw_of
from h2fdp.protocol.messages import Order, Plan, SubnetPhase, SubnetState, Upload, moved_to, present_shares
from h2fdp.schedules.measuring import Measured, MeasuringOrder, Probe
from h2fdp.streams import Streams
from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import Engine
from h2fdp.training.local_steps import Descent, LocalWork, OwnModels, StepTerms, TrainingResult


@dataclass(frozen=True)
class DeviceGroup:
    """Devices of a subnet; knows itself whether its edge server may see raw updates.

    Attributes:
        pipeline: the stages of the devices' uploads under their edge server. It is their own knowledge: an order
            without noise is not obeyed where they must add it.
        first_row: the row within the subnet of the first device of `records`; below 0 where the block begins with
            devices of other subnets.
        device_name: from a row within the subnet to the device's name, the node of its noise streams.
        probe: how to measure for a schedule of a user's own; None in runs that never do.
        augment: how records are changed in each step; None for records as they are.
        keeps_moments: what they remember is what their steps go on with, and not a part of their uploads.
    """

    streams: Streams
    pipeline: Pipeline
    first_row: int
    device_name: Callable[[int], str]
    records: DeviceRecords
    sampler: BatchSampler
    engine: Engine
    probe: Probe | None = None
    augment: Augment | None = None
    keeps_moments: bool = False

    def train(self, model: Tensor, order: Order) -> TrainingResult:
        """Local steps (7)-(8) of the ordered devices from `model` (M,), and what each of them uploads: (s, M).

        Delta_i, made private by their own side of the mechanism where that is up to them. This is called where a subnet
        is on several hosts; elsewhere `Lockstep` does the same for many groups together.
        """
        model, order = model.to(self.records.x.device), self.drawn(moved_to(order, self.records.x.device))
        starts = model.expand(len(order.rows), -1)
        terms, batches, records = self.terms(model, order), self.batches(order), self.records
        trained = self.engine.train(starts, records, self.held(order), batches, order.segment.step_size, terms)
        return moved_to(released(self.pipeline, trained, model, self.moment(order)), torch.device("cpu"))

    def drawn(self, order: Order) -> Order:
        """The order as its devices follow it: one that draws in secret, and does not take part, does no step."""
        if (draw := draw_of(self.pipeline)) is None:
            return order
        came = draw.came(self.streams, self.sampler.edge, order.segment.interval, order.rows)
        planned = len(order.segment.slots) if order.steps is None else order.steps
        return replace(order, steps=np.where(came, planned, 0))

    def terms(self, model: Tensor, order: Order) -> StepTerms:
        """The terms of an order's steps from `model` (M,)."""
        at = self.moment(order)
        own, corrections = self.pipeline.linear_terms(model, at), order.corrections
        if own is not None:
            corrections = own if corrections is None else corrections + own
        noise, variants, begun = self.pipeline.step_noise(at), None, order.segment
        if self.augment is not None:
            nodes = list(map(self.device_name, order.rows.tolist()))
            variants = Variants(self.augment, self.streams, nodes, begun.interval, begun.first_slot)
        kept = order.memory if self.keeps_moments else None
        return StepTerms(corrections, noise, order.watched, variants, kept)

    def held(self, order: Order | MeasuringOrder) -> np.ndarray:
        """(s,) the ordered devices' rows in `records`."""
        return np.asarray(order.rows - self.first_row)

    def batches(self, order: Order) -> Batches:
        """The mini-batches of an order's slots; a device that finishes fewer steps uses the first ones of its own."""
        drawn = self.sampler.draw(order.segment.interval, order.segment.slots, order.rows)
        return replace(drawn, steps=order.steps, expected=self.expected_batches(order))

    def expected_batches(self, order: Order) -> np.ndarray | None:
        """(s,) q_i D_i, or a stated number, where the sums of batches are divided by that; None: by what was drawn."""
        if self.pipeline.divisor == "drawn":
            return None
        if self.pipeline.divisor == "expected":
            return np.asarray((self.sampler.rates * self.sampler.sizes)[order.rows])
        return np.full(len(order.rows), self.pipeline.divisor)

    def moment(self, order: Order) -> Moment:
        """The facts that stages of an order's uploads depend on in addition to the updates."""
        if self.pipeline.noisy and len(order.levels) != len(order.rows):
            raise AssertionError("no device here uploads without noise")
        return order.becomes(
            Moment,
            streams=self.streams,
            nodes=list(map(self.device_name, order.rows.tolist())) if self.pipeline.draws else [],
            steps=np.full(len(order.rows), len(order.segment.slots)) if order.steps is None else order.steps,
            # Stages write into it.
            memory=None if order.memory is None or self.keeps_moments else order.memory.clone(),
        )

    def measure(self, model: Tensor, order: MeasuringOrder) -> Measured:
        """The measurements of the devices for a schedule at `model` (M,); raw."""
        assert self.probe is not None, "this run does not measure"
        return self.probe.measured(self.sampler, self.records, self.held(order), model, order)


def released(pipeline: Pipeline, trained: TrainingResult, received: Tensor, at: Moment) -> TrainingResult:
    """The updates that may leave devices, of one group or many, and what they keep; may overwrite updates (s, M).

    Threads that release side by side wait for the interpreter at each call, so the devices of all are given at once.

    Args:
        received: (M,) what they were sent, or (s, M) what each was.
    """
    sent = pipeline.encode(trained.updates, received, at)
    sent_alone = replace(trained, updates=sent, last_steps=None)
    kept = sent_alone if pipeline.hides else replace(trained, updates=sent)
    return kept if at.memory is None else replace(kept, memory=at.memory)


@dataclass
class WorkAccumulator:
    """The work of one subnet's devices so far in an interval, in the rows of its plan.

    Attributes:
        memory: (s, M) what the devices remember, of their work or of what they uploaded; None where they do not.
        work: since the interval began, where the objective has a memory of it.
    """

    descent: Descent
    plan: Plan
    variate: Tensor | None
    memory: Tensor | None
    work: LocalWork | None
    ends: Tensor | None = None
    last_steps: Tensor | None = None

    @classmethod
    def begun(cls, descent: Descent, plan: Plan, model: Tensor, variate: Tensor | None) -> WorkAccumulator:
        """The work of a stretch, at the model (M,) that was sent; it continues earlier stretches of the interval."""
        state = plan.state
        memory = None if state.memory is None else state.memory.to(model.device)
        work = None
        if state.work is not None:
            held = moved_to(state.work, model.device)
            memory, work = held.before, deepcopy(held)  # to be changed
        elif memory is not None and descent.objective.memory is not None:
            nothing = torch.zeros(len(plan.rows), dtype=torch.float64)
            work = LocalWork(
                before=memory,
                updates=torch.zeros_like(memory),
                ends=torch.zeros_like(memory),
                personal=torch.zeros_like(memory) if descent.objective.personal else None,
                steps=nothing,
                gradients=nothing.clone(),
                step_size=plan.step_size,
            )
        return cls(descent, plan, variate, memory, work)

    def corrections(self, rows: np.ndarray) -> Tensor | None:
        """(s, M) for the devices of these rows; None where nothing is corrected."""
        if self.memory is None or self.work is None:
            return None
        places = torch.from_numpy(self._places(rows))
        known = self.memory[places]
        own = isinstance(self.descent.objective, OwnModels)
        if own and self.work.personal is not None:  # the newest, of this interval
            moved = (self.work.steps[places, None] > 0).to(known.device)
            known = self.work.personal[places].where(moved, known)
        return self.descent.objective.correction(known, self.variate)

    def of_uploads(self, rows: np.ndarray) -> Tensor | None:
        """(s, M) what the devices of these rows remember of their uploads; None where they do not."""
        own = self.memory is not None and self.work is None
        return self.memory[torch.from_numpy(self._places(rows))] if own and self.memory is not None else None

    def note(self, part: SubnetPhase, model: Tensor, trained: TrainingResult, came: np.ndarray | None = None) -> None:
        """One aggregation, of devices that were sent `model` (M,).

        Args:
            came: (s,) whether each took part, where that is secret; None where all did.
        """
        if self.memory is not None and trained.memory is not None:
            places = torch.from_numpy(self._places(part.rows))
            self.memory = self.memory.index_copy(0, places, trained.memory.to(self.memory))
        if self.plan.state.watched:
            self.ends, self.last_steps = model - trained.updates, trained.last_steps
        if self.work is None:
            return
        if came is not None:
            part, trained = replace(part, rows=part.rows[came], steps=part.steps[came]), trained.part(came)
        places = torch.from_numpy(self._places(part.rows))
        self.work.updates[places] += trained.updates
        self.work.ends[places] = model - trained.updates
        if self.work.personal is not None:
            assert trained.personal is not None, "the objective trains personal models"
            self.work.personal[places] = trained.personal
        gradients = [self.descent.gain(steps) for steps in part.steps.tolist()]
        for own, more in ((self.work.steps, part.steps), (self.work.gradients, gradients)):
            own[places] += torch.tensor(more, dtype=own.dtype, device=own.device)

    def upload(self, update: Tensor) -> Upload:
        """The subnet's upload, with this update (M,), and what the devices need next."""
        memory, work, variate = self.memory, self.work, None
        if memory is not None and work is not None:
            made = replace(work, steps=work.steps.to(memory), gradients=work.gradients.to(memory))
            remembered = self.descent.objective.remembered(memory, self.variate, made)
            if self.variate is not None:
                shares = torch.from_numpy(present_shares(self.plan.shares, work.steps.cpu().numpy() > 0)).to(memory)
                variate = shares @ (remembered - memory)
            memory = remembered
        state = SubnetState(
            memory=memory,
            work=work if self.plan.at[-1].kind == "local" else None,
            watched=self.plan.state.watched,
            ends=self.ends,
            last_steps=self.last_steps,
            variate=variate,
        )
        return Upload(update=update, state=state)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """The places of these rows in the plan."""
        return np.searchsorted(self.plan.rows, rows)


class DeviceMemories:
    """The memories of devices from one interval to the next, by edge server and row; zero before their first.

    It grows with the devices that ever took part, and only where an objective or a stage of uploads has a memory.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[str, dict[int, Tensor]] = {}

    def of(self, edge: str, rows: np.ndarray) -> Tensor:
        """(s, M)."""
        held = self._held.get(edge, {})
        nothing = torch.zeros(self._size, dtype=torch.float32)
        return torch.stack([held.get(row, nothing) for row in rows.tolist()])

    def known(self, edge: str) -> dict[int, Tensor]:
        """Row -> memory (M,), of the devices that took part before."""
        return self._held.get(edge, {})

    def keep(self, edge: str, rows: np.ndarray, memory: Tensor) -> None:
        """Remember (s, M)."""
        held = self._held.setdefault(edge, {})
        for row, own in zip(rows.tolist(), memory, strict=True):
            held[row] = own.clone()  # not a view that keeps its whole block

    def state(self) -> dict[str, Any]:
        """The memories in plain values and tensors, for a checkpoint."""
        return {
            edge: {"rows": list(held), "memory": torch.stack(list(held.values()))} for edge, held in self._held.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        self._held = {}
        for edge, held in state.items():
            self.keep(edge, np.array(held["rows"]), held["memory"])
