"""The fast engine: the devices of a host as one batched computation, stack by stack.

The batches of a stack are cut into passes of one width, so that a stack is one block of numbers. A larger batch takes
as many passes as it needs, of just the devices that have one: no draw is ever cut, since cutting would void the privacy
account. Every pass has the full width, the same in the whole network, so that a device's arithmetic, and with it every
bit, is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.data.augmentation import Variants
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords, placed
from h2fdp.training.gradients.rule import GradientRule, LayeredGradients, Precision, gradient_rule
from h2fdp.training.local_steps import (
    PLAIN_TERMS,
    Descent,
    DescentState,
    Gradient,
    StepTerms,
    TrainingResult,
    comparison_of,
    once,
    previous_models,
    pull_alone,
)
from h2fdp.training.losses import CROSS_ENTROPY, Loss

# Records that are computed at once: x (m, width, *shape) as the model sees them, labels (m, width, ...), and (m, width)
# shares of 1 / |xi_i|, or 1 / (q_i D_i), for a drawn record, 0 for padding. With variants, x and labels have all of a
# record where it stands.
PaddedBatch = tuple[Tensor, Tensor, Tensor]


class PaddedBatches:
    """All batches of a stack, placed where its records are; those of a pass are gathered when it comes.

    A pass is good until the next one: they share their memory.

    Args:
        rows: (n,) rows of `records`.
        batches: of these n devices.
        width: records of a device in a pass.
        padded: every pass has the full width; without, where a device is alone by rule, just its own records.
        variants: of these devices' records, see `StepTerms`.
    """

    def __init__(
        self,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        width: int,
        padded: bool = True,
        variants: Variants | None = None,
    ) -> None:
        self._variants = variants
        self._records = records
        self._rows = rows
        self._batches = batches
        self.width = width
        self._padded = padded
        self.counts = batches.counts
        self.divisors = batches.divisors
        self._most = batches.counts.max(axis=1, initial=0)
        # Slots at which all devices draw all records, in their order; a GPU would have a call for each device.
        plain = variants is None and records.x.device.type == "cpu"
        self._whole = (batches.counts == records.sizes[rows]).all(axis=1) & plain
        for slot in np.flatnonzero(self._whole):
            columns = np.arange(batches.indices.shape[2])
            others = columns >= batches.counts[slot, :, None]
            self._whole[slot] = bool(((batches.indices[slot] == columns) | others).all())
        # Memory for the records of a pass, used again by the next: fresh memory costs more than the numbers in it.
        times = 1 if variants is None else variants.rule.times
        shape = (len(rows) * width * times, *records.x.shape[1:])
        self._memory = torch.empty(shape, dtype=torch.float32, device=records.x.device)
        self._blocks: dict[int, list[tuple[Tensor, ...]]] = {}

    def first(self, slot: int, devices: int) -> PaddedBatch:
        """The first pass of the first `devices` of the stack at the slot-th slot."""
        positions, labels, shares = self._block(0)[slot]
        if devices < len(self._rows):
            positions, labels, shares = positions[:devices], labels[:devices], shares[:devices]
        if not self._padded:
            used = min(self.width, max(1, int(self._most[slot])))
            positions, labels, shares = positions[:, :used], labels[:, :used], shares[:, :used]
        if self._whole[slot]:
            return self._in_order(0, slot, range(devices), positions), labels, shares
        return self._gathered(positions, labels, shares, self._codes(slot, range(devices), 0))

    def later(self, slot: int, devices: int, at_least: int) -> Iterator[tuple[Tensor, PaddedBatch]]:
        """The other passes, and the (m,) positions in the stack of the devices that they are of.

        Args:
            at_least: devices in any pass; where fewer need one, another takes part with no share in the sum.
        """
        number = 1
        while self._most[slot] > number * self.width:
            late = np.flatnonzero(self.counts[slot, :devices] > number * self.width)
            if not late.size:
                return
            padded = np.concatenate([late, np.repeat(late[:1], max(0, at_least - late.size))])
            chosen = placed(padded, self._records.x.device)
            at, labels, shares = (part.index_select(0, chosen) for part in self._block(number)[slot])
            shares[late.size :] = 0.0
            if self._whole[slot]:
                yield chosen, (self._in_order(number, slot, padded.tolist(), at), labels, shares)
            else:
                yield chosen, self._gathered(at, labels, shares, self._codes(slot, padded.tolist(), number))
            number += 1

    def _block(self, number: int) -> list[tuple[Tensor, ...]]:
        """The number-th passes of all slots: (n, width) positions in the block of records, labels and shares."""
        if number not in self._blocks:
            columns = np.arange(number * self.width, (number + 1) * self.width)
            indices, counts = self._batches.indices, self.counts
            drawn = columns < counts[:, :, None]
            positions = np.empty(drawn.shape, dtype=np.int64)
            held = indices[:, :, columns[0] : columns[-1] + 1]
            positions[:, :, : held.shape[2]] = held
            # Padding repeats a drawn record, and adds no other.
            first = np.where(counts > 0, indices[:, :, 0], 0)[:, :, None]
            np.copyto(positions, first, where=~drawn)
            positions += self._records.offsets[self._rows][:, None]
            shares = drawn * (1.0 / self.divisors).astype(np.float32)[:, :, None]
            device = self._records.x.device
            at = placed(positions, device)
            labels = self._records.y.index_select(0, at.view(-1))
            labels = labels.view(*at.shape, *labels.shape[1:])
            parts = (at, labels, placed(shares, device))
            self._blocks[number] = list(zip(*(part.unbind() for part in parts), strict=True))
        return self._blocks[number]

    def _codes(self, slot: int, devices: Sequence[int], number: int) -> np.ndarray | None:
        """(m, width, times) variants of the records of these devices in the number-th pass; those of padding are 0."""
        if self._variants is None:
            return None
        codes = np.zeros((len(devices), self.width, self._variants.rule.times), dtype=np.int64)
        for own, device in zip(codes, devices, strict=True):
            drawn = self._variants.codes(slot, device, int(self.counts[slot, device]))[number * self.width :]
            own[: len(drawn)] = drawn[: self.width]
        return codes

    def _gathered(self, positions: Tensor, labels: Tensor, shares: Tensor, codes: np.ndarray | None) -> PaddedBatch:
        x = self._records.x.index_select(0, positions.reshape(-1))
        if self._variants is not None and codes is not None:
            times = self._variants.rule.times
            x = self._variants.rule.images(x, codes[:, : positions.shape[1]].reshape(-1, times))
            labels = labels.repeat_interleave(times, dim=1)
        scaled = self._records.scaled(x, self._memory[: len(x)])
        return scaled.view(len(positions), -1, *x.shape[1:]), labels, shares

    def _in_order(self, number: int, slot: int, chosen: Sequence[int], positions: Tensor) -> Tensor:
        """(m, width, *shape) records of the number-th pass of the chosen devices, from where they lie."""
        records, memory = self._records, self._memory[: positions.numel()]
        found = memory.view(*positions.shape, *memory.shape[1:])
        for device, own in zip(chosen, found, strict=True):  # small enough for the cache
            first = int(records.offsets[self._rows[device]])
            begin, stop = number * self.width, int(self.counts[slot, device])
            lying = records.x[first + begin : first + min(begin + len(own), stop)]
            records.scaled(lying, own[: len(lying)])
            if len(lying) < len(own):
                own[len(lying) :] = records.scaled(records.x[first : first + 1])
        return found


# Numbers that a stack works on: models, gradients, records and activations. Measured on a CPU with 35 MB of cache:
# stacks of 17, 25, 50 and 100 softmax models took 58, 55, 50 and 46 us a device-step (each call costs), stacks of 2 to
# 12 models `ali-cnn-28` 3.0 ms, of 24 models 3.5. A GPU wants all the work that there is.
_VALUES_IN_A_STACK = {"cpu": 4_000_000, "cuda": 500_000_000}


class StackedEngine:
    """Many devices at once: parameters, objective's state and batches stacked over them.

    Equal bits for every split of devices over calls: no sum runs over devices, each pass has the same width, and a
    stack is never of one device (a product of one pair of matrices is another routine than a batch of them), unless a
    model is so large that every stack is. One intra-op thread is up to the caller.

    Args:
        width: records of a device in one pass, the same in the whole network (see `batches.padded_width`). Any width
            gives the same updates up to rounding; it sets the speed, and the last bits.
    """

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        descent: Descent,
        width: int,
        loss: Loss = CROSS_ENTROPY,
        precision: Precision = "float32",
    ) -> None:
        self._compares = comparison_of(descent.objective)
        self._rule: GradientRule = gradient_rule(module, clipping, loss, self._compares, precision)
        self._batch_clipping = clipping.for_batches if clipping is not None and clipping.of_batches else None
        self._descent = descent.on(module)
        plain = self._batch_clipping is None and descent.momentum == 0.0 and descent.optimizer is None
        self._plain = plain and pull_alone(descent.objective) == 0.0
        self._width = width
        self._stack_size = cache(partial(stack_size, module, width, self._rule.padding(width)))

    def train(
        self,
        starts: Tensor,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        step_size: float,
        terms: StepTerms = PLAIN_TERMS,
    ) -> TrainingResult:
        times = 1 if terms.variants is None else terms.variants.rule.times
        size = max(1, self._stack_size(records.x.shape[1:], records.x.device.type) // times)
        trained = TrainingResult.room(starts, self._descent.objective.personal, terms.watched, terms.kept)
        # Devices that stop early stand last in their stack, and like devices next to each other.
        order = np.argsort(-batches.steps_done, kind="stable")
        for stack in np.array_split(order, max(1, -(-len(rows) // size))):
            padded = np.resize(stack, max(len(stack), min(size, 2)))
            own = batches.part(padded)
            work = _Stack(
                starts[padded[0]][None] if len(padded) == 1 else starts.index_select(0, placed(padded, starts.device)),
                self._passes(size, records, rows[padded], own, terms.part(padded).variants),
                own.steps_done,
                step_size,
                min(size, 2),
                terms.part(padded),
            )
            trained.place(placed(stack, starts.device), self._train(work).part(slice(len(stack))))
        return trained

    def _passes(
        self, size: int, records: DeviceRecords, rows: np.ndarray, batches: Batches, variants: Variants | None
    ) -> PaddedBatches:
        alone = size == 1  # each device is computed alone: what its batches are is its own affair
        return PaddedBatches(records, rows, batches, self._width * (1 + alone), not alone, variants)

    def _train(self, stack: _Stack) -> TrainingResult:
        """One stack, whose devices' numbers of steps fall."""
        state, ended = self._descent.begin(stack.starts, stack.terms.corrections, stack.terms.kept), []
        last = torch.zeros_like(stack.starts) if stack.terms.watched else None
        starts, corrections = stack.starts, stack.terms.corrections if self._descent.corrects else None
        moving = len(starts)
        slots = int(stack.steps.max(initial=0))
        if rule := self._in_place(stack):
            state = replace(state, models=stack.starts.clone())
        for slot in range(slots):
            if rule is not None and 0 < stack.passes.counts[slot, 0] <= stack.passes.width:
                before = state.models.clone() if last is not None and slot == slots - 1 else None
                rule.descend(state.models, *stack.passes.first(slot, 1), stack.step_size)
                last = last if before is None else before.sub_(state.models)
                continue
            active = int(np.count_nonzero(stack.steps > slot))
            if active < moving:  # the last ones are done; `at_least` are computed on, for nothing
                ended.append(state.part(slice(active, moving)))
                moving, computed = active, max(active, stack.at_least)
                state, starts = state.part(slice(computed)), starts[:computed]
                corrections = None if corrections is None else corrections[:computed]
            gradient: Gradient = partial(self._gradient, stack, slot, len(starts))
            gradient = gradient if stack.terms.noise is None else once(gradient)
            moved = self._descent.step(state, gradient, starts, stack.step_size, corrections, slot)
            if last is not None:
                last[:active] = state.models[:active] - moved.models[:active]
            state = moved
        whole = DescentState.joined([state.part(slice(moving)), *reversed(ended)])
        updates, personal = self._descent.ended(stack.starts, whole, None if rule is None else whole.models)
        return TrainingResult(updates, personal, last, None if whole.steps is None else whole.kept)

    def _in_place(self, stack: _Stack) -> LayeredGradients | None:
        """The rule where one device takes plain steps, w - eta g: each layer's gradient goes to the weights at once."""
        terms = stack.terms
        more = terms.corrections is not None or terms.noise is not None
        alone = self._plain and len(stack.starts) == 1 and not more
        return self._rule if alone and isinstance(self._rule, LayeredGradients) else None

    def _gradient(self, stack: _Stack, slot: int, devices: int, models: Tensor) -> Tensor:
        """(n, M) what a step follows: gradients over the drawn records, clipped and noisy as asked."""
        passes = stack.passes
        others = self._others(stack, devices)
        total = self._rule.sums(models, *passes.first(slot, devices), others)
        for chosen, each in passes.later(slot, devices, stack.at_least):
            own = None if others is None else (others[0].index_select(0, chosen), others[1].index_select(0, chosen))
            total.index_add_(0, chosen, self._rule.sums(models.index_select(0, chosen), *each, own))
        empty = np.flatnonzero(passes.counts[slot, :devices] == 0)
        if empty.size:  # an empty Poisson batch gives a zero gradient
            total.index_fill_(0, placed(empty, total.device), 0.0)
        if self._batch_clipping is not None:
            self._batch_clipping.apply(total, out=total)
        if stack.terms.noise is not None:
            stack.terms.noise.add(total, slot, passes.divisors[slot, :devices])
        return total

    def _others(self, stack: _Stack, devices: int) -> tuple[Tensor, Tensor] | None:
        """(n, M) the models that devices received and had before, for an objective that compares with them."""
        if self._compares is None:
            return None
        assert stack.terms.corrections is not None, "the models that devices had before"
        received = stack.starts[:devices]
        return received, previous_models(stack.terms.corrections[:devices], received)


