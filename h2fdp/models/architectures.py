"""The architectures of the named models: functions of a record's shape and the number of classes.

None has batch norm, whose running statistics leak records and cannot be averaged.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional

from h2fdp.errors import UserError
from h2fdp.models.registry import VOCABULARY


def softmax(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression without a bias: M = 7,840 on 28x28 images of 10 classes (H2FDP, Sec. 6.1)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes, bias=False))


def public_features(shape: tuple[int, ...], classes: int, size: int, head: str) -> nn.Module:
    """Softmax regression on public features of images, whose last one is constant, from 0 where they are centred; a
    perceptron; or scores whose gradients are class sums and second moments.

    Args:
        shape: of the features, (size + 1,), or (1 + fewer,) of small images.
    """
    if head == "discriminant":
        return Discriminant(math.prod(shape), classes)
    if head == "mlp":
        return mlp(shape, classes, hidden=196)
    module = softmax(shape, classes)
    for each in module.parameters() if head == "centred" else ():
        nn.init.zeros_(each)
    return module


SHARE = 0.7  # of class sums in the squared length of what a record adds to them and to second moments


class Discriminant(nn.Module):
    """sqrt(s) w_c . x + sqrt(1 - s) x^T U x, for the share s, where the upper triangle U is the same for all classes.

    The gradient of a class's score in the parameters is what a record of that class adds to the class sums, sqrt(s) x,
    and to the second moments: sqrt(1 - s) times the upper triangle of x x^T, its squares, and its
    products times sqrt(2). Its length is sqrt(s |x|^2 + (1 - s) |x|^4). Without U it is a linear model.
    """

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, inputs))
        self.square = nn.Parameter(torch.zeros(inputs * (inputs + 1) // 2))

    def forward(self, x: Tensor) -> Tensor:
        """(n, classes) scores of features (n, ...)."""
        x = x.flatten(1)
        common = (x @ triangle(self.square, x.shape[1]) * x).sum(dim=1, keepdim=True)
        scores: Tensor = SHARE**0.5 * (x @ self.weight.t()) + (1 - SHARE) ** 0.5 * common
        return scores


def triangle(values: Tensor, side: int) -> Tensor:
    """(side, side) the upper triangle U with <values, v> = x^T U x, for v (side (side + 1) / 2,) of the same length as
    x x^T: its squares, and its products times sqrt(2).

    >>> triangle(torch.tensor([1.0, 2.0, 3.0]), 2)
    tensor([[1.0000, 2.8284],
            [0.0000, 3.0000]])
    """
    row, column = torch.triu_indices(side, side, device=values.device)
    scaled = values * torch.where(row == column, 1.0, 2.0**0.5).to(values.dtype)
    return values.new_zeros(side * side).scatter(0, row * side + column, scaled).view(side, side)


def logistic(
    shape: tuple[int, ...], classes: int, standardize: bool = False, double_softmax: bool = False
) -> nn.Module:
    """Multinomial logistic regression: softmax regression with a bias (Upcycled-FL's model of synthetic data).

    Args:
        standardize: its inputs are, before they come here (`data.federated`).
        double_softmax: its outputs are probabilities, which the cross-entropy takes for scores once more: that is how
            the program of Upcycled-FL's authors trains.
    """
    layers = [nn.Flatten(), nn.Linear(math.prod(shape), classes)]
    return nn.Sequential(*layers, *([nn.Softmax(dim=1)] if double_softmax else []))


def mlp(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """A perceptron with one hidden layer of rectified units (Upcycled-FL's model of FEMNIST)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))


def cnn12(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Twelve layers: three times (convolution, convolution, max-pool), then three fully connected ones.

    The convolutions are 3x3, padded, with 16, 32 and 64 channels; a pool halves the sides. Works at 28x28x1 (155,002
    parameters) and 32x32x3, in fact from 8x8 on. H2FDP names a "12-layer CNN" without describing it; this one is ours.
    Each convolution is followed by a group norm, which acts on each record alone: without any norm, plain SGD did not
    leave chance level within 600 steps of Fashion-MNIST.
    """
    channels, height, width = image_shape("cnn12", shape, smallest=8)
    blocks: list[nn.Module] = []
    for wide in (16, 32, 64):
        for narrow in (channels, wide):
            blocks += [nn.Conv2d(narrow, wide, 3, padding=1), nn.GroupNorm(8, wide), nn.ReLU()]
        blocks.append(nn.MaxPool2d(2))
        channels = wide
    inputs = channels * (height // 8) * (width // 8)
    head = [nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(*blocks, nn.Flatten(), *head)


def femnist_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """LEAF's model of FEMNIST (Caldas et al. 2018), after McMahan et al. 2017: 6,603,710 parameters at 28x28x1 and 62
    classes. Two padded 5x5 convolutions with 32 and 64 channels, a max-pool after each, 2,048 rectified units."""
    channels, height, width = image_shape("femnist-cnn", shape, smallest=4)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 2048),
        nn.ReLU(),
        nn.Linear(2048, classes),
    )


def resnet18(shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 (He et al. 2016) of torchvision, with group norm in 32 groups for batch norm (Wu and He 2018).

    Images of up to 64 pixels meet a convolution of 3x3 without a pool, as is usual on CIFAR; larger ones those of
    ImageNet, of 7x7.
    """
    from torchvision.models import resnet18 as made  # seconds, for those who train it

    channels, *sides = image_shape("resnet18", shape, smallest=8)
    module: nn.Module = made(num_classes=classes, norm_layer=lambda wide: nn.GroupNorm(32, wide))
    small = max(sides) <= 64
    if small or channels != 3:
        side, stride = (3, 1) if small else (7, 2)
        module.conv1 = nn.Conv2d(channels, 64, side, stride, padding=side // 2, bias=False)
        nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    if small:
        module.maxpool = nn.Identity()
    return module


def vit_tiny(shape: tuple[int, ...], classes: int, patch: int) -> nn.Module:
    """A vision transformer (Dosovitskiy et al. 2021) in the size of DeiT-Ti (Touvron et al. 2021).

    Raises:
        UserError: images that are no squares of whole patches.
    """
    channels, height, width = image_shape("vit-tiny", shape, smallest=patch)
    if height != width or height % patch:
        text = f"vit-tiny needs square images of whole patches, found {height}x{width} and patch: {patch}"
        raise UserError(text, key="model.patch")
    return VisionTransformer(channels, (height // patch) ** 2, patch, classes)


def lstm(shape: tuple[int, ...], classes: int, vocabulary: int | None, embedding: int, hidden: int) -> nn.Module:
    """An embedding of words with a bidirectional LSTM; with 300 and 256 it is Upcycled-FL's model of Sent140.

    Args:
        vocabulary: the largest number of a word; None for that of LEAF's data by default.

    Raises:
        UserError: records that are no rows of word numbers.
    """
    words_of("lstm", shape)
    return WordLstm(classes, vocabulary or VOCABULARY, embedding, hidden)


def words_of(model: str, shape: tuple[int, ...]) -> int:
    """The number of words in a record.

    Raises:
        UserError: records that are no rows of word numbers.
    """
    if len(shape) != 1:
        raise UserError(f"{model} needs rows of word numbers, of shape (words,), found shape {shape}", key="model")
    return shape[0]


class Embedded(nn.Module):
    """A base of models of words: numbers from 0 to the vocabulary's last as vectors."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary + 1, width)

    def vectors(self, x: Tensor) -> Tensor:
        """Word numbers (n, words) as vectors (n, words, width)."""
        found: Tensor = self.embedding(x.long().clamp(0, self.embedding.num_embeddings - 1))
        return found


def states(vectors: Tensor, inputs: nn.Module, product: nn.Module) -> Tensor:
    """The states (n, words, hidden) of an LSTM after each of the vectors (n, words, width).

    Input, forget, cell and output gates stand in this order, with one bias. The cell is written out (Hochreiter and
    Schmidhuber 1997, with forget gates) where `torch.func` or hooks look into it: torch's own shows them nothing. On a
    processor torch's own takes a quarter of the time for the same states, up to rounding.

    Args:
        inputs: the linear layer from a vector to what it adds to the gates.
        product: that from a state to what it adds to the gates of the next word.
    """
    assert isinstance(inputs, nn.Linear)
    assert isinstance(product, nn.Linear)
    weights = inputs.weight, product.weight, inputs.bias
    hooks = (each for layer in (inputs, product) for each in (layer._forward_hooks, layer._forward_pre_hooks))
    looked_into = any(map(is_functorch_wrapped_tensor, (vectors, *weights))) or any(hooks)
    state = cell = vectors.new_zeros(len(vectors), product.in_features)
    if vectors.device.type == "cpu" and not looked_into:
        first, no_bias = (state[None], cell[None]), torch.zeros_like(inputs.bias)
        whole: Tensor = torch.lstm(vectors, first, (*weights, no_bias), True, 1, 0.0, True, False, True)[0]
        return whole
    gates, found = inputs(vectors), []
    for place in range(gates.shape[1]):
        entry, forget, fresh, out = (gates[:, place] + product(state)).chunk(4, dim=1)
        cell = forget.sigmoid() * cell + entry.sigmoid() * fresh.tanh()
        state = out.sigmoid() * cell.tanh()
        found.append(state)
    return torch.stack(found, dim=1)


def char_lstm(
    shape: tuple[int, ...], outputs: tuple[int, ...], vocabulary: int | None, embedding: int, hidden: int
) -> nn.Module:
    """Two LSTMs on characters, for the next one (McMahan et al. 2017; Reddi et al. 2021).

    Args:
        outputs: (classes,) for the character after the last one; (positions, classes) for that after each.
        vocabulary: the largest number of a character; None: that of a class.
    """
    words_of("char-lstm", shape)
    return CharLstm(outputs, outputs[-1] - 1 if vocabulary is None else vocabulary, embedding, hidden)


class CharLstm(Embedded):
    """Embedding, two LSTMs from left to right, the states of the second to scores."""

    def __init__(self, outputs: tuple[int, ...], vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__(vocabulary, embedding)
        self.inputs = nn.ModuleList(nn.Linear(width, 4 * hidden) for width in (embedding, hidden))
        self.states = nn.ModuleList(nn.Linear(hidden, 4 * hidden, bias=False) for _ in range(2))
        self.scores = nn.Linear(hidden, outputs[-1])
        self.each = len(outputs) > 1

    def forward(self, x: Tensor) -> Tensor:
        """Numbers of characters (n, length) to scores (n, *outputs)."""
        found = self.vectors(x)
        for inputs, product in zip(self.inputs, self.states, strict=True):
            found = states(found, inputs, product)
        scores: Tensor = self.scores(found if self.each else found[:, -1])
        return scores


def text_transformer(
    shape: tuple[int, ...], outputs: tuple[int, ...], vocabulary: int | None, width: int, heads: int, layers: int
) -> nn.Module:
    """A transformer on words (Vaswani et al. 2017), with norms before attention, and places that are learned.

    Args:
        outputs: (classes,) of a text; (positions, classes) for the next word at each position, which sees those before.
        vocabulary: the largest number of a word; None: that of a class of sequences, else that of LEAF's data.

    Raises:
        UserError: a width that heads do not divide.
    """
    if width % heads:
        raise UserError(f"expected a multiple of heads, {heads}, found {width}", key="model.width")
    known = (outputs[-1] - 1 if len(outputs) > 1 else VOCABULARY) if vocabulary is None else vocabulary
    return TextTransformer(words_of("text-transformer", shape), outputs, known, width, heads, layers)


class AttentionLayer(nn.Module):
    """Attention and a perceptron, each behind a norm and with a residual connection.

    Both call linear layers, so that norms of records' gradients follow without the gradients; torch's own attention
    reads the layers' weights.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.before, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.between, self.inner, self.outer = (
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        )  # fmt: skip
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        """(n, words, width) to the same."""
        parts = self.qkv(self.before(x)).chunk(3, dim=-1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        found: Tensor = x + self.outer(functional.gelu(self.inner(self.between(x))))
        return found


class VisionTransformer(nn.Module):
    """Patches with a token before them and places, 12 layers of width 192 with 3 heads, the token's state to scores."""

    def __init__(self, channels: int, patches: int, patch: int, classes: int, width: int = 192) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token, self.places = nn.Embedding(1, width), nn.Embedding(1 + patches, width)
        self.layers = nn.ModuleList(AttentionLayer(width, 3, causal=False) for _ in range(12))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, classes)
        for layer in self.modules():  # as DeiT has it
            if isinstance(layer, nn.Embedding | nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Images (n, channels, height, width) to scores (n, classes)."""
        found = self.patches(x).flatten(2).transpose(1, 2)
        places = torch.arange(1 + found.shape[1], device=x.device)[None]
        token = self.token(places[:, :1]).expand(len(x), -1, -1)
        found = torch.cat([token, found], dim=1) + self.places(places)
        for layer in self.layers:
            found = layer(found)
        scores: Tensor = self.scores(self.norm(found[:, 0]))
        return scores


class TextTransformer(Embedded):
    """Embedding and places, layers of attention and perceptrons, the mean of all words or each one to scores."""

    def __init__(
        self, words: int, outputs: tuple[int, ...], vocabulary: int, width: int, heads: int, layers: int
    ) -> None:
        super().__init__(vocabulary, width)
        self.places = nn.Embedding(words, width)
        self.layers = nn.ModuleList(AttentionLayer(width, heads, len(outputs) > 1) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, outputs[-1])
        self.each = len(outputs) > 1

    def forward(self, x: Tensor) -> Tensor:
        """Word numbers (n, words) to scores (n, *outputs); 0 is no word of a text."""
        found = self.vectors(x) + self.places(torch.arange(x.shape[1], device=x.device)[None])
        for layer in self.layers:
            found = layer(found)
        found = self.norm(found)
        if not self.each:
            own = (x > 0).to(found.dtype)[..., None]
            found = (found * own).sum(dim=1) / own.sum(dim=1).clamp(min=1)
        scores: Tensor = self.scores(found)
        return scores


class WordLstm(Embedded):
    """Embedding, LSTM in both directions, its last states to scores."""

    def __init__(self, classes: int, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__(vocabulary, embedding)
        self.inputs = nn.ModuleList(nn.Linear(embedding, 4 * hidden) for _ in range(2))
        self.states = nn.ModuleList(nn.Linear(hidden, 4 * hidden, bias=False) for _ in range(2))
        self.scores = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Word numbers (n, words) to scores (n, classes)."""
        words = self.vectors(x)
        scores: Tensor = self.scores(torch.cat([self._last(words, 0), self._last(words.flip(1), 1)], dim=1))
        return scores

    def _last(self, words: Tensor, direction: int) -> Tensor:
        """(n, hidden) the state after the last word."""
        return states(words, self.inputs[direction], self.states[direction])[:, -1]


def image_shape(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """The shape as channels, height, width.

    Raises:
        UserError: not a shape of images, or of images smaller than the model can take.
    """
    if len(shape) != 3:
        text = f"{model} needs images of shape (channels, height, width), found records of shape {shape}"
        raise UserError(text, key="model")
    channels, height, width = shape
    if min(height, width) < smallest:
        text = f"{model} needs images of at least {smallest}x{smallest}, found {height}x{width}"
        raise UserError(text, key="model")
    return channels, height, width
