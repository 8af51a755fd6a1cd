"""An aggregator's part in an interval, Algorithm 2 of H2FDP, at any tier; and how it talks to its children."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from h2fdp.algorithms import Aggregation, WeightedAverage
from h2fdp.algorithms.aggregation import weighted_sum
from h2fdp.network.parts import Replacement
from h2fdp.privacy import Moment, Pipeline
from h2fdp.privacy.places import Segment
from h2fdp.privacy.vectors import GAUSSIAN, NoiseLaw
from h2fdp.protocol.messages import AggregationPhase, Upload
from h2fdp.streams import Streams


class NodeGroup(Protocol):
    """Nodes that are addressed together, by name: how a node talks to the nodes below it.

    Calls go down the tree only, never up: an actor that waits for one that calls it back is a deadlock.
    """

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """Call `method(shared, each[name])` on every named node and wait for all.

        `shared` crosses a host's boundary once, however many of its nodes are called.
        """
        ...


@runtime_checkable
class SummingNodes(NodeGroup, Protocol):
    """Groups of devices on several hosts, of which the sum may be all that is wanted."""

    def add_up(self, method: str, shared: Any, each: Mapping[str, Any]) -> Tensor:
        """(M,) the sum of the updates that `call` answers with, by the weights of each item, in their order.

        No more than the sum so far leaves a host, for the next one to add to: the bits are those of one host.
        """
        ...


class InProcessNodes:
    """Nodes in this process, called one after another."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        self._nodes = dict(nodes)

    def node(self, name: str) -> Any:
        """A node itself, for nodes in the same process."""
        return self._nodes[name]

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """Each named node in turn."""
        return {name: getattr(self._nodes[name], method)(shared, item) for name, item in each.items()}


def added_up(answers: Mapping[str, Any], each: Mapping[str, Any], before: Tensor | None) -> Tensor:
    """(M,) the sum before, and the updates of these answers by the weights of their items, in the order of `each`."""
    for name, item in each.items():
        before = weighted_sum(answers[name].updates, item.weights, before)
    assert before is not None, "somebody is asked"
    return before


_AVERAGE = WeightedAverage()
_MOST_VALUES = 1 << 22  # of the updates that are averaged by one call


S = TypeVar("S", bound=AggregationPhase)


@dataclass(frozen=True)
class Broadcast:
    """Orders of an aggregator to children that begin with one model (M,): a part for each."""

    model: Tensor
    parts: Mapping[str, Any]


class Children(Protocol[S]):
    """Nodes below an aggregator, over one interval: devices, or other aggregators.

    Attributes:
        received: (M,) the model that came down.
        phases: those in which anything arrives. An average of nothing is not a release, and gets no noise.
    """

    received: Tensor
    phases: Sequence[S]

    def work(self, phase: S, model: Tensor) -> Sequence[Broadcast]:
        """The children's uploads in a phase to which the aggregator has `model` (M,): a part for each model that some
        of them began with."""
        ...

    def arrived(self, phase: S, model: Tensor, uploads: Sequence[Mapping[str, Any]]) -> tuple[Tensor, np.ndarray]:
        """The updates (n, M) that answer the phase's `work`, and their weights (n,)."""
        ...

    def upload(self, update: Tensor) -> Upload:
        """The aggregator's own upload."""
        ...


@dataclass(frozen=True)
class Average:
    """The average that an aggregator makes of a phase.

    Attributes:
        model: (M,) that it broadcast, less which the average is wanted.
        updates: (n, M) of its children, and their `weights` (n,).
        noise: level of the noise that it adds to the average, and its `NoiseLaw.key`; None where it adds none.
        aggregation: the rule that combines the updates.
        law: of the noise.
    """

    model: Tensor
    updates: Tensor
    weights: np.ndarray
    noise: tuple[float, Any] | None
    aggregation: Aggregation = _AVERAGE
    law: NoiseLaw = GAUSSIAN


Interval = Generator[Broadcast | Average, Any, Upload]


