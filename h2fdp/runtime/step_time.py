"""How long a local step takes, measured on the devices of the first subnet; and the engine that is fastest by it."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from h2fdp.protocol import Order
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.local_hosts import run_arithmetic
from h2fdp.training import engines_for
from h2fdp.training.engine import NORMALISING, ROUNDING, EngineName

_STEPS, _REPEATS = 5, 3
_MOST_DEVICES = 50  # that are timed together


def seconds_per_step(blueprint: Blueprint, model: Tensor) -> float:
    """Median time of a local step of one device that starts from `model` (M,), its noise included."""
    with run_arithmetic():
        group = blueprint.device_group(0)
        rows = np.arange(min(blueprint.topology.subnets[0].size, _MOST_DEVICES))
        order = Order(
            interval=0,
            first_slot=0,
            last_slot=_STEPS,
            kind="local",
            step_size=0.01,
            rows=rows,
            noise_std=np.full(len(rows), 1e-3),
            clip_norm=None if blueprint.adaptive is None else blueprint.adaptive.initial,
        )
        model = model.to(blueprint.device)
        if blueprint.adaptive is not None:
            model = torch.cat([model, model.new_zeros(1)])
        group.train(model, order)  # the first call warms caches
        times = []
        for _ in range(_REPEATS):
            started = time.perf_counter()
            group.train(model, order).updates.cpu()
            times.append(time.perf_counter() - started)
    return statistics.median(times) / (_STEPS * len(rows))


def fastest_engine(blueprint: Blueprint, model: Tensor) -> EngineName:
    """The engine that takes the least time here and now; another run may find another, with other last bits."""
    clipping, asked = blueprint.clipping, (blueprint.objective, blueprint.loss)
    known = (blueprint.module(), blueprint.device, *asked, clipping, blueprint.data.shape)
    plain = clipping is None or clipping.plain
    rounds = blueprint.precision != "float32"
    names = [
        name for name in engines_for(*known) if (plain or name in NORMALISING) and (not rounds or name in ROUNDING)
    ]
    return min(names, key=lambda name: seconds_per_step(replace(blueprint, engine=name), model))
