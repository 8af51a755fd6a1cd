"""All models by name: a new one is a function in a file of this room and a line here. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Model:
    """A registry line.

    Attributes:
        description: one line for `h2fdp models`.
        builder: module of this room and function, `function(shape, classes, **options) -> nn.Module`; named rather
            than imported, so that a file can be checked and the models listed without torch.
        parameters: number of parameters at `shape` with 10 classes and default options.
        shape: the size that `parameters` refers to.
        options: keys of the `model:` section beside `name`, with their defaults.
    """

    description: str
    builder: tuple[str, str]
    parameters: int
    shape: tuple[int, ...] = (1, 28, 28)
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "softmax": Model("softmax regression without a bias", ("linear", "softmax"), 7_840),
        "logistic": Model(
            "softmax regression with a bias",
            ("linear", "logistic"),
            7_850,
            options=MappingProxyType({"double_softmax": False}),
        ),
        "mlp": Model(
            "a perceptron with one hidden layer", ("linear", "mlp"), 155_830, options=MappingProxyType({"hidden": 196})
        ),
        "cnn12": Model("12 layers: 6 convolutions, 3 pools, 3 fully connected", ("convolutional", "cnn12"), 155_002),
        "ali-cnn-28": Model("ALI-DPFL's model of MNIST and Fashion-MNIST", ("convolutional", "ali_cnn_28"), 26_010),
        "ali-cnn-32": Model("ALI-DPFL's model of CIFAR-10", ("convolutional", "ali_cnn_32"), 550_570, (3, 32, 32)),
    }
)


def describe() -> list[dict[str, Any]]:
    """A row for each model, for `h2fdp models`; nothing is built. `parameters` is M for `records` and 10 classes.

    >>> describe()[0]["name"], describe()[0]["parameters"]
    ('softmax', 7840)
    """
    return [
        {
            "name": name,
            "description": model.description,
            "parameters": model.parameters,
            "records": "x".join(str(side) for side in model.shape),
            "keys": ", ".join(f"{key}: {default}" for key, default in model.options.items()),
        }
        for name, model in MODELS.items()
    ]
