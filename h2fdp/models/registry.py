"""The named models: a new one is a function in `architectures.py` and its options here. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field, create_model

from h2fdp.config.check import check
from h2fdp.config.fields import Count, Expect, FilePath, Flag, Options, Positive, Section, Text
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import WEIGHTS, OwnKind, OwnPart
from h2fdp.config.parsing import empty_document
from h2fdp.errors import UserError

_Startable: Any = create_model("_Startable", __base__=Options, **{"from": (FilePath | None, None)})  # type: ignore[call-overload]


FROM, ENCODER, TRAIN, LORA = "from", "encoder", "train", "lora"
VOCABULARY = 10_000  # words of LEAF's data, by default
FIX = "fix"  # of a model of the user's own: batch norm becomes group norm
WARM_STARTED = (
    "model.from or weights: training starts with the model of a file; what that one has learned from these records is "
    "not in this account (h2fdp privacy account composes runs)"
)


Patterns = Annotated[
    list[Text],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1),
    Expect("a name or a pattern, or a list of them"),
]


class Lora(Section):
    """Low-rank adapters (LoRA, Hu et al. 2022): linear layers become W x + (alpha / rank) B A x; A and B are trained.

    Attributes:
        layers: names, or patterns of names, of the linear layers that have adapters.
        rank: rows of A; B begins at 0.
        alpha: see the formula; null: the rank.
    """

    layers: Patterns
    rank: Count = 8
    alpha: Positive | None = None


class FineTuning(Section):
    """The part of a model that is trained.

    Attributes:
        train: names, or patterns of names (`head`, `layers.3.*`), of the layers or parameters that are trained; all
            else is frozen: neither trained nor sent. Null: all, or what `lora` says.
        lora: low-rank adapters of linear layers, which are trained; all else but `train` is frozen. Null: none.
    """

    train: Patterns | None = None
    lora: Lora | None = None


class ModelOptions(FineTuning, _Startable):  # type: ignore[misc]
    """The options of a named model under `model:`, and its facts that need no building.

    Attributes:
        description: one line for `h2fdp models`.
        builder: function of `architectures`, `function(shape, classes, **options) -> nn.Module`; named rather than
            imported, so that a file can be checked and the models listed without torch.
        parameters: number of parameters at `shape` with 10 classes and default options.
        shape: the size that `parameters` refers to.
        of_sequences: the builder gets the shape of a record's scores for the number of classes.
        from: a file with the parameters that training starts with; null for random ones.
    """

    description: ClassVar[str]
    builder: ClassVar[str]
    parameters: ClassVar[int]
    shape: ClassVar[tuple[int, ...]] = (1, 28, 28)
    of_sequences: ClassVar[bool] = False

    @property
    def architecture(self) -> dict[str, Any]:
        """The options of the builder: all but where parameters and features come from, and what is trained."""
        return {key: value for key, value in super().options().items() if key not in (FROM, ENCODER, TRAIN, LORA)}

    @property
    def begins(self) -> dict[str, Any]:
        """The parameters that it starts with, and what is trained; nothing where that is not stated."""
        return {key: value for key in (FROM, TRAIN, LORA) if (value := getattr(self, key)) is not None}

    def options(self) -> dict[str, Any]:
        """All but the name; without `from`, `encoder`, `train` and `lora` where there is none."""
        given = {ENCODER: getattr(self, ENCODER, None)} | self.begins
        return self.architecture | {key: value for key, value in given.items() if value is not None}


CHOICES: Choices[ModelOptions] = Choices(
    OwnKind("a model", reserved=(FIX, FROM, TRAIN, LORA), files=(FROM,), libraries=True)
)


@CHOICES.register
class Auto(ModelOptions):
    """The choice of `model: auto`: a linear model, for images of their public features."""

    description: ClassVar[str] = "images: public-features; other records: logistic on standardised inputs; texts: lstm"
    builder: ClassVar[str] = "softmax"  # of an image's features; `run.recipe` names the model that it becomes
    parameters: ClassVar[int] = 3_850
    shape: ClassVar[tuple[int, ...]] = (385,)
    nulls: ClassVar[bool] = False
    name: Literal["auto"] = "auto"


def default_model() -> Auto | Softmax:
    """The model of a file that states none."""
    model: Auto = Auto.model_validate({})
    return model


ENCODERS: Choices[Options] = Choices(
    OwnKind("an encoder", reserved=(WEIGHTS, "source", "side"), files=(WEIGHTS,), libraries=True)
)


@ENCODERS.register
class EfficientNetLite0(Options):
    """EfficientNet-Lite0 with its weights of ImageNet, from the extra `encoders`.

    Attributes:
        side: of the squares to which images are resized, in pixels; ImageNet's were 224.
    """

    name: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    side: Annotated[int, Field(ge=32, le=1_024), Expect("a whole number from 32 to 1024")] = 128


EncoderSection = Annotated[EfficientNetLite0 | OwnPart, ENCODERS]


@CHOICES.register
class PublicFeatures(ModelOptions):
    """A model on features of images that no private record had a part in.

    Attributes:
        size: number of features; small images have fewer. They are those of most variance among public images. Null:
            384, or all those of an encoder, but 256 where noise is much and `auto` chooses.
        encoder: a frozen module that makes the features, in place of scattering; what it was trained on is declared.
        head: what is trained on them. `centred`: softmax regression on features less their private mean, which the
            first interval releases; `discriminant`: the linear model of `method: one-shot`.
    """

    description: ClassVar[str] = "scattering of images, whitened on public ones, with a trained head"
    builder: ClassVar[str] = "public_features"
    parameters: ClassVar[int] = 3_850
    shape: ClassVar[tuple[int, ...]] = (385,)
    nulls: ClassVar[bool] = False
    name: Literal["public-features"] = "public-features"
    size: Annotated[int, Field(ge=1, le=1_000), Expect("a whole number from 1 to 1000")] | None = None
    head: Annotated[
        Literal["softmax", "centred", "mlp", "discriminant"], Expect("softmax, centred, mlp or discriminant")
    ] = "softmax"
    encoder: EncoderSection | None = None


@CHOICES.register
class Softmax(ModelOptions):
    """Softmax regression."""

    description: ClassVar[str] = "softmax regression without a bias"
    builder: ClassVar[str] = "softmax"
    parameters: ClassVar[int] = 7_840
    name: Literal["softmax"] = "softmax"


@CHOICES.register
class Logistic(ModelOptions):
    """Logistic regression.

    Attributes:
        standardize: standardise inputs by the mean and deviation of the test records, which are public; not where these
            belong to devices.
    """

    description: ClassVar[str] = "softmax regression with a bias"
    builder: ClassVar[str] = "logistic"
    parameters: ClassVar[int] = 7_850
    name: Literal["logistic"] = "logistic"
    standardize: Flag = False


@CHOICES.register
class Mlp(ModelOptions):
    """A perceptron.

    Attributes:
        hidden: the width of the hidden layer, or of the LSTM's state.
    """

    description: ClassVar[str] = "a perceptron with one hidden layer"
    builder: ClassVar[str] = "mlp"
    parameters: ClassVar[int] = 155_830
    name: Literal["mlp"] = "mlp"
    hidden: Count = 196


@CHOICES.register
class Cnn12(ModelOptions):
    """A convolutional network of ours."""

    description: ClassVar[str] = "12 layers: 6 convolutions, 3 pools, 3 fully connected"
    builder: ClassVar[str] = "cnn12"
    parameters: ClassVar[int] = 155_002
    name: Literal["cnn12"] = "cnn12"


@CHOICES.register
class FemnistCnn(ModelOptions):
    """LEAF's network of FEMNIST."""

    description: ClassVar[str] = "LEAF's CNN of FEMNIST: two 5x5 convolutions, 2,048 units"
    builder: ClassVar[str] = "femnist_cnn"
    parameters: ClassVar[int] = 6_497_162
    name: Literal["femnist-cnn"] = "femnist-cnn"


