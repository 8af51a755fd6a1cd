"""Which engine a run trains with: what its file asks for, where that is there and knows the work."""

from __future__ import annotations

import sys
from typing import Literal

import torch
from torch import nn

from h2fdp.errors import UserError
from h2fdp.runtime.hardware import lacks_bfloat16
from h2fdp.training import chosen_engine
from h2fdp.training.compiled.chains import numba_is_there, why_not_compiled
from h2fdp.training.direct.engine import why_not_direct
from h2fdp.training.engine import NORMALISING, ROUNDING, EngineName, TrainingJob


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
    if asked in ("compiled", "direct") and (reason := _why_not(asked, module, device, job)) is not None:
        other: EngineName = "direct" if asked == "compiled" else "compiled"
        knows = f", {other}" if _why_not(other, module, device, job) is None else ""
        raise UserError(f"expected auto, stacked{knows} or loop, found {asked}: {reason}", key="runtime.engine")
    if asked == "stacked" and (reason := job.why_not_stacked(module)) is not None:
        raise UserError(f"expected auto or loop, found stacked: {reason}", key="runtime.engine")
    if asked == "auto" and engine == "loop" and (reason := job.why_not_stacked(module)) is not None:
        print(f"note: training with loop, one device after another: {reason}", file=sys.stderr)
    if job.clipping is not None and not job.clipping.plain and engine not in NORMALISING:
        able = ", ".join(sorted(NORMALISING))
        text = f"{engine} does not normalise gradients; expected auto, {able}, or clipping: clip"
        if job.clipping.moves:
            text = f"{engine} has one clip norm for the whole run; expected auto, {able}, or a number as clip_norm"
        raise UserError(text, key="runtime.engine")
    if engine == "compiled" and not numba_is_there():
        by = "runtime.engine: compiled" if asked == "compiled" else "the fastest engine for this run, compiled,"
        print(f"note: {by} needs numba, which cannot be imported; training with stacked", file=sys.stderr)
        return "stacked"
    return engine


def _check_rounding(engine: EngineName, module: nn.Module, device: torch.device, job: TrainingJob) -> None:
    if engine not in ROUNDING:
        able = ", ".join(sorted(ROUNDING))
        text = f"{engine} knows float32 alone; expected auto or {able}, or training.precision: float32"
        raise UserError(text, key="runtime.engine")
    if (reason := _why_not("direct", module, device, job)) is not None:
        text = f"expected float32, found {job.precision}, which engine: direct knows alone: {reason}"
        raise UserError(text, key="training.precision")
    if not any(isinstance(part, nn.Conv2d) for part in module.modules()):
        text = f"expected float32, found {job.precision}, which rounds convolutions: this model has none"
        raise UserError(text, key="training.precision")
    if lacks_bfloat16():
        text = "training.precision: bfloat16 is slower than float32 here: this processor has no such products"
        print(f"note: {text}", file=sys.stderr)


def _why_not(engine: EngineName, module: nn.Module, device: torch.device, job: TrainingJob) -> str | None:
    if device.type != "cpu":
        works = "compiles for" if engine == "compiled" else "is made for"
        return f"it {works} CPUs, and runtime.gpus_per_host requests a GPU"
    if engine == "direct":
        return why_not_direct(module, job.objective)
    return why_not_compiled(module, job.objective, job.loss, job.shape)
