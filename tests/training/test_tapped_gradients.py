"""Clipped sums of records' gradients by what enters and leaves layers, against a plain loop, and what is not tapped."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from h2fdp.models.construct import ParameterLayout, build
from h2fdp.models.finetuning import fine_tuned
from h2fdp.models.registry import FineTuning
from h2fdp.training.clipping import Clipping
from h2fdp.training.gradients import gradient_rule
from h2fdp.training.gradients.tapped import TappedGradients, tapped_layers


class Residual(nn.Module):
    """Convolutions with a way around them, one of them called twice, and two kinds of norm."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4)
        self.again, self.relu = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.ReLU(inplace=True)
        self.across, self.last = nn.LayerNorm((4, 4)), nn.Linear(64, 3)

    def forward(self, x):
        x = self.relu(self.norm(self.first(x)))
        x = self.relu(self.again(self.again(x))) + x
        return self.last(self.across(x).flatten(1))


class Reading(nn.Module):
    """An embedding with padding, a cell that is called at each word, layer norm and attention of linear layers."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(5, 6, padding_idx=0), nn.LayerNorm(6)
        self.qkv, self.cell, self.scores = nn.Linear(6, 18, bias=False), nn.Linear(12, 6), nn.Linear(6, 3)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(self.words(x.long()))).chunk(3, dim=-1)
        x = functional.scaled_dot_product_attention(q, k, v)
        state = torch.zeros_like(x[:, 0])
        for at in range(x.shape[1]):
            state = self.cell(torch.cat([x[:, at], state], dim=1)).tanh()
        return self.scores(state)


class Placed(nn.Module):
    """An embedding and a norm of places, in one row for all records, or in a row for each place."""

    def __init__(self, rows=True):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(5, 6), nn.Embedding(7, 6), nn.LayerNorm(6)
        self.scores, self.rows = nn.Linear(6, 3), rows

    def forward(self, x):
        places = torch.arange(x.shape[1])
        places = self.norm(self.places(places[None] if self.rows else places))
        return self.scores((self.words(x.long()) + places).tanh().mean(dim=1))


class Attending(nn.Module):
    """Attention of torch to the record itself, to other words, and of one query that all records share."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.words, self.query = nn.Embedding(5, 6), nn.Parameter(torch.randn(1, 2, 6))
        self.itself = nn.MultiheadAttention(6, 2, batch_first=batch_first)
        self.across, self.apart = nn.MultiheadAttention(6, 3, bias=False, batch_first=True), nn.MultiheadAttention(6, 1)
        self.scores, self.batch_first = nn.Linear(6, 3), batch_first

    def forward(self, x):
        words = self.words(x.long())
        own = words if self.batch_first else words.transpose(0, 1)
        own = self.itself(own, own, own, need_weights=not self.batch_first)[0]
        own = own if self.batch_first else own.transpose(0, 1)
        asked = self.across(self.query.expand(len(x), -1, -1), own, own)[0]
        first, second, third = (each.transpose(0, 1) for each in (asked, own, words))
        twice = self.apart(self.apart(first, second, third)[0], second, third)[0]
        return self.scores(twice.sum(dim=0))


def vision():
    torchvision = pytest.importorskip("torchvision")
    shape = {"image_size": 8, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 6, "mlp_dim": 8}
    module = torchvision.models.VisionTransformer(**shape, num_classes=3)
    module.conv_proj = nn.Conv2d(2, 6, 4, stride=4)
    nn.init.normal_(module.heads.head.weight)  # zero as it comes
    return module


def encoder(evaluated=False):
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    module = nn.Sequential(
        nn.Flatten(2), nn.Linear(64, 6), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(12, 3)
    )
    return module.eval() if evaluated else module


for kind in (Residual, Reading, Placed, Attending):
    kind.__module__ = "h2fdp.tests"  # as if a library had it

IMAGES, WORDS = (2, 8, 8), (7,)


def parts(kind, last):
    return lambda: fine_tuned(kind, FineTuning.model_validate({"train": ["norm", last]}))


def adapted():
    return fine_tuned(Reading, FineTuning.model_validate({"lora": {"layers": ["qkv", "cell"], "rank": 2}}))


def frozen_in_16_bits():
    stated = FineTuning.model_validate({"train": ["norm"], "lora": {"layers": ["last"], "rank": 2}})
    return fine_tuned(lambda: nn.Sequential(Residual()).to(torch.bfloat16), stated)


def ending():
    """A head on frozen layers that are equal, which a process keeps once."""
    norms = nn.LayerNorm(4), nn.LayerNorm(4)
    module = nn.Sequential(nn.Flatten(), nn.Linear(128, 4), *norms, nn.Linear(4, 3))
    return fine_tuned(lambda: module, FineTuning.model_validate({"train": ["4"]}))


MODELS = {
    "a head": (ending, IMAGES),
    "convolutions": (Residual, IMAGES),
    "words": (Reading, WORDS),
    "places": (Placed, WORDS),
    "some layers of convolutions": (parts(Residual, "last"), IMAGES),
    "some layers of words": (parts(Reading, "scores"), WORDS),
    "adapters": (adapted, WORDS),
    "attention": (Attending, WORDS),
    "attention by position": (lambda: Attending(batch_first=False), WORDS),
    "a transformer of torch": (encoder, IMAGES),
    "an evaluated transformer of torch": (lambda: encoder(evaluated=True), IMAGES),
    "a transformer of torchvision": (vision, IMAGES),
    "attention with a frozen map": (
        lambda: fine_tuned(Attending, FineTuning.model_validate({"train": ["itself.in_*", "scores", "across.out*"]})),
        WORDS,
    ),
    "layers of torch": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
        IMAGES,
    ),
}


