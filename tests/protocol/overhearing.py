"""Overhearing the protocol: what passes between the nodes of a prepared run, and what each vector is made of.

Every update of a device and every noise vector gets a coordinate of its own, so that whatever passes shows what it is
made of. An observer's vectors are then linear in signals and noises: exactly Gaussian, with an exact distance between
neighbours.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import torch

import h2fdp.privacy.mechanisms.pipeline
import h2fdp.privacy.mechanisms.stages
import h2fdp.privacy.vectors
import h2fdp.protocol.aggregator
import h2fdp.protocol.edge_server
import h2fdp.protocol.tiers
from h2fdp.privacy import Release
from h2fdp.privacy.releases import rows_in
from h2fdp.protocol import DeviceGroup, InProcessNodes
from h2fdp.streams import Streams
from h2fdp.training.local_steps import PLAIN_TERMS, TrainingResult

DIMENSION = 1000
Device = tuple[str, int]  # edge server and row


@dataclass
class Overheard:
    """All that passed in a run.

    Attributes:
        signals: coordinate -> device and slot of an update; it moves there by as much as one record can move it.
        noises: coordinate -> node and slot of a noise vector.
        broadcasts: node -> models that it sent to its children, in order.
        received: node -> vectors that it saw of its children, in order: what each sent, or a secure sum of that.
        sent: node -> vectors that it sent up, in order.
        models: of the cloud, after each interval.
        rows: of the ledger.
    """

    signals: dict[int, tuple[Device, int]] = field(default_factory=dict)
    noises: dict[int, tuple[str, int]] = field(default_factory=dict)
    broadcasts: dict[str, list[np.ndarray]] = field(default_factory=dict)
    received: dict[str, list[np.ndarray]] = field(default_factory=dict)
    sent: dict[str, list[np.ndarray]] = field(default_factory=dict)
    models: list[np.ndarray] = field(default_factory=list)
    rows: list[Release] = field(default_factory=list)

    def had_by(self, node: str) -> list[np.ndarray]:
        """All vectors that an edge server has: what it broadcasts and what its children send."""
        return [*self.broadcasts.get(node, ()), *self.received.get(node, ()), *self.models]

    def made_of(self, vector: np.ndarray, place: int, nodes: Collection[str]) -> tuple[float, float]:
        """How far a record moves a vector by the update of this coordinate, and the noise of the same slot on it that
        these nodes drew."""
        slot = self.signals[place][1]
        drawn = [at for at, (node, when) in self.noises.items() if when == slot and node in nodes]
        return abs(float(vector[place])), float(np.linalg.norm(vector[drawn]))


def first_with(place: int, vectors: list[np.ndarray]) -> np.ndarray:
    """The first of these vectors that the update of this coordinate is in."""
    return next(vector for vector in vectors if vector[place])


class Signals:
    """Engine whose updates are one coordinate each: as long as one record can move an update of so many steps.

    Args:
        moved: from the step size and a number of steps to that.
    """

    def __init__(self, heard, name, moved):
        self.heard, self.name, self.moved, self.slot = heard, name, moved, None

    def train(self, starts, records, rows, batches, step_size, terms=PLAIN_TERMS):
        updates = torch.zeros_like(starts)
        for position, (row, steps) in enumerate(zip(rows.tolist(), batches.steps_done.tolist(), strict=True)):
            place = len(self.heard.signals)
            assert place < DIMENSION // 2
            self.heard.signals[place] = (self.name, row), self.slot
            updates[position, place] = self.moved(step_size, steps)
        return TrainingResult(updates)


class TimedGroup(DeviceGroup):
    """Devices whose engine knows the slot at which their updates arrive."""

    def train(self, model, order):
        self.engine.slot = order.segment.last_slot
        return super().train(model, order)


class Nothing:
    """Engine whose updates are zero, so that all that passes is noise."""

    def train(self, starts, records, rows, batches, step_size, terms=PLAIN_TERMS):
        return TrainingResult(torch.zeros_like(starts))


def overheard(setup, monkeypatch, intervals=1, silent=None):
    """What passes in the first intervals of a prepared run, of accumulated gradients or under output perturbation.

    Args:
        silent: coordinates of a model under real noise, of devices that do not move; by default coordinates are as
            this file says.
    """
    heard = Overheard()
    privacy, clip_norm = setup.config.method.privacy, setup.config.training.clip_norm

    def moved(step_size, steps):
        if privacy.name == "devices":
            return 10 * clip_norm  # which their uploads are cut to
        return 2 * clip_norm if privacy.name == "output" else 2 * step_size * steps * clip_norm

    def add(vector, level, stream, out=None):
        assert level > 0, "a node that is to add noise has some in its plan"
        found = vector.clone() if out is None else vector
        place = DIMENSION // 2 + len(heard.noises)
        heard.noises[place] = stream
        found[place] += level
        return found if out is None else out.copy_(found)

    def add_each(vectors, levels, streams):
        for vector, level, stream in zip(vectors, levels.tolist(), streams, strict=True):
            add(vector, level, stream, vector)

    borrowed, key = Streams.borrowed, Streams.key

    def named(self, node, purpose, interval=0, slot=0, skipped=0):  # in the place of a stream of noise, whose it is
        return (node, slot) if "noise" in purpose else borrowed(self, node, purpose, interval, slot, skipped)

    def named_key(self, node, purpose, interval=0, slot=0):
        return (node, slot) if "noise" in purpose else key(self, node, purpose, interval, slot)

    def group(number, name):
        made = vars(setup.blueprint.device_group(number))
        if silent:
            return DeviceGroup(**made | {"engine": Nothing()})
        # A signal is as long as the difference of two updates, of which each is within the bound.
        return TimedGroup(**made | {"engine": Signals(heard, name, moved)})

    with monkeypatch.context() as patched:
        if not silent:
            patched.setattr(Streams, "borrowed", named)
            patched.setattr(Streams, "key", named_key)
            stages = h2fdp.privacy.mechanisms.stages
            for module in (h2fdp.privacy.mechanisms.pipeline, stages, h2fdp.privacy.vectors):
                patched.setattr(module, "add_gaussian_noises", add_each)
            if privacy.name != "devices":  # where the signal alone is cut
                patched.setattr(stages, "clip_rows", lambda vectors, *_, **__: vectors)  # it would not be linear
        start = torch.zeros(silent) if silent else torch.zeros(DIMENSION, dtype=torch.float64)
        listen(setup, patched, heard, group, start, intervals)
    return heard


def listen(setup, patched, heard, group, start, intervals=1, ended=lambda: None):
    """Run the first intervals of a prepared run from the model `start` (M,), and keep what passes in `heard`.

    Args:
        group: from the number and the name of a subnet to its devices.
        ended: called after each interval.
    """
    levels = {facts.name: int(facts.shares_noise) for facts in setup.blueprint.facts}
    held = {each.name for each in setup.topology.aggregators if each.trust == "secure-sum"}
    held |= {"cloud"} if setup.topology.cloud_trust == "secure-sum" else set()
    sums = held if setup.placement.sees("secure-sum") == "sum" else set()
    see_devices, see_nodes = h2fdp.protocol.edge_server._Subnet.arrived, h2fdp.protocol.tiers._Subtrees.arrived
    begin = h2fdp.protocol.tiers.UpperAggregator.begin

    def hear(node, answers):
        for child, answer in answers.items():
            vectors = answer.updates if isinstance(answer, TrainingResult) else [answer.update]
            hidden = levels[node] if isinstance(answer, TrainingResult) else node in sums
            seen = [] if hidden else heard.received.setdefault(node, [])
            for known in (seen, heard.sent.setdefault(child, [])):
                known += map(_plain, vectors)

    def seen_summed(subnet, *arguments):
        vectors, weights = see_devices(subnet, *arguments)
        name = subnet._server.name
        if levels[name]:
            heard.received.setdefault(name, []).append(weights @ np.array([_plain(each) for each in vectors]))
        return vectors, weights

    def begun(server, *arguments):
        children = begin(server, *arguments)
        children.name = server.name
        return children

    def nodes_summed(children, *arguments):
        vectors, weights = see_nodes(children, *arguments)
        if children.name in sums:
            heard.received.setdefault(children.name, []).append(weights @ np.array([_plain(each) for each in vectors]))
        return vectors, weights

    def listening(intervals, perform):
        def perform_and_hear(calls):
            answers = perform(calls)
            for name, call in calls.items():
                heard.broadcasts.setdefault(name, []).append(_plain(call.model))
                hear(name, answers[name])
            return answers

        return in_step(intervals, perform_and_hear)

    in_step = h2fdp.protocol.aggregator.in_step
    patched.setattr(h2fdp.protocol.edge_server._Subnet, "arrived", seen_summed)
    patched.setattr(h2fdp.protocol.tiers._Subtrees, "arrived", nodes_summed)
    patched.setattr(h2fdp.protocol.tiers.UpperAggregator, "begin", begun)
    for module in (h2fdp.protocol.edge_server, h2fdp.protocol.tiers):
        patched.setattr(module, "in_step", listening)
    names = [subnet.name for subnet in setup.topology.subnets]
    edges = {name: setup.blueprint.edge_server(at, group(at, name)) for at, name in enumerate(names)}
    cloud = replace(setup, initial=start).cloud(InProcessNodes(edges))
    tiers = cloud._tiers

    def run(*arguments):
        uploads = tiers.run_interval(*arguments)
        hear("cloud", uploads)
        return uploads

    patched.setattr(cloud, "_tiers", SimpleNamespace(run_interval=run, edges=tiers.edges))
    for interval in range(intervals):
        plan = cloud.plan(interval)
        heard.rows += cloud.releases(plan)
        cloud.run_interval(plan)
        heard.models.append(_plain(cloud.model))
        ended()


def _plain(vector):
    return vector.double().numpy().copy()


def squared_distance(heard, vectors, device, known=frozenset()):
    """The largest mu^2 of what these vectors say about a device: how far one record moves them, in units of the noise.

    The record may move each update in either direction of one line.

    Args:
        known: nodes whose noise the observer can subtract.
    """
    seen = np.array(vectors)
    own = [place for place, (whose, _) in heard.signals.items() if whose == device]
    hidden = [place for place, (node, _) in heard.noises.items() if node not in known]
    moved, noises = seen[:, own], seen[:, hidden]
    telling = moved.any(axis=1) | noises.any(axis=1)
    moved, noises = moved[telling], noises[telling]
    solved, *_ = np.linalg.lstsq(noises, moved, rcond=1e-9)
    assert np.allclose(noises @ solved, moved, atol=1e-6), "something is seen without any noise"
    gram = solved.T @ solved
    signs = np.array([(1, *each) for each in product((1, -1), repeat=len(own) - 1)])
    return float(np.einsum("si,ij,sj->s", signs, gram, signs).max())


def devices_of(row):
    """The devices (edge server, row) that a row of the ledger is about."""
    return [(row.edge, number) for part in rows_in(row.devices) for number in range(part.start, part.stop)]