@dataclass(frozen=True, kw_only=True)
class Aggregator(ABC):
    """An edge server, or a node above edge servers: its children are devices or aggregators.

    Attributes:
        name: the node of its noise streams.
        aggregation: the rule that combines its children's uploads.
        law: of the noise that it adds to them.
        ends_chain: whether the node above may not see raw updates.
        replacement: what arrives in the place of some children's uploads; None where all send theirs.
        down: the stages of its own models before they are sent down.
    """

    name: str
    streams: Streams
    aggregation: Aggregation = _AVERAGE
    law: NoiseLaw = GAUSSIAN
    ends_chain: bool = True
    replacement: Replacement | None = None
    down: Pipeline = Pipeline()  # noqa: RUF009 - a frozen value

    @abstractmethod
    def begin(self, broadcast: Tensor, plan: Any) -> Children[Any]:
        """The nodes below it, at the beginning of an interval."""

    @abstractmethod
    def receives_raw(self, uploads: Mapping[str, Any]) -> bool:
        """Whether anything in its children's uploads is raw. It knows that from them, whatever the plan says."""

    def interval(self, broadcast: Tensor, plan: Any) -> Interval:
        """Algorithm 2 at one aggregator, as `in_step` runs it.

        It yields what its children are to do, and is sent their uploads; yields their average, and is sent the model
        less it; and returns its own upload.

        1. The children work over a phase from the aggregator's model, and upload what they accumulated.
        2. The aggregator subtracts their average from its model, (9)-(12), with noise of its own where that is due, and
           broadcasts the result (13) at the beginning of the next phase (`sent_down`). Noise is due where anything in
           the average is raw, and is broadcast, or sent to a node that may not see it.
        3. At the end it uploads the model that it received less its own: everything that was accumulated below, noises
           included (14). Its own last average is in it whether it aggregates at the end or a node above does.

        Args:
            broadcast: what came down: (M,) a model, or more vectors, of which the plan says which is which.
        """
        children = self.begin(broadcast, plan)
        model, raw, slot = children.received, False, 0
        for phase in children.phases:
            uploads, sent = [], model
            if model is not children.received:  # which is as the node above sent it
                sent = sent_down(self.down, self.streams, self.name, model, phase.segment.interval, slot)
            for asked in children.work(phase, sent):
                uploads.append((yield asked))
            raw, noise = raw or any(map(self.receives_raw, uploads)), None
            if raw and (phase.segment.own or self.ends_chain):
                at = phase.segment
                of_phase = f"noise-{at.kind}", at.interval, at.last_slot, phase.release
                raw, noise = False, (phase.noise_std, self.law.key(self.streams, self.name, *of_phase))
            assert noise or not phase.noise_std, "noise that the plan and the ledger have is added"
            model = yield Average(model, *children.arrived(phase, sent, uploads), noise, self.aggregation, self.law)
            slot = phase.segment.last_slot
        upload = children.upload(children.received - model)
        return replace(upload, raw=True) if raw else upload


def sent_down(pipeline: Pipeline, streams: Streams, name: str, model: Tensor, interval: int, slot: int) -> Tensor:
    """(M,) what all below a node receive of a model that it made at a slot: one vector for all of them.

    The model has all noise that it will have, so this costs no privacy. The node goes on from the model itself.
    """
    if not pipeline.stages:
        return model
    at = Moment(streams=streams, nodes=[name], segment=Segment(interval, slot, slot), down=True)
    return pipeline.encode(model.clone()[None], model, at)[0]


def in_step(
    intervals: Mapping[str, Interval], perform: Callable[[Mapping[str, Broadcast]], Mapping[str, Mapping[str, Any]]]
) -> dict[str, Upload]:
    """Run the intervals of several aggregators side by side, phase by phase.

    Args:
        perform: has the children of all these aggregators do what they are asked, by whatever means.
    """
    uploads: dict[str, Upload] = {}
    answers: dict[str, Any] = dict.fromkeys(intervals)
    while answers:
        broadcasts: dict[str, Broadcast] = {}
        averages: dict[str, Average] = {}
        for name, answer in answers.items():
            try:
                asked = intervals[name].send(answer)
            except StopIteration as end:
                uploads[name] = end.value
                continue
            if isinstance(asked, Average):
                averages[name] = asked
            else:
                broadcasts[name] = asked
        answers = dict(perform(broadcasts)) if broadcasts else {}
        for alike in _alike(averages):
            answers.update(zip(alike, _less_averages([averages[name] for name in alike]), strict=True))
    return {name: uploads[name] for name in intervals}


def _alike(averages: Mapping[str, Average]) -> Iterator[list[str]]:
    """The averages of one rule and equal weights, all or none of them under noise: a call costs more than a small
    sum."""
    found: dict[tuple[int, bytes, bool], list[str]] = {}
    for name, each in averages.items():
        alike = id(each.aggregation), each.weights.tobytes(), each.noise is not None
        found.setdefault(alike, []).append(name)
    for names in found.values():
        at_once = max(1, _MOST_VALUES // averages[names[0]].updates.numel())
        for first in range(0, len(names), at_once):
            yield names[first : first + at_once]


def _less_averages(alike: Sequence[Average]) -> Iterable[Tensor]:
    """(M,) the model of each less its average, with noise of its own where that is due."""
    first = alike[0]
    updates = first.updates[None] if len(alike) == 1 else torch.stack([each.updates for each in alike])
    averages = first.aggregation.combine(updates.unbind(1), first.weights)
    if first.noise is not None:
        levels, keys = zip(*(each.noise for each in alike if each.noise is not None), strict=True)
        first.law.add(averages, np.array(levels), keys)
    models = first.model if all(each.model is first.model for each in alike) else [each.model for each in alike]
    return torch.sub(models if isinstance(models, Tensor) else torch.stack(models), averages, out=averages).unbind()
