"""What every program is asked to do, on which records, with which model. Imports no rival."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.rivals.shapes import SHAPES


@dataclass(frozen=True)
class Job:
    """Federated averaging: in each round some devices take plain SGD steps, the server takes the mean of their models.

    Attributes:
        program: the module of this package that does it.
        model: a key of MODELS.
        data: an archive with x_train (n, channels, height, width) uint8, or (n, characters), y_train, x_test, y_test
            and device_train; all devices hold equally many records, device after device.
        devices: in all.
        participants: devices of a round.
        records: of each device.
        rounds: the first few are a warm-up; who measures decides how many.
        local_steps: of a device in a round.
        batch_size: records of a step.
        step_size: the same at every step.
        workers: cores to use.
        subnets: edge servers that h2fdp's devices are under; 1 is a star. Means nothing to the rivals.
        precision: of h2fdp's convolutions; the rivals compute with float32.
        folder: where to leave files.
    """

    program: str
    model: str
    data: str
    devices: int
    participants: int
    records: int
    rounds: int
    local_steps: int
    batch_size: int
    step_size: float
    workers: int
    subnets: int
    precision: str
    folder: str

    def to_json(self) -> str:
        """The job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Job:
        """The job of such a line."""
        return cls(**json.loads(line))


@dataclass(frozen=True)
class Trained:
    """What a program hands back.

    Attributes:
        ends: (rounds,) seconds on any clock at which each round's global model was there.
        parameters: (M,) the last global model.
    """

    ends: list[float]
    parameters: Tensor


def softmax() -> nn.Module:
    """Softmax regression without a bias on 28x28 images: M = 7,840."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False))


def two_convolutions() -> nn.Module:
    """The model of pfl-research's CIFAR-10 benchmark (`simple_cnn`), M = 1,626,442.

    Without its two dropout layers, which h2fdp refuses: all programs leave them out.
    """
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "softmax": softmax,
    "two convolutions": two_convolutions,
    **{name: shape.model for name, shape in SHAPES.items()},
}


def initial_model(name: str) -> nn.Module:
    """The model that every program starts from, equal in all of them; weights by Glorot's rule, as pfl's benchmark."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = MODELS[name]()
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
    return module


def read(job: Job, part: str) -> tuple[Tensor, Tensor]:
    """The `train` or `test` records as they are stored: (n, *shape) uint8 or int64, and int64 labels."""
    with np.load(job.data) as archive:
        x, y = archive[f"x_{part}"], archive[f"y_{part}"]
    return torch.from_numpy(x), torch.from_numpy(y)


def seen(x: Tensor) -> Tensor:
    """Records as a model takes them: pixels as float32 from 0 to 1, numbers of characters as they are.

    Channels are last in memory, as in pfl's benchmark: torch is faster so on CPUs.
    """
    if x.dtype != torch.uint8:
        return x
    return x.to(torch.float32).div_(255).contiguous(memory_format=torch.channels_last)


class ByDevice(Sequence[tuple[Tensor, Tensor]]):
    """Each device's training records as a model takes them, kept from their first use on."""

    def __init__(self, job: Job) -> None:
        x, y = read(job, "train")
        self._stored = list(zip(x.split(job.records), y.split(job.records), strict=True))
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, device: Any) -> Any:
        """(x, y) of a device."""
        if device not in self._kept:
            x, y = self._stored[device]
            self._kept[device] = seen(x), y
        return self._kept[device]


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of scores (n, classes) or (n, positions, classes)."""
    return nn.functional.cross_entropy(scores.flatten(0, -2), labels.flatten())


def drawn_batches(job: Job) -> Iterator[Tensor]:
    """Positions of the batch of each local step: a random order, cut; a new one when it is used up."""
    in_one_pass = job.records // job.batch_size
    for step in range(job.local_steps):
        at = step % in_one_pass
        if at == 0:
            batches = torch.randperm(job.records).split(job.batch_size)
        yield batches[at]


def scores(job: Job, parameters: Tensor) -> dict[str, float]:
    """Mean cross-entropy and accuracy of a global model on the test records."""
    module = initial_model(job.model)
    nn.utils.vector_to_parameters(parameters, module.parameters())
    x, y = read(job, "test")
    with torch.no_grad():
        found = torch.cat([module(seen(part)) for part in x.split(100)])
    accuracy = (found.argmax(dim=-1) == y).double().mean()
    return {"loss": float(loss(found, y)), "accuracy": float(accuracy)}