def drawn(shape, devices=2, width=5):
    rng = torch.Generator().manual_seed(3)
    if shape == WORDS:
        x = torch.randint(0, 5, (devices, width, *shape), generator=rng).float()
    else:
        x = torch.randn(devices, width, *shape, generator=rng)
    shares = torch.rand(devices, width, generator=rng)
    shares[:, -1] = 0.0
    return x, torch.randint(0, 3, (devices, width), generator=rng), shares


def by_loop(module, models, x, y, shares, clipping):
    layout, sums = ParameterLayout(module), torch.zeros_like(models)
    for device, model in enumerate(models):
        for record, label, share in zip(x[device], y[device], shares[device], strict=True):
            leaf = model.clone().requires_grad_()
            scores = torch.func.functional_call(module, layout.views(leaf), (record[None],))
            (own,) = torch.autograd.grad(functional.cross_entropy(scores, label[None]), leaf)
            sums[device] += share * clipping.apply(own[None])[0]
    return sums


@pytest.mark.parametrize("gamma", [None, 0.01])
@pytest.mark.parametrize("name", MODELS)
def test_sums_of_clipped_gradients_are_those_of_a_plain_loop(name, gamma):
    source, shape = MODELS[name]
    module = build(source, shape, 3, seed_key=2, whole=shape == WORDS)
    rng, layout = torch.Generator().manual_seed(1), ParameterLayout(module)
    start = layout.to_vector(module)
    models = start + torch.randn(2, layout.size, generator=rng) / 4
    x, y, shares = drawn(shape)
    clipping = Clipping(0.5, "record", gamma=gamma)
    expected = by_loop(module, models, x, y, shares, clipping)
    assert expected.norm() > 0.1
    rule = gradient_rule(module, Clipping(0.5, "record", gamma=gamma))
    assert isinstance(rule, TappedGradients)
    torch.testing.assert_close(rule.sums(models, x, y, shares), expected, rtol=1e-4, atol=1e-6)
    rule._at_once = 2  # records of a pass, as where they are large
    torch.testing.assert_close(rule.sums(models, x, y, shares), expected, rtol=1e-4, atol=1e-6)
    alone = rule.sums(models[1:], x[1:], y[1:], shares[1:])
    assert torch.equal(alone[0], rule.sums(models, x, y, shares)[1]), "no bit depends on the stack"


def test_a_frozen_rest_of_16_bits_gives_the_gradients_of_a_plain_loop_within_its_rounding():
    module = build(frozen_in_16_bits, IMAGES, 3, seed_key=2)
    models = ParameterLayout(module).to_vector(module)[None] + 0.1
    given = drawn(IMAGES, devices=1)
    clipping = Clipping(0.5, "record")
    expected = by_loop(module, models, *given, clipping)
    torch.testing.assert_close(gradient_rule(module, clipping).sums(models, *given), expected, rtol=0.1, atol=0.01)


def test_no_record_passes_its_bound_and_one_that_is_no_number_counts_as_zero():
    module = build(Residual, IMAGES, 3, seed_key=2)
    models = ParameterLayout(module).to_vector(module)[None]
    x, y, _ = drawn(IMAGES, devices=1)
    x[0, 1] = torch.inf
    rule, whole = gradient_rule(module, Clipping(1e-3, "record")), torch.ones(1, 5)
    for record in range(5):
        own = rule.sums(models, x, y, functional.one_hot(torch.tensor([record]), 5).float())
        assert own.norm() == 0 if record == 1 else float(own.norm()) == pytest.approx(1e-3, rel=1e-4)
    assert rule.sums(models, x, y, whole).isfinite().all()


def test_a_layer_that_is_called_with_rows_of_no_records_is_refused_though_there_be_as_many_records():
    module = build(lambda: Placed(rows=False), WORDS, 3, seed_key=2, whole=True)
    models = ParameterLayout(module).to_vector(module)[None]
    with pytest.raises(ValueError, match="places is not called with a row for each record"):
        gradient_rule(module, Clipping(0.5, "record")).sums(models, *drawn(WORDS, devices=1, width=7))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 3)

    def forward(self, x):
        return self.line(x)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Own, "Own is no library's, and might mix records"),
        (lambda: nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)), r"norms of gradients in 0 \(Conv2d\) are not known"),
        (
            lambda: nn.Sequential(nn.MultiheadAttention(4, 2, add_bias_kv=True)),
            r"0 \(MultiheadAttention\) are not known",
        ),
        (lambda: nn.Sequential(nn.Conv1d(2, 1, 3, bias=False)), r"0 \(Conv1d\) are not known"),
        (lambda: nn.Sequential(*[nn.Linear(4, 4)] * 2), "layers share parameters"),
    ],
)
def test_what_cannot_be_tapped_says_why(made, why):
    assert isinstance(found := tapped_layers(made()), str)
    assert re.search(why, found)
