"""Small subnets with exact arithmetic: quadratic losses F_i(w) = |w - a_i|^2 / 2, whose gradient is w - a_i."""

import numpy as np
import torch

from h2fdp.costs.traffic import Tasks
from h2fdp.privacy import Pipeline
from h2fdp.privacy.mechanisms.stages import UpdateNoise
from h2fdp.privacy.places import Segment
from h2fdp.protocol import DeviceGroup, EdgeServer, InProcessNodes, Plan
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import PLAIN_TERMS, TrainingResult

STREAMS = Streams(seed=7)


class QuadraticEngine:
    """Exact gradient steps towards each device's own target."""

    def __init__(self, targets):
        self.targets = torch.tensor(targets)

    def train(self, starts, records, rows, batches, step_size, terms=PLAIN_TERMS):
        updates = []
        for start, row, steps in zip(starts, rows, batches.steps_done, strict=True):
            model = start.clone()
            for _ in range(steps):
                model -= step_size * (model - self.targets[row])
            updates.append(start - model)
        return TrainingResult(torch.stack(updates))


def pipeline_of(source):
    return Pipeline((UpdateNoise(),)) if source == "device" else Pipeline()


def device_group(targets, source, first=0, name="edge"):
    devices = len(targets)
    records = DeviceRecords(
        torch.zeros(devices, 1),
        torch.zeros(devices, dtype=torch.int64),
        np.arange(devices + 1),
        torch.ones(1),
        torch.zeros(1),
    )
    sampler = BatchSampler(
        STREAMS, name, "fixed", np.ones(first + devices, dtype=np.int64), np.ones(first + devices), 4
    )
    side = pipeline_of(source)
    return DeviceGroup(
        STREAMS, side, first, lambda row: f"{name}/{row + 1}", records, sampler, QuadraticEngine(targets)
    )


def edge_server(targets, source, groups=None, name="edge"):
    groups = groups or InProcessNodes({"devices": device_group(targets, source, name=name)})
    spans = {"devices": (0, len(targets))}
    return EdgeServer(
        name=name, streams=STREAMS, trusted=source == "edge", groups=groups, spans=spans, pipeline=pipeline_of(source)
    )


def subnet_plan(segments, devices, noise_std, interval=0, first_slot=0, step_size=0.5):
    weights = np.full((len(segments), devices), 1 / devices)
    return Plan(
        at=Segment.row(interval, first_slot, segments, step_size),
        tasks=Tasks.planned(np.arange(devices), segments),
        shares=weights[0],
        weights=weights,
        reach=weights,
        noise_std=np.asarray(noise_std, dtype=float).reshape(len(segments), -1),
    )


def noise(node, purpose, interval, slot, size):
    return torch.from_numpy(STREAMS.open(node, purpose, interval, slot).standard_normal(size, dtype=np.float32))
