"""The networks of ALI-DPFL's papers and of its program, for `model: "experiments.ali_dpfl.models:ali_cnn_28"`.

The defaults are the shape of a record of Fashion-MNIST (of CIFAR-10 for `ali_cnn_32`) and ten classes.
"""

from __future__ import annotations

from torch import nn

IMAGE = (1, 28, 28)


def ali_cnn_28(shape: tuple[int, ...] = IMAGE, classes: int = 10) -> nn.Module:
    """ALI-DPFL's model of MNIST and Fashion-MNIST (Table V): 26,010 parameters at 28x28x1; from 16x16 on.

    The table states no activation. It is the model of Papernot et al. 2021 ("Tempered sigmoid activations for deep
    learning with differential privacy") and so has theirs, tanh.
    """
    channels, height, width = shape
    sides = [((side - 4) // 2 - 4) // 2 for side in (height, width)]  # after two convolutions and two pools
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * sides[0] * sides[1], 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


def ali_cnn_32(shape: tuple[int, ...] = (3, 32, 32), classes: int = 10) -> nn.Module:
    """ALI-DPFL's model of CIFAR-10 (Table VI): 550,570 parameters at 32x32x3; from 8x8 on. Tanh as in `ali_cnn_28`."""
    channels, height, width = shape
    blocks: list[nn.Module] = []
    for wide in (32, 64, 128):
        for narrow in (channels, wide):
            blocks += [nn.Conv2d(narrow, wide, 3, padding=1), nn.Tanh()]
        blocks.append(nn.MaxPool2d(2))
        channels = wide
    inputs = channels * (height // 8) * (width // 8)
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, classes))


def fedavg_cnn(shape: tuple[int, ...] = IMAGE, classes: int = 10) -> nn.Module:
    """A CNN after McMahan et al. 2017, without padding, as ALI-DPFL's program has it: 582,026 parameters at 28x28x1,
    878,538 at 32x32x3; from 16x16 on. Two 5x5 convolutions with 32 and 64 channels, a max-pool after each, 512
    rectified units."""
    channels, height, width = shape
    sides = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * sides[0] * sides[1], 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )
