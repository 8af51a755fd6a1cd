"""Observations by hand: what the cloud learns of an interval, and runs that schedules are built for."""

from types import SimpleNamespace

import numpy as np
import torch

from h2fdp.records.checkpoint import load_checkpoint, save_checkpoint
from h2fdp.schedules import AggregationTimes, IntervalObservation

STAR = np.array([4])  # four devices under the cloud, all of which take part


def context(**given):
    """A run of four devices under the cloud, as far as schedules read it."""
    usual = {
        "intervals": 158,
        "iterations": 317,
        "local_steps": 3,
        "step_size": 0.5,
        "step_decay": "none",
        "warm_up": 0,
        "sizes": STAR,
        "share": 1.0,
        "turns": 1,
        "regrouped": False,
        "budget_decay": "none",
        "participation": STAR,
        "clip_norm": 0.1,
        "step_noise_multiplier": 1.1,
        "parameters": 26_010,
        "sampling_rates": np.full(4, 0.5),
        "records": np.full(4, 150),
        "aggregation_times": AggregationTimes(),
        "horizon": None,
    }
    return SimpleNamespace(**usual | given)


def secants(**given):
    """What two devices of equal weight measure; unless stated otherwise they ended at distance 1 after steps of 1.

    Only the mean of their divergences counts: their gradients are as far apart as has that.
    """
    measured = {
        "weights": [0.5, 0.5],
        "distance": [1.0, 1.0],
        "last_step": [1.0, 1.0],
        "loss_local": [1.0, 1.0],
        "loss_before": [1.0, 1.0],
        "loss": [1.0, 1.0],
        "gradient_change": [1.0, 1.0],
    }
    apart = np.mean(given.pop("divergence", [0.0]))
    measured |= given | {"gradient": [[apart], [-apart]]}
    return {name: np.array(values, float) for name, values in measured.items()}


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
        measured=seen,
        spent=spent or {},
    )


def reloaded(schedule, new, folder):
    """`new` in the state of `schedule`, by way of a file."""
    save_checkpoint(folder, 1, {"schedule": schedule.state()})
    values = load_checkpoint(folder, damaged=lambda path: None)
    new.load(values["schedule"])
    return new
