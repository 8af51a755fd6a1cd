"""Observations by hand: what the cloud is told of an interval."""

import numpy as np
import torch

from h2fdp.records.checkpoint import load_checkpoint, save_checkpoint
from h2fdp.schedules.feedback import DeviceSecants, IntervalObservation

STAR = np.array([4])  # four devices under the cloud, all of which take part


def secants(**given):
    """Two devices of equal weight; unless stated otherwise they ended at distance 1 after steps of length 1."""
    measured = {
        "weights": [0.5, 0.5],
        "distance": [1.0, 1.0],
        "last_step": [1.0, 1.0],
        "loss_local": [1.0, 1.0],
        "loss_before": [1.0, 1.0],
        "loss": [1.0, 1.0],
        "gradient_change": [1.0, 1.0],
        "divergence": [0.0, 0.0],
    }
    return DeviceSecants(**{name: np.array(values, float) for name, values in (measured | given).items()})


def observation(interval, local_steps, seen=None, model=0.0, spent=None):
    return IntervalObservation(
        interval,
        local_steps,
        step_size=0.5,
        model=torch.tensor([model]),
        uploads=[torch.zeros(1)],
        weights=np.ones(1),
        noise_variance=np.zeros(1),
        mean_steps=np.full(1, float(local_steps)),
        secants=seen,
        spent=spent or {},
    )


def reloaded(schedule, new, folder):
    """`new` in the state of `schedule`, by way of a file."""
    save_checkpoint(folder, 1, {"schedule": schedule.state()})
    values = load_checkpoint(folder, damaged=lambda path: None)
    new.load(values["schedule"])
    return new
