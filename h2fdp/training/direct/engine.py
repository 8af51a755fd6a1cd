"""The engine of large models: a device fills the machine by itself, and its gradients are added where they belong."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.errors import UserError
from h2fdp.models import ParameterLayout
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping, NormVotes
from h2fdp.training.descent import Descent
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.direct.layers import (
    Convolution,
    Differentiated,
    Flattened,
    GroupNorm,
    LargestOfWindows,
    Layer,
    Linear,
    Pair,
    Rectifier,
    Step,
    Tanh,
)
from h2fdp.training.direct.record_gradients import RecordGradients, clip_each
from h2fdp.training.direct.target import Target
from h2fdp.training.gradients.chain import is_of_torch, is_trained_as_it_is
from h2fdp.training.local_objective import ClosedForm, LocalObjective, closed_form_of, comparison_of
from h2fdp.training.losses import CROSS_ENTROPY, Loss
from h2fdp.training.precision import NUMBERS, Precision
from h2fdp.training.work import PLAIN_TERMS, StepTerms, TrainingResult


def direct_chain(module: nn.Module, numbers: torch.dtype = torch.float32) -> list[Step] | None:
    """The steps of a chain of Linear, Conv2d and GroupNorm layers and torch's own without parameters; else None.

    A pool of what a rectifier gives is taken before it, on fewer numbers: the largest of the rectified numbers of a
    window is its largest one, rectified, and the gradient goes to the same place, or nowhere.

    Args:
        numbers: to which the factors of products are rounded in convolutions. The weights of a linear layer are read
            once for a batch, and to round them takes as long as to multiply.
    """
    if not is_trained_as_it_is(module):
        return None
    steps: list[Step] = []
    for name, part in _leaves(module, ""):
        step = _step(part, tuple(f"{name}{own}" for own, _ in part.named_parameters()), numbers)
        if step is None:
            return None
        if isinstance(step, LargestOfWindows) and steps and isinstance(steps[-1], Rectifier):
            steps.insert(-1, step)
        else:
            steps.append(step)
    # What is kept for the way back must not be overwritten: these work in the memory of a layer's output.
    for place, step in enumerate(steps):
        if isinstance(step, (Rectifier, Tanh)) and not (place and isinstance(steps[place - 1], _OWN_MEMORY)):
            steps[place] = Differentiated(nn.ReLU() if isinstance(step, Rectifier) else nn.Tanh())
    return steps if any(step.names for step in steps) else None


_OWN_MEMORY = (Linear, Convolution, GroupNorm, LargestOfWindows)  # they need their outputs no more on the way back


def _leaves(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential:
        return [leaf for name, child in module.named_children() for leaf in _leaves(child, f"{prefix}{name}.")]
    return [(prefix, module)]


def _step(module: nn.Module, names: tuple[str, ...], numbers: torch.dtype) -> Step | None:
    own = {name.rpartition(".")[2] for name in names}
    if not names:
        if not is_of_torch(module):
            return None
        if type(module) is nn.ReLU:
            return Rectifier()
        if type(module) is nn.Tanh:
            return Tanh()
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            return Flattened()
        if type(module) is nn.MaxPool2d and not module.return_indices:
            kernel, stride, padding, dilation = map(
                _pair, (module.kernel_size, module.stride, module.padding, module.dilation)
            )
            return LargestOfWindows(kernel, stride, padding, dilation, module.ceil_mode)
        if getattr(module, "inplace", False):
            module = copy(module)
            setattr(module, "inplace", False)  # noqa: B010
        return Differentiated(module)
    if not own <= {"weight", "bias"} or len(own) != len(names):
        return None
    if type(module) is nn.Linear:
        return Linear(names)
    if type(module) is nn.GroupNorm and module.affine:
        return GroupNorm(names, module.num_groups, module.eps)
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if plain and _is_pair(module.stride) and _is_pair(module.padding):
            return Convolution(names, module.stride, module.padding, numbers)
    return None


def _is_pair(sides: Any) -> TypeGuard[Pair]:
    return isinstance(sides, tuple) and len(sides) == 2


def _pair(sides: Any) -> Pair:
    return (sides[0], sides[1]) if _is_pair(sides) else (sides, sides)


_RECORDS_AT_ONCE = 256  # it bounds the memory of a device that draws everything it holds


def why_not_direct(module: nn.Module, objective: LocalObjective) -> str | None:
    """What the engine lacks for these, as the end of a sentence; None where it can train them."""
    if direct_chain(module) is None:
        return "it knows chains of Linear, Conv2d and GroupNorm layers, between them torch's own without parameters"
    if comparison_of(objective) is not None:
        return "it knows no objective that compares models"
    return None


class DirectEngine:
    """One device after another, without autograd and without a copy of the gradient where a step is nothing else.

    A plain step, w - eta g, adds each layer's gradient to the weights on the way back. Everything else (clipping, an
    objective with more terms, momentum, noise) takes the gradient as a vector. A device's bits are its own.

    Args:
        precision: of the factors of convolutions' products; models, sums, norms, clipped gradients and noise keep 32
            bits. Gradients of clipped records are added up as they were measured, so that none exceeds its bound.

    Raises:
        UserError: a model or an objective that it does not know.
    """

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        objective: LocalObjective,
        momentum: float = 0.0,
        loss: Loss = CROSS_ENTROPY,
        precision: Precision = "float32",
    ) -> None:
        if reason := why_not_direct(module, objective):
            raise UserError(f"expected another engine than direct: {reason}", key="runtime.engine")
        chain = direct_chain(module, NUMBERS[precision])
        assert chain is not None, "checked above"
        self._chain: list[Step] = chain
        self._first = next(place for place, step in enumerate(chain) if step.names)  # nothing before it learns
        self._way_back = range(len(chain) - 1, self._first - 1, -1)
        self._layout, self._loss, self._descent = ParameterLayout(module), loss, Descent(objective, momentum)
        self._record_clipping = clipping if clipping is not None and clipping.scope == "record" else None
        self._batch_clipping = clipping.for_batches if clipping is not None and clipping.of_batches else None
        self._plain = self._batch_clipping is None and momentum == 0.0 and closed_form_of(objective) == ClosedForm()

    def train(
        self,
        starts: Tensor,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        step_size: float,
        terms: StepTerms = PLAIN_TERMS,
    ) -> TrainingResult:
        """See `Engine.train`."""
        votes = terms.clip_norm is not None
        trained = TrainingResult.room(starts, self._descent.objective.personal, terms.watched, votes)
        with torch.no_grad():
            for position, (start, row, steps) in enumerate(zip(starts, rows, batches.steps_done, strict=True)):
                drawn = [batches.of(slot, position) + records.offsets[row] for slot in range(int(steps))]
                work = _Work(records, drawn, batches.divisors[:, position], terms.part(np.array([position])))
                plain = self._plain and terms.corrections is None and terms.noise is None and not votes
                found = (self._plainly if plain else self._generally)(start, work, step_size)
                trained.place(position, found)
        return trained

    def _plainly(self, start: Tensor, work: _Work, step_size: float) -> TrainingResult:
        """Steps w - eta g."""
        model, before = start.clone(memory_format=torch.contiguous_format), None
        for slot, drawn in enumerate(work.drawn):
            if work.terms.watched and slot == len(work.drawn) - 1:
                before = model.clone()
            if 0 < len(drawn) <= _RECORDS_AT_ONCE:
                self._add_gradient(model, model, 1.0, -step_size, work, drawn, work.divisors[slot])
            else:
                model.sub_(self._mean(model, work, drawn, work.divisors[slot]), alpha=step_size)
        last = None
        if work.terms.watched:
            last = torch.zeros_like(model) if before is None else before.sub_(model)
        return TrainingResult(torch.sub(start, model, out=model), None, last)

    def _generally(self, start: Tensor, work: _Work, step_size: float) -> TrainingResult:
        """Steps of any objective, by the gradient as a vector."""
        start = start.contiguous()
        state, last = self._descent.begin(start), torch.zeros_like(start)
        correction = None if work.terms.corrections is None else work.terms.corrections[0]
        for slot in range(len(work.drawn)):
            moved = self._descent.step(state, partial(self._gradient, work, slot), start, step_size, correction)
            if work.terms.watched:
                last = state.models - moved.models
            state = moved
        counted = None if work.votes is None else work.votes.sums[0]
        return TrainingResult(start - state.models, state.personal, last if work.terms.watched else None, counted)

    def _gradient(self, work: _Work, slot: int, model: Tensor) -> Tensor:
        """(M,) what a step follows: the gradient over the drawn records, clipped and noisy as asked."""
        divisor = work.divisors[slot]
        found = self._mean(model, work, work.drawn[slot], divisor)
        if self._batch_clipping is not None:
            clipping = (
                self._batch_clipping if work.votes is None else replace(self._batch_clipping, norm=work.votes.norm)
            )
            clipping.apply(found, out=found)
        if work.terms.noise is not None:
            work.terms.noise.add(found[None], slot, np.array([divisor]))
        return found

    def _mean(self, model: Tensor, work: _Work, drawn: np.ndarray, divisor: float) -> Tensor:
        """(M,) sum of the records' gradients / divisor, clipped one by one as asked; zero without records."""
        found = torch.empty_like(model) if len(drawn) > 0 else torch.zeros_like(model)  # the first part overwrites it
        for first in range(0, len(drawn), _RECORDS_AT_ONCE):
            part = drawn[first : first + _RECORDS_AT_ONCE]
            self._add_gradient(model, found, float(first > 0), 1.0, work, part, divisor)
        return found

    def _add_gradient(
        self, model: Tensor, target: Tensor, kept: float, factor: float, work: _Work, drawn: np.ndarray, divisor: float
    ) -> None:
        """target = kept target + factor (sum of the records' gradients, clipped as asked / divisor).

        The target may be the model.
        """
        x, y = work.records.gather(drawn)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        parameters, held = (
            [[views[name] for name in step.names] for step in self._chain]
            for views in (self._layout.views(model), self._layout.views(target))
        )
        targets = [Target(each, kept, factor) for each in held]
        saved = []
        for step, own in zip(self._chain, parameters, strict=True):
            x, kept_back = step.forward(own, x)
            saved.append(kept_back)
        if self._record_clipping is not None:
            delta = self._loss.score_gradient(x[None], y[None])[0]
            self._add_clipped(parameters, saved, delta, targets, divisor, work.votes)
            return
        shares = torch.full((1, len(drawn)), 1.0 / divisor)
        goes_back: Tensor | None = self._loss.score_gradient(x[None], y[None], shares)[0]
        for place in self._way_back:
            assert goes_back is not None, "it goes on"
            further = place > self._first
            goes_back = self._chain[place].back(parameters[place], saved.pop(), goes_back, targets[place], further)

    def _add_clipped(
        self,
        parameters: list[list[Tensor]],
        saved: list[Any],
        delta: Tensor | None,
        targets: list[Target],
        divisor: float,
        votes: NormVotes | None,
    ) -> None:
        """Each record's gradient, clipped, to the targets, to which nothing is added before all norms are known.

        Args:
            delta: (W, classes) the gradient of each record's loss in its scores.
        """
        assert self._record_clipping is not None
        places: list[int] = []
        found: list[list[RecordGradients]] = []
        for place in self._way_back:
            assert delta is not None, "it goes on"
            step, further = self._chain[place], place > self._first
            if isinstance(step, Layer):
                delta, gradients = step.back_by_record(parameters[place], saved.pop(), delta, further)
                places.append(place)
                found.append(gradients)
            else:
                delta = step.back(parameters[place], saved.pop(), delta, targets[place], further)
        clipped, factors = clip_each(found, self._record_clipping.norm, self._record_clipping.gamma, divisor, votes)
        for place, layer in zip(places, clipped, strict=True):
            for each in layer:
                each.add(factors, targets[place])


class _Work:
    """The steps of one device.

    Attributes:
        drawn: positions in the block of records, slot by slot.
        divisors: (slots,) what sums are divided by.
        terms: of this device.
        votes: its records' votes about the clip norm, where there are any.
    """

    def __init__(self, records: DeviceRecords, drawn: list[np.ndarray], divisors: np.ndarray, terms: StepTerms) -> None:
        self.records, self.drawn, self.divisors, self.terms = records, drawn, divisors.tolist(), terms
        self.votes = None if terms.clip_norm is None else NormVotes.none(terms.clip_norm, torch.empty(1))
