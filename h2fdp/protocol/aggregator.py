"""An aggregator's part in an interval: Algorithm 2 of H2FDP, at any tier of the tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from torch import Tensor

from h2fdp.privacy import AggregationKind, add_gaussian_noise
from h2fdp.protocol.messages import Upload
from h2fdp.streams import Streams


@dataclass(frozen=True, kw_only=True)
class AggregationStage:
    """A stretch of an aggregator's interval: its children work, then what they send is averaged.

    Attributes:
        interval: k, from 0.
        slot: of the aggregation at its end.
        kind: local, or global where the cloud aggregates.
        own: whether this aggregator itself is the one that broadcasts, not one above it.
        noise_std: of the noise that this aggregator adds to the average; 0 where it adds none.
    """

    interval: int
    slot: int
    kind: AggregationKind
    own: bool
    noise_std: float


S = TypeVar("S", bound=AggregationStage)


class Children(Protocol[S]):
    """What is below an aggregator, over one interval: devices, or other aggregators.

    Attributes:
        received: (M,) the model that came down.
        stages: those in which anything arrives. An average of nothing is not a release, and gets no noise.
    """

    received: Tensor
    stages: Sequence[S]

    def parts(self, stage: S) -> Mapping[str, Any]:
        """What each child is asked to do in a stage."""
        ...

    def arrived(self, stage: S, model: Tensor, uploads: Mapping[str, Any]) -> tuple[list[Tensor], np.ndarray]:
        """The updates (M,) of what began the stage at `model`, and their weights (n,)."""
        ...

    def upload(self, update: Tensor) -> Upload:
        """The aggregator's own upload."""
        ...


@dataclass(frozen=True)
class Broadcast:
    """What an aggregator asks of its children in a stage: the model (M,) that it broadcasts, and a part for each."""

    model: Tensor
    parts: Mapping[str, Any]


Interval = Generator[Broadcast, Mapping[str, Any], Upload]


class Aggregator(ABC):
    """An edge server, or a node above edge servers: its children are devices or aggregators.

    Attributes:
        name: the node of its noise streams.
    """

    name: str
    streams: Streams

    @abstractmethod
    def begin(self, broadcast: Tensor, plan: Any) -> Children[Any]:
        """What is below it, at the beginning of an interval."""

    @abstractmethod
    def adds_noise(self, stage: Any) -> bool:
        """Whether it has to add noise at the end of a stage. It knows that itself, whatever the plan says."""

    def interval(self, broadcast: Tensor, plan: Any) -> Interval:
        """Algorithm 2 at one aggregator: yields what its children are to do, is sent their uploads, returns its own.

        1. The children work over a stage from the aggregator's model, and upload what they accumulated.
        2. The aggregator subtracts their average from its model, (9)-(12), with noise of its own where that is due, and
           broadcasts the result (13) at the beginning of the next stage.
        3. At the end it uploads the model that it received less its own: everything that was accumulated below, noises
           included (14). Its own last average is in it whoever aggregates at the end, itself or a node above.

        Args:
            broadcast: what came down: (M,) a model, or more vectors, of which the plan says which is which.
        """
        children = self.begin(broadcast, plan)
        model = children.received
        for stage in children.stages:
            uploads = yield Broadcast(model, children.parts(stage))
            average = weighted_sum(*children.arrived(stage, model, uploads))
            if self.adds_noise(stage):
                stream = self.streams.borrowed(self.name, f"noise-{stage.kind}", stage.interval, stage.slot)
                average = add_gaussian_noise(average, stage.noise_std, stream)
            model = model - average
        return children.upload(children.received - model)


def in_step(
    intervals: Mapping[str, Interval], perform: Callable[[Mapping[str, Broadcast]], Mapping[str, Mapping[str, Any]]]
) -> dict[str, Upload]:
    """Run the intervals of several aggregators side by side, stage by stage.

    Args:
        perform: has the children of all these aggregators do what they are asked, by whatever means.
    """
    uploads: dict[str, Upload] = {}
    calls: dict[str, Broadcast] = {}
    answers: Mapping[str, Mapping[str, Any]] = {}
    waiting = list(intervals)
    while waiting:
        for name in waiting:
            try:
                calls[name] = intervals[name].send(answers[name]) if name in answers else next(intervals[name])
            except StopIteration as end:
                uploads[name] = end.value
        waiting = [name for name in waiting if name not in uploads]
        answers = perform({name: calls[name] for name in waiting}) if waiting else {}
    return {name: uploads[name] for name in intervals}


def weighted_sum(vectors: list[Tensor], weights: np.ndarray) -> Tensor:
    """sum_j weights_j vectors_j, added in order: element by element, so that no layout changes a bit."""
    total = vectors[0] * float(weights[0])
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total.add_(vector, alpha=float(weight))
    return total
