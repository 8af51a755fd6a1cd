"""A lowest edge server: the aggregator of a subnet of devices, and what it has them measure for a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.algorithms.fedavg import Plain
from h2fdp.privacy import Moment, Pipeline
from h2fdp.privacy.mechanisms.secret_draws import SecretDraw, draw_of
from h2fdp.privacy.places import Segment
from h2fdp.protocol.aggregator import Aggregator, Broadcast, Children, NodeGroup, SummingNodes, in_step
from h2fdp.protocol.devices import WorkAccumulator
from h2fdp.protocol.messages import Order, Plan, SubnetPhase, Upload
from h2fdp.schedules.measuring import Measured, MeasuringOrder, joined
from h2fdp.training.local_steps import Descent, TrainingResult

_PLAIN = Descent(Plain())
_SUM = ""  # no group's name


@dataclass(frozen=True, kw_only=True)
class EdgeServer(Aggregator):
    """Aggregates what its devices upload; adds one noise vector to each average when it is trusted.

    Attributes:
        trusted: it receives raw updates, and it or a trusted node above it adds noise to their average.
        groups: the device groups below, by name; `spans` says which rows of the subnet each holds.
        spans: name -> (first row, row after the last).
        descent: the devices' steps; its objective says what they remember.
        pipeline: the stages of the devices' uploads.
    """

    trusted: bool
    groups: NodeGroup
    spans: dict[str, tuple[int, int]]
    descent: Descent = _PLAIN
    pipeline: Pipeline = Pipeline()  # noqa: RUF009 - a frozen value

    def begin(self, broadcast: Tensor, plan: Plan) -> Children[SubnetPhase]:
        """The devices of the subnet, at what came down: (M,) the model; or models in rows, and a control variate."""
        return _Subnet(self, broadcast, plan)

    def receives_raw(self, uploads: Mapping[str, Any]) -> bool:
        """Whether it is trusted itself."""
        return self.trusted

    def run_interval(self, broadcast: Tensor, plan: Plan) -> Upload:
        """One interval of the subnet, by calls to the hosts of its devices; `Lockstep` runs `interval` without it."""
        return in_step(
            {self.name: self.interval(broadcast, plan)},
            lambda calls: {name: self._trained(call.model, call.parts) for name, call in calls.items()},
        )[self.name]

    def _trained(self, model: Tensor, orders: Mapping[str, Order]) -> dict[str, TrainingResult]:
        """The uploads of each group, or the sum of all where that says enough and is fewer vectors."""
        weights = [order.weights for order in orders.values() if order.weights is not None]
        if isinstance(self.groups, SummingNodes) and sum(map(len, weights)) > len(weights):
            return {_SUM: TrainingResult(self.groups.add_up("train", model, orders)[None])}
        return self.groups.call("train", model, orders)

    def held(self, rows: np.ndarray) -> Iterator[tuple[str, slice]]:
        """The groups with devices among these ascending rows, and which of them each holds."""
        for name, span in self.spans.items():
            first, stop = np.searchsorted(rows, span).tolist()
            if first < stop:
                yield name, slice(first, stop)

    def measure(self, model: Tensor, plan: Plan) -> Measured:
        """Raw measurements at w(t_{k+1}) (M,), of the devices of the interval's last aggregation."""
        phase, ends, last_steps = plan.aggregation(-1), plan.state.ends, plan.state.last_steps
        assert ends is not None, "devices were watched"
        assert last_steps is not None, "devices were watched"
        whole = phase.becomes(MeasuringOrder, levels=np.empty(0), ends=ends, last_steps=last_steps)
        orders = {name: whole.part(held) for name, held in self.held(phase.rows)}
        measured = self.groups.call("measure", model, orders)
        return joined([measured[name] for name in orders])