@CHOICES.register
class ResNet18(ModelOptions):
    """ResNet-18 with group norm."""

    description: ClassVar[str] = "ResNet-18 of torchvision with group norm; a 3x3 stem for images of up to 64 pixels"
    builder: ClassVar[str] = "resnet18"
    parameters: ClassVar[int] = 11_173_962
    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    name: Literal["resnet18"] = "resnet18"


@CHOICES.register
class VitTiny(ModelOptions):
    """A small vision transformer.

    Attributes:
        patch: side of a patch of an image, in pixels.
    """

    description: ClassVar[str] = "a vision transformer in the size of DeiT-Ti: 12 layers of width 192"
    builder: ClassVar[str] = "vit_tiny"
    parameters: ClassVar[int] = 5_362_762
    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    name: Literal["vit-tiny"] = "vit-tiny"
    patch: Count = 4


class OfWords(ModelOptions):
    """A model of records that are numbers of words.

    Attributes:
        vocabulary: the largest number of a word; null: as `data` says, that of a class of sequences and characters, or
            10,000.
    """

    nulls: ClassVar[bool] = False
    vocabulary: Count | None = None


@CHOICES.register
class TextTransformer(OfWords):
    """A small transformer.

    Attributes:
        width: of a word's vector, and of each layer.
        heads: of attention; they divide the width.
        layers: of attention and a perceptron of four times the width.
    """

    description: ClassVar[str] = "a transformer: classes of texts, or the next word at each position"
    builder: ClassVar[str] = "text_transformer"
    parameters: ClassVar[int] = 1_681_418
    shape: ClassVar[tuple[int, ...]] = (25,)
    of_sequences: ClassVar[bool] = True
    name: Literal["text-transformer"] = "text-transformer"
    width: Count = 128
    heads: Count = 4
    layers: Count = 2


