"""The job in h2fdp, by its Python interface, on threads of one process."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import torch

import h2fdp
from benchmarks.rivals.job import Job, Trained, initial_model
from benchmarks.rivals.shapes import SHAPES
from h2fdp.run import model_scores

PACKAGES = ("h2fdp",)


def train(job: Job) -> Trained:
    """Run one experiment. A round is an interval, without aggregations in between: with one subnet that is a star."""
    ends: list[float] = []
    sequences = job.model in SHAPES and SHAPES[job.model].label != ()
    experiment = h2fdp.Experiment(
        topology=h2fdp.Topology.regular(edges=job.subnets, devices=job.devices // job.subnets, trust=1.0),
        data={"name": "npz", "path": job.data, **({"task": "tokens"} if sequences else {})},
        model=lambda: initial_model(job.model),
        method="fedavg" if job.subnets == 1 else "hfl",
        training="paper",
        intervals=job.rounds,
        local_steps=job.local_steps,
        aggregate_every=job.local_steps,
        batch_size=job.batch_size,
        step_size=job.step_size,
        step_decay="none",
        precision=job.precision,
        sampling="fixed",
        participation=job.participants / job.devices,
        evaluate_every=job.rounds,
        backend="inline",
        hosts=job.workers,
    )
    with patch.object(model_scores, "MOST_DEVICES_SCORED", 0):  # nor do the others score devices' own records
        run = experiment.run(Path(job.folder) / "run", overwrite=True, on_interval=lambda row: ends.append(time.time()))
    state = torch.load(run.directory / "model.pt", weights_only=True)
    return Trained(ends, torch.cat([held.flatten() for held in state.values()]))
