"""Device-steps a second of the engines, beside what bare operations and Opacus take: `python -m benchmarks.engines`, of
all models or of those that are named.

All cases of a group take turns, so that a busy machine slows them alike: rates are medians over turns, ratios are
medians of each turn's own. Softmax stands beside the limit of the core's arithmetic, too. Ratios travel from machine to
machine, rates do not.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import nn

from experiments.ali_dpfl.models import ali_cnn_28, ali_cnn_32
from h2fdp.algorithms.fedavg import Plain
from h2fdp.models.construct import ParameterLayout, build
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler, padded_width, row_length
from h2fdp.training.clipping import Clipping
from h2fdp.training.compiled.chains import numba_is_there
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import Engine, EngineName, TrainingJob, build_engine
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import CROSS_ENTROPY

RECORDS, BATCH, CLASSES = 600, 32, 10
OF_STUDIES = {"ali-cnn-28": ali_cnn_28, "ali-cnn-32": ali_cnn_32}  # at their default shapes, as below
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CLIPPINGS = {"none": None, "batch": Clipping(1.0, "batch"), "record": Clipping(1.0, "record")}
# model, shape of a record, devices, steps, turns
GROUPS = (
    ("softmax", (1, 28, 28), 50, 10, 20),
    ("mlp", (1, 28, 28), 10, 4, 8),
    ("ali-cnn-28", (1, 28, 28), 8, 2, 8),
    ("ali-cnn-32", (3, 32, 32), 1, 2, 4),
    ("cnn12", (3, 32, 32), 1, 4, 8),
)
# By default on a GPU alone: a step of these takes a core half a minute.
LARGE_GROUPS = (("resnet18", (3, 32, 32), 8, 2, 4), ("vit-tiny", (3, 32, 32), 8, 2, 4))

# Of a device-step of softmax regression: products for scores and gradient, multiply and add, and the step w - eta g.
# Softmax itself and the scaling of records are another 3 % and left out, so the limit is one that nobody can pass.
SOFTMAX_FLOPS = 2 * 2 * BATCH * CLASSES * 784 + 2 * CLASSES * 784
SIDE = 1024  # of the matrices of the core's own product

Case = Callable[[], object]


def engines_for(module: nn.Module, job: TrainingJob) -> Iterator[EngineName]:
    """The engines that can train this model here."""
    yield "loop"
    if job.why_not_stacked(module) is None:
        yield "stacked"
    if DEVICE.type == "cpu" and numba_is_there() and job.why_not_compiled(module) is None:
        yield "compiled"


def engine_cases(model: str, shape: tuple[int, ...], devices: int, steps: int) -> Iterator[tuple[str, Case]]:
    """Segments of local steps, the drawing of their batches included."""
    records, module = group_records(shape, devices), build(OF_STUDIES.get(model, model), shape, CLASSES)
    starts, rows = ParameterLayout(module).to_vector(module).to(DEVICE).expand(devices, -1), np.arange(devices)
    batches = np.full(devices, float(BATCH))

    def segment(sampler: BatchSampler, engine: Engine) -> None:
        engine.train(starts, records, rows, sampler.draw(0, range(steps), rows), 0.1)

    for sampling in ("fixed", "poisson"):
        rates, length = batches / RECORDS, row_length(sampling, BATCH)
        sampler = BatchSampler(Streams(1), "edge", sampling, records.sizes, rates, length)
        for clip, clipping in CLIPPINGS.items():
            job = TrainingJob(Descent(Plain()), CROSS_ENTROPY, clipping, shape, math.inf, BATCH)
            for name in engines_for(module, job):
                engine = build_engine(name, module, clipping, Descent(Plain()), padded_width(sampling, batches))
                yield f"{name:<8} {sampling:<8} clip {clip}", partial(segment, sampler, engine)


def bare_operations(devices: int, steps: int, stack: int = 25) -> Case:
    """What softmax regression cannot do without: gather, two batched products, softmax and the step, stack by stack."""
    x = group_records((784,), devices).x
    positions = np.random.default_rng(1).integers(0, RECORDS, (steps, devices, BATCH))
    drawn = torch.from_numpy(positions + RECORDS * np.arange(devices)[:, None]).to(DEVICE)

    def run() -> None:
        for first in range(0, devices, stack):
            own = drawn[:, first : first + stack]
            models = torch.zeros(own.shape[1], CLASSES, 784, device=DEVICE)
            for slot in range(steps):
                inputs = x.index_select(0, own[slot].reshape(-1)).to(torch.float32).view(-1, BATCH, 784)
                shares = torch.softmax(torch.bmm(models, inputs.transpose(1, 2)), dim=1)
                models = models.sub(torch.bmm(shares, inputs), alpha=1e-6)

    return run


def matrix_product() -> Case:
    """What this thread (or GPU) computes fastest: a product of two large matrices."""
    random = torch.Generator().manual_seed(0)
    left, right = (torch.rand(SIDE, SIDE, generator=random).to(DEVICE) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def of_the_limit(seconds: np.ndarray, product_seconds: np.ndarray, device_steps: int) -> tuple[float, float, float]:
    """The product's flop/s, the device-steps/s of softmax that it allows, and the share of it that a case reaches."""
    flops = 2 * SIDE**3 / product_seconds
    share = device_steps / seconds * SOFTMAX_FLOPS / flops
    return float(np.median(flops)), float(np.median(flops) / SOFTMAX_FLOPS), float(np.median(share))