@CHOICES.register
class CharLstm(OfWords):
    """Two LSTMs on characters.

    Attributes:
        embedding: dimensions of a word's vector.
        hidden: the width of the hidden layer, or of the LSTM's state.
    """

    description: ClassVar[str] = "two LSTMs on characters, for the next one; McMahan et al.'s model of Shakespeare"
    builder: ClassVar[str] = "char_lstm"
    parameters: ClassVar[int] = 799_322
    shape: ClassVar[tuple[int, ...]] = (80,)
    of_sequences: ClassVar[bool] = True
    name: Literal["char-lstm"] = "char-lstm"
    embedding: Count = 8
    hidden: Count = 256


@CHOICES.register
class Lstm(OfWords):
    """An embedding of word numbers with an LSTM.

    Attributes:
        embedding: dimensions of a word's vector.
        hidden: the width of the hidden layer, or of the LSTM's state.
    """

    description: ClassVar[str] = "an embedding of words with a bidirectional LSTM; Upcycled-FL's model of Sent140"
    builder: ClassVar[str] = "lstm"
    parameters: ClassVar[int] = 4_146_166
    shape: ClassVar[tuple[int, ...]] = (25,)
    name: Literal["lstm"] = "lstm"
    embedding: Count = 300
    hidden: Count = 256


MODELS = MappingProxyType(cast("Mapping[str, type[ModelOptions]]", CHOICES.models))

ModelSection = Annotated[ModelOptions | OwnPart, CHOICES]


def start_of(model: ModelSection) -> str | None:
    """The file with the parameters that training starts with; None for those that the model is made with."""
    file = model.given.get(FROM) if isinstance(model, OwnPart) else getattr(model, FROM)
    if isinstance(model, OwnPart) and not isinstance(file, str | None):
        raise UserError(f"expected from: the path of a file, found {file}", model.where, model.key)
    return cast("str | None", file)


def tuning_of(model: ModelSection) -> FineTuning | None:
    """The part of a model that is trained; None where that is all of it, or as a module of the user's own says."""
    if not isinstance(model, OwnPart):
        return model if model.train or model.lora else None
    stated = {key: model.given[key] for key in (TRAIN, LORA) if model.given.get(key) is not None}
    if not stated:
        return None
    try:
        return check(FineTuning, empty_document(model.where, Path(), stated))
    except UserError as error:
        raise UserError([replace(each, key=f"model.{each.key}") for each in error.problems]) from None


def describe() -> list[dict[str, Any]]:
    """A row for each model, for `h2fdp models`; nothing is built. `parameters` is M for `records` and 10 classes.

    >>> describe()[2]["name"], describe()[2]["parameters"]
    ('softmax', 7840)
    """
    return [
        {
            "name": name,
            "description": model.description,
            "parameters": model.parameters,
            "records": "x".join(str(side) for side in model.shape),
            "keys": ", ".join(f"{key}: {default}" for key, default in model.model_validate({}).options().items()),
        }
        for name, model in MODELS.items()
    ]