@dataclass(frozen=True)
class _Stack:
    """The devices of one computation, and their orders.

    Attributes:
        steps: (n,) local steps of each, falling.
        at_least: devices that are computed at once, however few have steps left.
    """

    starts: Tensor
    passes: PaddedBatches
    steps: np.ndarray
    step_size: float
    at_least: int
    terms: StepTerms


def stack_size(module: nn.Module, width: int, padding: int, shape: torch.Size, device_type: str) -> int:
    """Devices in a stack, by the numbers that a device takes: its model, its gradient, its records' activations.

    One where the rule would compute as many for nothing as fit: each device by itself is faster then.
    """
    record = torch.zeros(1, *shape, dtype=torch.float32, device=next(module.parameters()).device)
    activations = record.numel()

    def count(_layer: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal activations
        given = {each.data_ptr() for each in _tensors(inputs)}
        activations += sum(each.numel() for each in _tensors(output) if each.data_ptr() not in given)

    leaves = [layer for layer in module.modules() if not any(layer.children())]
    hooks = [layer.register_forward_hook(count) for layer in leaves]
    with torch.no_grad():
        module(record)
    for hook in hooks:
        hook.remove()
    parameters = sum(each.numel() for each in module.parameters() if each.requires_grad)  # the rest is there once
    size = _VALUES_IN_A_STACK[device_type] // (2 * parameters + width * activations)
    return size if size > max(1, padding) else 1


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors that a layer took or gave: one, or several as a recurrent layer has them, in what holds them.

    >>> [len(each) for each in _tensors((torch.zeros(3), [torch.zeros(2), None]))]
    [3, 2]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)
