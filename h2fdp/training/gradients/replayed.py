"""A gradient rule on a GPU: calls of one shape are recorded once and then replayed, one launch in place of dozens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from h2fdp.training.clipping import NormVotes
from h2fdp.training.gradients.rule import GradientRule

_WARM_UPS = 3  # calls before the recording, in which libraries choose their kernels and take their memory
_MOST_SHAPES = 8  # each holds its inputs and all that is computed of them
_MOST_VALUES = 20_000_000  # inputs of a call; larger ones keep a GPU busy while the next kernel is launched


class Recording(Protocol):
    """One call, whose inputs and output stay where they are."""

    output: Tensor

    def replay(self) -> None:
        """Compute the output again from what the inputs now hold."""
        ...


class CudaRecording:
    """A CUDA graph of a call; nothing in it may wait for the GPU or take memory by what was computed."""

    def __init__(self, call: Callable[[], Tensor]) -> None:
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UPS):
                call()
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads have their own
            self.output = call()

    def replay(self) -> None:
        self._graph.replay()


class ReplayedRule:
    """See `GradientRule`; the same numbers as those of the rule that it records.

    What votes or compares is computed as it comes; so are inputs of more than 80 MB, and shapes beyond the first eight:
    devices that stop early make a stack smaller, step by step.
    """

    def __init__(self, rule: GradientRule, record: Callable[[Callable[[], Tensor]], Recording] = CudaRecording) -> None:
        self._rule = rule
        self._record = record
        self._held: dict[tuple[torch.Size, ...], tuple[list[Tensor], Recording]] = {}

    def sums(
        self,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        shares: Tensor,
        others: tuple[Tensor, Tensor] | None = None,
        votes: NormVotes | None = None,
    ) -> Tensor:
        given = [models, x, y, shares]
        shape = tuple(each.shape for each in given)
        unknown = shape not in self._held and (len(self._held) >= _MOST_SHAPES or x.numel() > _MOST_VALUES)
        if others is not None or votes is not None or unknown:
            return self._rule.sums(models, x, y, shares, others, votes)
        if shape not in self._held:
            own = [each.clone(memory_format=torch.contiguous_format) for each in given]
            self._held[shape] = own, self._record(lambda: self._rule.sums(own[0], own[1], own[2], own[3]))
        inputs, recording = self._held[shape]
        for held, new in zip(inputs, given, strict=True):
            held.copy_(new)
        recording.replay()
        return recording.output.clone()  # the next replay overwrites it, and steps are taken in its memory
