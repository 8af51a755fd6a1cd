"""The job in JAX: compiled calls, in which a device's local steps are a `lax.scan`.

The devices of softmax regression are a `vmap`, as one would write it. Two convolutions are otherwise: inside a loop of
XLA (`lax.map`, or `lax.scan` alone or under `vmap`, whose products are those of unfolded windows) a step took 20 to 50
times as long on a CPU. There the scan is unrolled, and Python calls the compiled steps device by device. Records are
float32 in memory, images with channels last; batches are drawn by numpy and gathered in compiled code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.rivals.job import Job, Trained, initial_model, read, seen

# XLA reads them when it is imported: as many threads as the job has cores, which is one.
os.environ["NPROC"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

PACKAGES = ("jax", "jaxlib")
Weights = list[jax.Array]
AFTER_POOL = (64, 14, 14)


def softmax(weights: Weights, x: jax.Array) -> jax.Array:
    """(n, 10) scores; weights as in job.py, turned for products from the right and for channels last."""
    return x.reshape(len(x), -1) @ weights[0]


def two_convolutions(weights: Weights, x: jax.Array) -> jax.Array:
    """(n, 10) scores."""
    first, first_bias, second, second_bias, third, third_bias, fourth, fourth_bias = weights
    x = jax.nn.relu(_convolve(x, first) + first_bias)
    x = jax.nn.relu(_convolve(x, second) + second_bias)
    channels, height, width = AFTER_POOL
    x = x.reshape(len(x), height, 2, width, 2, channels).max(axis=(2, 4))
    x = jax.nn.relu(x.reshape(len(x), -1) @ third + third_bias)
    return x @ fourth + fourth_bias


def _convolve(x: jax.Array, filters: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, filters, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


SCORES = {"softmax": softmax, "two convolutions": two_convolutions}


def turned(weights: list[np.ndarray]) -> list[np.ndarray]:
    """Torch's weights as the functions above take them."""
    return [_turn(each) for each in weights]


def _turn(weight: np.ndarray) -> np.ndarray:
    if weight.ndim == 4:
        return weight.transpose(2, 3, 1, 0)
    if weight.ndim == 2 and weight.shape[1] == np.prod(AFTER_POOL):
        weight = weight.reshape(-1, *AFTER_POOL).transpose(0, 2, 3, 1).reshape(len(weight), -1)
    return weight.T


def turned_back(weights: list[np.ndarray]) -> list[np.ndarray]:
    """The inverse of `turned`."""
    return [_turn_back(each) for each in weights]


def _turn_back(weight: np.ndarray) -> np.ndarray:
    if weight.ndim == 4:
        return weight.transpose(3, 2, 0, 1)
    weight = weight.T
    if weight.ndim == 2 and weight.shape[1] == np.prod(AFTER_POOL):
        channels, height, width = AFTER_POOL
        weight = weight.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(len(weight), -1)
    return weight


def round_of(job: Job) -> Callable[[Weights, jax.Array, jax.Array, np.ndarray], Weights]:
    """A round: from a global model, all records, all labels and (participants, steps, batch) positions to the next."""
    scores = SCORES[job.model]

    def loss(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
        each = jax.nn.log_softmax(scores(weights, x))
        return -jnp.take_along_axis(each, y[:, None], axis=1).mean()

    def step(own: Weights, x: jax.Array, y: jax.Array) -> Weights:
        return jax.tree.map(lambda w, g: w - job.step_size * g, own, jax.grad(loss)(own, x, y))

    def local_steps(weights: Weights, x: jax.Array, y: jax.Array, batches: jax.Array) -> Weights:
        unroll = job.model != "softmax"
        return jax.lax.scan(lambda own, at: (step(own, x[at], y[at]), None), weights, batches, unroll=unroll)[0]

    @jax.jit
    def together(weights: Weights, x: jax.Array, y: jax.Array, positions: jax.Array) -> Weights:
        models = jax.vmap(local_steps, in_axes=(None, None, None, 0))(weights, x, y, positions)
        return jax.tree.map(lambda each: each.mean(axis=0), models)

    @jax.jit
    def added(total: Weights, *given: Any) -> Weights:
        return jax.tree.map(lambda sum_, each: sum_ + each / job.participants, total, local_steps(*given))

    def one_by_one(weights: Weights, x: jax.Array, y: jax.Array, positions: np.ndarray) -> Weights:
        total = jax.tree.map(jnp.zeros_like, weights)
        for batches in positions:
            total = added(total, weights, x, y, batches)
        return total

    return together if job.model == "softmax" else one_by_one


def drawn(job: Job, random: np.random.Generator) -> np.ndarray:
    """(participants, steps, batch) positions among all records: of each device a random order, cut, and so on anew."""
    in_one_pass = job.records // job.batch_size
    passes = -(-job.local_steps // in_one_pass)
    order = np.tile(np.arange(job.records, dtype=np.int32), (job.participants, passes, 1))
    random.permuted(order, axis=2, out=order)
    batches = order[:, :, : in_one_pass * job.batch_size].reshape(job.participants, -1, job.batch_size)
    cohort = random.choice(job.devices, job.participants, replace=False).astype(np.int32)
    return batches[:, : job.local_steps] + cohort[:, None, None] * np.int32(job.records)


def train(job: Job) -> Trained:
    """All rounds; the first one contains the compilation."""
    x, y = (jnp.asarray(each) for each in _records(job))
    random, a_round = np.random.default_rng(1), round_of(job)
    start = [each.detach().numpy() for each in initial_model(job.model).parameters()]
    weights: Any = [jnp.asarray(each) for each in turned(start)]
    ends: list[float] = []
    for _ in range(job.rounds):
        weights = jax.block_until_ready(a_round(weights, x, y, drawn(job, random)))
        ends.append(time.time())
    end = [torch.from_numpy(np.ascontiguousarray(each)) for each in turned_back([np.asarray(each) for each in weights])]
    return Trained(ends, nn.utils.parameters_to_vector(end))


def _records(job: Job) -> tuple[np.ndarray, np.ndarray]:
    x, y = read(job, "train")
    return seen(x).permute(0, 2, 3, 1).contiguous().numpy(), y.numpy().astype(np.int32)
