"""Groups of devices with records, batches and models to train engines on."""

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import nn

from experiments.ali_dpfl.models import ali_cnn_28, ali_cnn_32
from h2fdp.data.records import Rows
from h2fdp.models.construct import ParameterLayout, build
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler, row_length
from h2fdp.training.device_records import DeviceRecords, Evaluator, ModuleScores
from h2fdp.training.losses import CROSS_ENTROPY

SHAPES = {
    "softmax": (1, 12, 12),
    "logistic": (1, 12, 12),
    "double": (1, 12, 12),
    "mlp": (1, 12, 12),
    "cnn12": (1, 8, 8),
    "ali-cnn-28": (1, 16, 16),
    "ali-cnn-32": (3, 8, 8),
    "own": (1, 8, 8),
    "unknown": (1, 8, 8),
}


class OwnLayer(nn.Module):
    """A parameter that no layer of torch holds: no chain of known layers."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, bias=False), nn.ReLU(inplace=True), nn.Flatten())
        self.slope = nn.Parameter(torch.tensor([0.7]))
        self.outer = nn.Linear(27, 10)

    def forward(self, x):
        return self.outer(nn.functional.silu(self.inner(x) * self.slope))


def own_chain():
    """Nested, strided, overlapping and padded convolutions, tokens before a linear layer, an in-place activation."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 5, (3, 2), stride=(1, 2), padding=(1, 1), bias=False), nn.ReLU(inplace=True)),
        nn.GroupNorm(5, 5),
        nn.Conv2d(5, 6, 3, padding=(0, 1)),
        nn.SiLU(),
        nn.Conv2d(6, 4, 2, stride=2, bias=False),
        nn.AvgPool2d(2, stride=1, padding=1),
        nn.Flatten(2),
        nn.Linear(12, 7),
        nn.GELU(),
        nn.Flatten(),
        nn.LayerNorm(28, elementwise_affine=False),
        nn.Linear(28, 10, bias=False),
    )


def double_softmax():
    """Probabilities that the loss takes for scores."""
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 10), nn.Softmax(dim=1))


@cache
def model_and_start(name):
    own = {"own": own_chain, "unknown": OwnLayer, "double": double_softmax}
    of_a_study = {"ali-cnn-28": partial(ali_cnn_28, (1, 16, 16)), "ali-cnn-32": partial(ali_cnn_32, (3, 8, 8))}
    source = (own | of_a_study).get(name, name)
    module = build(source, SHAPES[name], 10, seed_key=5)
    return module, ParameterLayout(module).to_vector(module)


def records(shape, sizes, seed=0):
    random = np.random.default_rng(seed)
    total = int(np.sum(sizes))
    return DeviceRecords(
        torch.from_numpy(random.integers(0, 256, (total, *shape), dtype=np.uint8)),
        torch.from_numpy(random.integers(0, 10, total)),
        np.concatenate([[0], np.cumsum(sizes)]),
        torch.tensor(1 / 128),
        torch.tensor(-1.0),
    )


def draw(sampling, sizes, rates, slots, seed=1):
    sizes, rates = np.asarray(sizes), np.asarray(rates, dtype=float)
    sampler = BatchSampler(
        Streams(seed), "e", sampling, sizes, rates, row_length(sampling, float((sizes * rates).max()))
    )
    return sampler.draw(0, range(slots), np.arange(len(sizes)))


def evaluate(module, model, held, loss=CROSS_ENTROPY):
    return Evaluator([ModuleScores(module)], loss).evaluate(model, held)


@dataclass(frozen=True)
class KnownNoise(Rows):
    """Noise by device and slot, of a level divided as the gradients are."""

    names: np.ndarray

    def add(self, gradients, slot, divisors):
        for gradient, name, divisor in zip(gradients, self.names, divisors, strict=False):
            generator = torch.Generator().manual_seed(1000 * int(name) + slot)
            gradient += torch.randn(len(gradient), generator=generator) / float(divisor)
