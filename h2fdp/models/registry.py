"""The registry of models: a new one is a function in a file of this package and a line here. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from h2fdp.config.fields import Count, Flag, Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind, OwnPart

CHOICES: Choices[Options] = Choices(OwnKind("a model"))


class SoftmaxOptions(Options):
    name: Literal["softmax"] = "softmax"


class LogisticOptions(Options):
    name: Literal["logistic"] = "logistic"
    double_softmax: Flag = False


class MlpOptions(Options):
    """See `linear.mlp`; `hidden` is the width of its hidden layer."""

    name: Literal["mlp"] = "mlp"
    hidden: Count = 196


class Cnn12Options(Options):
    name: Literal["cnn12"] = "cnn12"


class AliCnn28Options(Options):
    name: Literal["ali-cnn-28"] = "ali-cnn-28"


class AliCnn32Options(Options):
    name: Literal["ali-cnn-32"] = "ali-cnn-32"


@dataclass(frozen=True)
class Model:
    """A registry line.

    Attributes:
        description: one line for `h2fdp models`.
        section: keys of the `model:` section with their defaults.
        builder: module of this room and function, `function(shape, classes, **options) -> nn.Module`; named rather
            than imported, so that a file can be checked and the models listed without torch.
        parameters: number of parameters at `shape` with 10 classes and default options.
        shape: the size that `parameters` refers to.
    """

    description: str
    section: type[Options]
    builder: tuple[str, str]
    parameters: int
    shape: tuple[int, ...] = (1, 28, 28)

    @property
    def options(self) -> dict[str, Any]:
        """Keys of the section beside `name`, with their defaults."""
        return self.section.model_validate({}).options()


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "softmax": Model("softmax regression without a bias", SoftmaxOptions, ("linear", "softmax"), 7_840),
        "logistic": Model("softmax regression with a bias", LogisticOptions, ("linear", "logistic"), 7_850),
        "mlp": Model("a perceptron with one hidden layer", MlpOptions, ("linear", "mlp"), 155_830),
        "cnn12": Model(
            "12 layers: 6 convolutions, 3 pools, 3 fully connected", Cnn12Options, ("convolutional", "cnn12"), 155_002
        ),
        "ali-cnn-28": Model(
            "ALI-DPFL's model of MNIST and Fashion-MNIST", AliCnn28Options, ("convolutional", "ali_cnn_28"), 26_010
        ),
        "ali-cnn-32": Model(
            "ALI-DPFL's model of CIFAR-10", AliCnn32Options, ("convolutional", "ali_cnn_32"), 550_570, (3, 32, 32)
        ),
    }
)
for _name in sorted(MODELS):
    CHOICES.register(MODELS[_name].section)

if TYPE_CHECKING:
    ModelSection = Options | OwnPart
else:
    ModelSection = CHOICES.section()


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
