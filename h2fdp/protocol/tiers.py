"""The aggregators between the cloud and the edge servers that have devices: the same algorithm, one tier up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from h2fdp.network.parts import Replacement
from h2fdp.privacy import AggregationKind, Moment, Pipeline
from h2fdp.privacy.places import Segment
from h2fdp.protocol.aggregator import Aggregator, Broadcast, Children, NodeGroup, in_step
from h2fdp.protocol.messages import AggregationPhase, Plan, SubnetState, Upload
from h2fdp.streams import Streams


@dataclass(frozen=True, kw_only=True)
class TierPhase(AggregationPhase):
    """A stage of an aggregator whose children are aggregators.

    Attributes:
        parts: the plans of the children of which anything arrives.
        weights: (n,) of these children, summing to 1.
    """

    parts: Mapping[str, Part]
    weights: np.ndarray


Part = Plan | tuple[TierPhase, ...]
"""The plan of an interval, or of a stretch of it up to an aggregation further up: of a subnet, or of an aggregator
above edge servers, whose last phase ends where the stretch does."""


def noises(name: str, part: Part) -> Iterator[tuple[str, AggregationKind, float]]:
    """Aggregator, kind of aggregation and level of every noise that is added above edge servers, from `name` down."""
    for phase in () if isinstance(part, Plan) else part:
        if phase.noise_std:
            yield name, phase.segment.kind, phase.noise_std
        for child, below in phase.parts.items():
            yield from noises(child, below)


@dataclass(frozen=True, kw_only=True)
class UpperAggregator(Aggregator):
    """An edge server above edge servers.

    Attributes:
        guarded: the children whose trusted chain includes this node.
    """

    guarded: frozenset[str] = frozenset()

    def begin(self, broadcast: Tensor, plan: tuple[TierPhase, ...]) -> Children[TierPhase]:
        """The aggregators below, at the model (M,) that was sent."""
        return _Subtrees(broadcast, plan, self.replacement)

    def receives_raw(self, uploads: Mapping[str, Upload]) -> bool:
        """Whether a child states that its upload still lacks noise."""
        raw = {name for name, each in uploads.items() if each.raw}
        assert raw <= self.guarded, "a raw update goes up to nodes of its trusted chain only"
        return bool(raw)


class _Subtrees(Children[TierPhase]):
    """The aggregators below one, over one interval."""

    def __init__(self, received: Tensor, phases: Sequence[TierPhase], replacement: Replacement | None) -> None:
        self.received, self.phases, self._replacement = received, phases, replacement

    def work(self, phase: TierPhase, model: Tensor) -> list[Broadcast]:
        """Each child's own plan."""
        return [Broadcast(model, phase.parts)]

    def arrived(
        self, phase: TierPhase, model: Tensor, uploads: Sequence[Mapping[str, Upload]]
    ) -> tuple[Tensor, np.ndarray]:
        """The children's updates and weights."""
        (upload,) = uploads
        updates = torch.stack([upload[name].update for name in phase.parts])
        if self._replacement is not None:
            updates = self._replacement(updates, list(phase.parts))
        return updates, phase.weights

    def upload(self, update: Tensor) -> Upload:
        """The aggregator's own upload."""
        return Upload(update=update)


class Uplinks:
    """The stages of what aggregators send up, after all noise that is theirs to add; and what they remember of it.

    Attributes:
        memories: (M,) of each aggregator that ever sent anything, where a stage remembers.
    """

    def __init__(self, pipeline: Pipeline, streams: Streams) -> None:
        self._pipeline, self._streams = pipeline, streams
        self.memories: dict[str, Tensor] = {}

    @property
    def remembers(self) -> bool:
        """Whether anything of an upload is kept for the next."""
        return self._pipeline.remembers

    def sent(self, name: str, upload: Upload, part: Part) -> Upload:
        """The vector that the node above receives of an aggregator's upload, which is the answer to `part`."""
        if not self._pipeline.stages:
            return upload
        assert not upload.raw, "what passes stages has its noise"
        end = part.at[-1] if isinstance(part, Plan) else part[-1].segment
        memory = torch.zeros_like(upload.update) if self.remembers else None
        if memory is not None and name in self.memories:
            memory.copy_(self.memories[name])
        at = Moment(
            streams=self._streams,
            nodes=[name],
            segment=Segment(end.interval, end.last_slot, end.last_slot),
            memory=None if memory is None else memory[None],
        )
        update = self._pipeline.encode(upload.update.clone()[None], upload.update, at)[0]
        if memory is not None:
            self.memories[name] = memory
        return replace(upload, update=update)


class Tiers:
    """All aggregators below the cloud: those above edge servers in this process, the edge servers wherever they are.

    Stretches of the interval run side by side: what many subnets do at once is asked of their hosts in one call.
    """

    def __init__(self, aggregators: Mapping[str, UpperAggregator], edges: NodeGroup, uplinks: Uplinks) -> None:
        self._aggregators = dict(aggregators)
        self.edges, self.uplinks = edges, uplinks

    def above(self, edges: NodeGroup) -> Tiers:
        """The tiers above other hosts."""
        return Tiers(self._aggregators, edges, self.uplinks)

    def run_interval(
        self,
        asked: Mapping[str, tuple[Tensor, Part]],
        variate: Tensor | None,
        states: dict[str, SubnetState],
    ) -> dict[str, Upload]:
        """The upload of each of these children of the cloud, from the model (M,) with which it began.

        Args:
            variate: (M,) the vector that devices receive with the model, if any.
            states: of each subnet below; renewed by its uploads.
        """
        uploads = self._of_edges(asked, variate, states)
        intervals = {
            name: self._aggregators[name].interval(model, part)
            for name, (model, part) in asked.items()
            if not isinstance(part, Plan)
        }

        def below(calls: Mapping[str, Broadcast]) -> dict[str, dict[str, Upload]]:
            parts = {name: (call.model, part) for call in calls.values() for name, part in call.parts.items()}
            uploads = self.run_interval(parts, variate, states)
            return {name: {child: uploads[child] for child in call.parts} for name, call in calls.items()}

        uploads |= in_step(intervals, below)
        return {name: self.uplinks.sent(name, uploads[name], part) for name, (_, part) in asked.items()}

    def _of_edges(
        self,
        asked: Mapping[str, tuple[Tensor, Part]],
        variate: Tensor | None,
        states: dict[str, SubnetState],
    ) -> dict[str, Upload]:
        """The uploads of edge servers with devices, by one call to their hosts."""
        models: list[Tensor] = []
        parts: dict[str, Plan] = {}
        rows: dict[str, int] = {}
        for name, (model, part) in asked.items():
            if isinstance(part, Plan):
                if not models or models[-1] is not model:
                    models.append(model)
                parts[name], rows[name] = replace(part, state=states[name]), len(models) - 1
        if not parts:
            return {}
        vectors, broadcast = models if variate is None else [*models, variate], models[0]
        if len(vectors) > 1:
            broadcast, last = torch.stack(vectors), range(len(models), len(vectors))
            parts = {name: replace(part, received=(rows[name], *last)) for name, part in parts.items()}
        uploads: dict[str, Upload] = self.edges.call("run_interval", broadcast, parts)
        states.update((name, upload.state) for name, upload in uploads.items())
        return dict(uploads)