class _Subnet(Children[SubnetPhase]):
    """The devices of a subnet over one interval: orders go down, and a work is kept of what they did."""

    def __init__(self, server: EdgeServer, broadcast: Tensor, plan: Plan) -> None:
        self._server = server
        self._plan = plan
        rows = plan.received
        self.received = broadcast[rows[0]] if rows else broadcast
        variate = broadcast[rows[1]] if len(rows) > 1 else None
        phases = [self._of_those_who_came(each) for each in plan.aggregations() if each.rows.size]
        self.phases = [replace(each, noise_std=float(each.levels[0])) for each in phases] if server.trusted else phases
        each = (
            server.pipeline.has_code or plan.begun is not None or plan.state.watched or server.replacement is not None
        )
        remembers = plan.state.memory is not None or plan.state.work is not None
        self._sum_says_enough = server.aggregation.visible == "sum" and not each and not remembers
        self._work = WorkAccumulator.begun(server.descent, plan, self.received, variate)
        self._models = dict(
            zip(() if plan.begun is None else plan.begun.carried, _rows_of(plan.state.models), strict=True)
        )

    def work(self, phase: SubnetPhase, model: Tensor) -> list[Broadcast]:
        """Orders from the newest model; or from each model that some of the uploads began with."""
        begun = self._plan.begun
        if begun is None:
            return [Broadcast(model, self._orders(self._order(phase, phase.segment)))]
        self._models[begun.first + phase.number], rows = model, phase.rows
        asked, steps = [], len(phase.segment.slots)
        for number, tasks, places in begun.models(phase.number):
            own = replace(phase.segment, first_slot=tasks * steps, last_slot=(tasks + 1) * steps)
            order = self._order(phase, own).part(np.flatnonzero(np.isin(rows, begun.rows[places])))
            asked.append(Broadcast(self._models[number], self._orders(order)))
        return asked

    def _orders(self, order: Order) -> dict[str, Order]:
        """One for each group with some of its devices, in the order of their rows."""
        return {name: order.part(held) for name, held in self._server.held(order.rows)}

    def _order(self, phase: SubnetPhase, segment: Segment) -> Order:
        """The order to all devices whose uploads arrive."""
        return phase.becomes(
            Order,
            segment=segment,
            levels=phase.levels if self._server.pipeline.noisy else np.empty(0),
            steps=None if (phase.steps == len(segment.slots)).all() else phase.steps,
            corrections=self._work.corrections(phase.rows),
            memory=self._work.of_uploads(phase.rows),
            watched=self._plan.state.watched,
            weights=phase.weights if self._sum_says_enough else None,
        )

    def arrived(
        self, phase: SubnetPhase, model: Tensor, uploads: Sequence[Mapping[str, TrainingResult]]
    ) -> tuple[Tensor, np.ndarray]:
        """The devices' updates in the order of their rows, and their weights; or the sum of these by itself."""
        if _SUM in uploads[0]:
            return uploads[0][_SUM].updates, np.ones(1)
        rows, begun = [phase.rows], self._plan.begun
        if begun is not None:
            rows = [begun.rows[places] for *_, places in begun.models(phase.number)]
        found = zip(uploads, rows, strict=True)
        trained = TrainingResult.joined([each[name] for each, own in found for name, _ in self._server.held(own)])
        if len(rows) > 1:
            trained = trained.part(np.argsort(np.concatenate(rows)))
        if not self._server.pipeline.has_code:
            self._work.note(phase, model, trained, self._came(phase))
        at = phase.becomes(Moment, streams=self._server.streams)
        updates, weights = self._server.pipeline.decode(trained.updates, phase.weights, at)
        replacement, updates = self._server.replacement, updates.to(model)
        return updates if replacement is None else replacement(updates, phase.rows.tolist()), weights

    def _came(self, phase: SubnetPhase) -> np.ndarray | None:
        draw, server = draw_of(self._server.pipeline), self._server
        return None if draw is None else draw.came(server.streams, server.name, phase.segment.interval, phase.rows)

    def _of_those_who_came(self, phase: SubnetPhase) -> SubnetPhase:
        """The phase without absent devices whose uploads are zeros, as nothing follows the draw; one stays of none."""
        stages, came = self._server.pipeline.stages, self._came(phase)
        if came is None or not isinstance(stages[-1], SecretDraw) or self._server.replacement is not None:
            return phase
        kept = np.flatnonzero(came) if came.any() else np.zeros(1, dtype=np.int64)
        own = {name: getattr(phase, name)[kept] for name in ("rows", "steps", "shares", "weights", "reach")}
        return replace(phase, **own)

    def upload(self, update: Tensor) -> Upload:
        """The subnet's upload, with its update (M,), and the models that devices still train from."""
        upload, kept = self._work.upload(update), () if self._plan.begun is None else self._plan.begun.kept
        if not kept:
            return upload
        models = torch.stack([self._models[number] for number in kept])
        return replace(upload, state=replace(upload.state, models=models))


def _rows_of(models: Tensor | None) -> Sequence[Tensor]:
    return () if models is None else models.unbind()
