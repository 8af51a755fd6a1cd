"""Which engine a run trains with: what its file asks for, where that is there and knows the work.

`fastest` is by the measured time of a local step on the devices of the first subnet.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.errors import UserError
from h2fdp.privacy.mechanisms.pipeline import StageFacts
from h2fdp.privacy.mechanisms.stages import GaussianNoise
from h2fdp.protocol import Order
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.host import lacks_bfloat16
from h2fdp.runtime.local_hosts import run_arithmetic
from h2fdp.training import chosen_engine, engines_for
from h2fdp.training.compiled.chains import numba_is_there, why_not_compiled
from h2fdp.training.engine import NORMALISING, EngineName, TrainingJob
from h2fdp.training.gradients.rule import is_layered
from h2fdp.training.local_objective import comparison_of

_STEPS, _REPEATS = 5, 3
_MOST_DEVICES = 50  # that are timed together


def seconds_per_step(blueprint: Blueprint, model: Tensor) -> float:
    """Median time of a local step of one device that starts from `model` (M,), its noise included."""
    with run_arithmetic():
        group = blueprint.device_group(0)
        stages = (GaussianNoise() if stage.has_code else stage for stage in group.pipeline.stages)  # no sum is planned
        group = replace(group, pipeline=replace(group.pipeline, stages=tuple(stages)))
        rows = np.arange(min(blueprint.topology.subnets[0].size, _MOST_DEVICES))
        order = Order(
            interval=0,
            first_slot=0,
            last_slot=_STEPS,
            kind="local",
            step_size=0.01,
            rows=rows,
            noise_std=np.full(len(rows), 1e-3),
            facts=StageFacts(None if blueprint.adaptive is None else blueprint.adaptive.initial),
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
    if blueprint.precision != "float32":
        return "stacked"
    names = [name for name in engines_for(*known) if plain or name in NORMALISING]
    return min(names, key=lambda name: seconds_per_step(replace(blueprint, engine=name), model))


def engine_of_run(
    asked: Literal["auto", "fastest"] | EngineName, module: nn.Module, device: torch.device, job: TrainingJob
) -> EngineName:
    """The engine that a run begins with; `stacked` for `compiled` where there is no numba, with a message.

    Raises:
        UserError: work that the engine does not know: a model, a loss, an objective, a way of clipping, a precision, a
            processor.
    """
    engine = chosen_engine(module, device, job) if asked == "auto" or asked == "fastest" else asked
    if job.precision != "float32":
        _check_rounding(engine, module, device, job)
    if asked == "compiled" and (reason := _why_not_compiled(module, device, job)) is not None:
        raise UserError(f"expected auto, stacked or loop, found compiled: {reason}", key="runtime.engine")
    if asked == "stacked" and (reason := job.why_not_stacked(module)) is not None:
        raise UserError(f"expected auto or loop, found stacked: {reason}", key="runtime.engine")
    if asked == "auto" and engine == "loop" and (reason := job.why_not_stacked(module)) is not None:
        print(f"note: training with loop, one device after another: {reason}", file=sys.stderr)
    if job.clipping is not None and not job.clipping.plain and engine not in NORMALISING:
        able = ", ".join(sorted(NORMALISING))
        text = f"{engine} does not normalise gradients; expected auto, {able}, or a number as clip_norm"
        if job.clipping.moves:
            text = f"{engine} has one clip norm for the whole run; expected auto, {able}, or a number as clip_norm"
        raise UserError(text, key="runtime.engine")
    if engine == "compiled" and not numba_is_there():
        by = "runtime.engine: compiled" if asked == "compiled" else "the fastest engine for this run, compiled,"
        print(f"note: {by} needs numba, which cannot be imported; training with stacked", file=sys.stderr)
        return "stacked"
    return engine


def _check_rounding(engine: EngineName, module: nn.Module, device: torch.device, job: TrainingJob) -> None:
    if engine != "stacked":
        text = f"{engine} knows float32 alone; expected auto or stacked, or training.precision: float32"
        raise UserError(text, key="runtime.engine")
    reason = None
    if device.type != "cpu":
        reason = "CPUs round, and runtime.gpus_per_host requests a GPU"
    elif not is_layered(module):
        reason = "what rounds are chains of Linear, Conv2d and GroupNorm layers, between them torch's own"
    elif comparison_of(job.objective) is not None:
        reason = "the objective compares models"
    elif not any(isinstance(part, nn.Conv2d) for part in module.modules()):
        reason = "it rounds convolutions, and this model has none"
    if reason is not None:
        raise UserError(f"expected float32, found {job.precision}: {reason}", key="training.precision")
    if lacks_bfloat16():
        text = "training.precision: bfloat16 is slower than float32 here: this processor has no such products"
        print(f"note: {text}", file=sys.stderr)


def _why_not_compiled(module: nn.Module, device: torch.device, job: TrainingJob) -> str | None:
    if device.type != "cpu":
        return "it compiles for CPUs, and runtime.gpus_per_host requests a GPU"
    return why_not_compiled(module, job.objective, job.loss, job.shape)