def plain_pytorch(model: str, shape: tuple[int, ...], devices: int, steps: int) -> Case:
    """Autograd and torch's own SGD, in a loop over devices, records as the model takes them, channels last."""
    records, module = group_records(shape, devices), build(OF_STUDIES.get(model, model), shape, CLASSES).to(DEVICE)
    x = records.scaled(records.x)
    x = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    optimizer, random = torch.optim.SGD(module.parameters(), lr=0.1), np.random.default_rng(1)

    def run() -> None:
        for device in range(devices):
            for _ in range(steps):
                drawn = torch.from_numpy(RECORDS * device + random.integers(0, RECORDS, BATCH)).to(DEVICE)
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x[drawn]), records.y[drawn]).backward()
                optimizer.step()

    return run


def opacus_per_sample(model: str, shape: tuple[int, ...], devices: int, steps: int) -> Case:
    """A model with each record clipped by Opacus's own per-sample gradients, in a loop over devices."""
    from opacus.grad_sample import GradSampleModule

    records = group_records(shape, devices)
    module = GradSampleModule(build(OF_STUDIES.get(model, model), shape, CLASSES)).to(DEVICE)
    parameters = list(module.parameters())
    random = np.random.default_rng(1)

    def step(device: int) -> None:
        x, y = records.gather(records.offsets[device] + random.integers(0, RECORDS, BATCH))
        for parameter in parameters:
            parameter.grad = parameter.grad_sample = None  # type: ignore[attr-defined]
        nn.functional.cross_entropy(module(x), y).backward()
        with torch.no_grad():
            each = [parameter.grad_sample for parameter in parameters]  # type: ignore[attr-defined]
            norms = torch.stack([gradients.flatten(1).norm(dim=1) for gradients in each]).norm(dim=0)
            factors = norms.clamp(min=1.0).reciprocal() / BATCH
            for parameter, gradients in zip(parameters, each, strict=True):
                parameter.sub_(torch.einsum("n,n...->...", factors, gradients), alpha=0.1)

    def run() -> None:
        for device in range(devices):
            for _ in range(steps):
                step(device)

    return run


def group_records(shape: tuple[int, ...], devices: int) -> DeviceRecords:
    """Random records as image sets are stored."""
    random = np.random.default_rng(0)
    return DeviceRecords(
        torch.from_numpy(random.integers(0, 256, (devices * RECORDS, *shape), dtype=np.uint8)),
        torch.from_numpy(random.integers(0, CLASSES, devices * RECORDS)),
        np.arange(devices + 1) * RECORDS,
        torch.tensor(1 / 255),
        torch.tensor(0.0),
    ).to(DEVICE)


def timed(cases: dict[str, Case], turns: int) -> dict[str, np.ndarray]:
    """(turns,) seconds of each case's turns, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(turns + 1):
        for name, case in cases.items():
            began = time.perf_counter()
            case()
            if DEVICE.type == "cuda":
                torch.cuda.synchronize()
            times[name].append(time.perf_counter() - began)
    return {name: np.array(each[1:]) for name, each in times.items()}


def main() -> None:
    """Print a table for each model: the rate, and beside the group's reference."""
    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message="Full backward hook")
    torch.set_num_threads(1)
    print(f"batches of {BATCH}, one thread; load average at the start {os.getloadavg()[0]:.1f}")
    usual = [group[0] for group in (GROUPS + LARGE_GROUPS if DEVICE.type == "cuda" else GROUPS)]
    for model, shape, devices, steps, turns in GROUPS + LARGE_GROUPS:
        if model not in (sys.argv[1:] or usual):
            continue
        cases = dict(engine_cases(model, shape, devices, steps))
        reference = "loop     fixed    clip none"
        if model == "softmax":
            reference = "bare operations"
            cases[reference] = bare_operations(devices, steps)
        elif model != "mlp":
            cases[reference := "plain PyTorch"] = plain_pytorch(model, shape, devices, steps)
            if model != "vit-tiny":  # Opacus has no gradients of records of torch's attention
                reference = "Opacus per sample, clip record"
                cases[reference] = opacus_per_sample(model, shape, devices, steps)
        product = {"matrix product": matrix_product()} if model == "softmax" else {}
        times = timed(cases | product, turns)
        limit = times.pop("matrix product", None)
        print(f"\n{model}: device-steps a second, and as a multiple of: {reference}")
        if limit is not None:
            flops, allowed, _ = of_the_limit(limit, limit, 1)
            print(
                f"  last column: of the {allowed:,.0f} that the arithmetic allows at the {flops / 1e9:.0f} Gflop/s that"
            )
            print(f"  a product of two {SIDE} x {SIDE} matrices reached in the same turns")
        for name, seconds in times.items():
            rate, ratio = devices * steps / np.median(seconds), np.median(times[reference] / seconds)
            share = f"{of_the_limit(seconds, limit, devices * steps)[2]:>8.2f}" if limit is not None else ""
            print(f"  {name:<36}{rate:>10,.0f}{ratio:>8.2f}{share}", flush=True)


if __name__ == "__main__":
    main()
