"""The four shapes of federated averaging whose times FLUTE publishes: sizes, models, and drawn records.

Sources: README.md and experiments/cv_* and nlp_* of github.com/microsoft/msrflute, read in November 2026. Lengths of an
epoch are means over devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

EACH_ROUND = 10  # devices


class Logistic(nn.Sequential):
    """FLUTE's model of MNIST: cross-entropy of the sigmoids of a linear layer."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, 10), nn.Sigmoid())


class Cnn(nn.Sequential):
    """FLUTE's model of FEMNIST (Reddi et al. 2021), without its dropout: 1,206,590 parameters."""

    def __init__(self) -> None:
        convolutions = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)
        super().__init__(*convolutions, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 62))


def resnet18() -> nn.Module:
    """FLUTE's ResNet-18 with group norm for 100 classes, with the stem of ImageNet: 11,227,812 parameters."""
    from torchvision.models import resnet18 as made  # seconds, for those who train it

    module: nn.Module = made(num_classes=100, norm_layer=lambda wide: nn.GroupNorm(32, wide))
    return module


def char_lstm() -> nn.Module:
    """Two LSTMs on 80 characters, for the character after each (Reddi et al. 2021): 820,522 parameters."""
    from h2fdp.models.architectures import char_lstm as made  # one program's for all: torch's own has two biases

    return made((80,), (80, 90), 89, 8, 256)


@dataclass(frozen=True)
class Shape:
    """One of the shapes.

    Attributes:
        records: of a device, the mean of theirs; `tests` of all together.
        record: shape of a record, and of its labels.
        rounds, every: rounds, and rounds from one evaluation to the next.
        published: who, on what -> hours, minutes and seconds.
    """

    devices: int
    records: int
    tests: int
    record: tuple[int, ...]
    label: tuple[int, ...]
    classes: int
    batch: int
    step_size: float
    rounds: int
    every: int
    model: Callable[[], nn.Module]
    published: dict[str, str]

    @property
    def steps(self) -> int:
        """Of a device in a round."""
        return -(-self.records // self.batch)


SHAPES = {
    "lr-mnist": Shape(
        1_000, 60, 10_000, (1, 28, 28), (), 10, 10, 0.03, 100, 20, Logistic,
        {"FLUTE, CPU": "0:03:20", "FLUTE, GPUs": "0:01:35", "Flower 1.0.0, CPU": "0:30:14", "FedML, GPUs": "0:03:09"},
    ),
    "cnn-femnist": Shape(
        3_400, 198, 77_483, (1, 28, 28), (), 62, 20, 0.1, 1_500, 50, Cnn,
        {"FLUTE, GPUs (1,500 rounds in its README, 800 in its file)": "0:08:22", "FedML, GPUs": "5:49:52"},
    ),
    "resnet-cifar100": Shape(
        500, 100, 10_000, (3, 32, 32), (), 100, 20, 0.1, 4_000, 50, resnet18,
        {"FLUTE, GPUs": "1:42:01", "FedML, GPUs": "15:55:36"},
    ),
    "rnn-shakespeare": Shape(
        715, 22, 2_356, (80,), (80,), 90, 4, 0.8, 1_200, 50, char_lstm,
        {"FLUTE, GPUs": "0:21:50", "FedML, GPUs": "6:46:21"},
    ),
}  # fmt: skip


def drawn(shape: Shape, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of a shape: pixels of 8 bits, or numbers of characters."""
    rng = np.random.default_rng(seed)
    if len(shape.record) == 1:
        x = rng.integers(0, shape.classes, (count, *shape.record))
    else:
        x = rng.integers(0, 256, (count, *shape.record), dtype=np.uint8)
    y = rng.integers(0, shape.classes, (count, *shape.label))
    y.reshape(-1)[: shape.classes] = np.arange(shape.classes)[: y.size]  # each class is seen
    return x, y
