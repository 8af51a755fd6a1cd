"""The models of the field by name: gradients of single records, private runs, and modules of libraries with weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

from h2fdp import Experiment, Topology, UserError
from h2fdp.config import own_parts
from h2fdp.models import weights
from h2fdp.models.construct import ParameterLayout, begin, build, builder_of
from h2fdp.models.registry import CHOICES
from h2fdp.training.clipping import Clipping
from h2fdp.training.gradients.rule import gradient_rule
from h2fdp.training.losses import CROSS_ENTROPY, RecordLoss
from h2fdp.wording import note_once

IMAGES, WORDS = (3, 8, 8), (6,)
NAMED = {  # name -> options, shape of a record, of its scores
    "resnet18": ({}, IMAGES, (3,)),
    "vit-tiny": ({}, IMAGES, (3,)),
    "text-transformer": ({"vocabulary": 9, "width": 8, "heads": 2}, WORDS, (3,)),
    "text-transformer, next word": ({"width": 8, "heads": 2}, WORDS, (6, 9)),
    "char-lstm": ({"hidden": 8}, WORDS, (9,)),
    "char-lstm, next character": ({"hidden": 8}, WORDS, (6, 9)),
}
LARGE = pytest.mark.slow


def cases():
    return [pytest.param(name, marks=LARGE if shape == IMAGES else ()) for name, (_, shape, _) in NAMED.items()]


def records(shape, outputs, n=3):
    rng = np.random.default_rng(1)
    x = rng.random((n, *shape)) if len(shape) == 3 else rng.integers(0, 9, (n, *shape))
    return x, rng.integers(0, outputs[-1], (n, *outputs[:-1]))


def assert_gradients_are_those_of_a_plain_loop(module, x, y):
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    loss, flat = RecordLoss(module, CROSS_ENTROPY, None), ParameterLayout(module)

    def one(model, record, label):
        return loss.each(model, record[None], label[None]).sum()

    found = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(flat.to_vector(module), x, y)
    clipped = torch.zeros(flat.size)
    for place in range(len(x)):
        module.zero_grad()
        functional.cross_entropy(module(x[place : place + 1]).flatten(0, -2), y[place].reshape(-1)).backward()
        trained = [each for each in module.parameters() if each.requires_grad]
        zeros = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
        expected = torch.cat([each.reshape(-1) for each in zeros])
        assert expected.norm() > 0
        torch.testing.assert_close(found[place], expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
        clipped += expected * min(1.0, 0.1 / float(expected.norm())) / len(x)
    shares = torch.full((1, len(x)), 1 / len(x))
    rule = gradient_rule(module, Clipping(0.1, "record"))
    sums = rule.sums(flat.to_vector(module)[None], x[None], y[None], shares)[0]
    torch.testing.assert_close(sums, clipped, rtol=1e-3, atol=1e-4 * float(clipped.abs().max()))


@pytest.mark.parametrize("name", cases())
def test_gradients_of_single_records_are_those_of_a_plain_loop(name):
    options, shape, outputs = NAMED[name]
    module = build(name.partition(",")[0], shape, outputs, options, seed_key=1)
    noise = torch.Generator().manual_seed(2)
    for each in module.parameters():  # heads that begin at zero would hide the layers below
        each.data += 0.02 * torch.randn(each.shape, generator=noise)
    assert_gradients_are_those_of_a_plain_loop(module, *records(shape, outputs))


def test_resnet18_has_the_stem_of_cifar_for_small_images_and_of_imagenet_for_large_ones():
    small, large = (build("resnet18", (1, side, side), 3) for side in (32, 65))
    assert (small.conv1.kernel_size, small.conv1.in_channels, type(small.maxpool)) == ((3, 3), 1, nn.Identity)
    assert (large.conv1.kernel_size, large.conv1.stride, type(large.maxpool)) == ((7, 7), (2, 2), nn.MaxPool2d)
    norms = [each for each in small.modules() if isinstance(each, nn.GroupNorm)]
    assert len(norms) == 20
    assert {each.num_groups for each in norms} == {32}


def test_the_next_word_depends_on_no_later_one_and_a_text_not_on_its_padding():
    x = torch.tensor([[3.0, 1, 4, 1, 5, 2], [3.0, 1, 4, 8, 7, 6]])
    for name, options in (("text-transformer", {"width": 8, "heads": 2}), ("char-lstm", {"hidden": 8})):
        scores = build(name, WORDS, (6, 9), options)(x)
        torch.testing.assert_close(scores[0, :3], scores[1, :3])
        assert not torch.allclose(scores[0, 3], scores[1, 3])


def test_the_states_of_char_lstm_are_those_of_torchs_lstm():
    ours = build("char-lstm", WORDS, (6, 9), {"embedding": 5, "hidden": 4})
    theirs = nn.LSTM(5, 4, num_layers=2, batch_first=True)
    for at in range(2):
        given = (ours.inputs[at].weight, ours.states[at].weight, ours.inputs[at].bias, torch.zeros(16))
        for kind, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), given, strict=True):
            getattr(theirs, f"{kind}_l{at}").data = value.data
    x = torch.randint(0, 9, (4, 6))
    expected = ours.scores(theirs(ours.embedding(x))[0])
    torch.testing.assert_close(ours(x.float()), expected)
    written_out = torch.func.vmap(lambda record: ours(record[None])[0])(x.float())
    torch.testing.assert_close(written_out, expected)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("vit-tiny", {"patch": 3}, IMAGES, "needs square images of whole patches, found 8x8 and patch: 3"),
        ("text-transformer", {"heads": 3}, WORDS, "model.width: expected a multiple of heads, 3, found 128"),
        (
            "char-lstm",
            {},
            IMAGES,
            r"char-lstm needs rows of word numbers, of shape \(words,\), found shape \(3, 8, 8\)",
        ),
    ],
)
def test_records_and_options_that_do_not_fit_are_told(name, options, shape, message):
    with pytest.raises(UserError, match=message):
        build(name, shape, 3, options)


@pytest.mark.run
@pytest.mark.parametrize("protects", ["record", "device"])
@pytest.mark.parametrize("name", cases())
def test_a_private_run_of_each_model(name, protects, tmp_path):
    options, shape, outputs = NAMED[name]
    x, y = records(shape, outputs, 6)
    y.reshape(-1)[-1] = outputs[-1] - 1
    run = Experiment(
        topology=Topology.regular(edges=1, devices=2, trust=1),
        data=(x[:4], y[:4]),
        test_data=(x[4:], y[4:]),
        model={"name": name.partition(",")[0], **options},
        method="h2fdp",
        epsilon=4,
        delta=1e-3,
        intervals=2,
        local_steps=1,
        batch_size=2,
        clip_norm=0.5,
        **({"clip_scope": "record"} if protects == "record" else {}),
        step_size=0.1,
        calibration="accounted",
        protects=protects,
    ).run(tmp_path / "run")
    assert np.isfinite(run.metrics["loss"]).all()
    assert 3.9 < run.privacy.epsilon("public") <= 4


def made(value, shape, outputs):
    return builder_of(CHOICES.read(value), shape, outputs, 0)()


def said(capsys):
    return " ".join(capsys.readouterr().err.split())


def test_a_module_of_torchvision_has_the_classes_and_channels_of_the_data_and_group_norm(capsys):
    note_once.cache_clear()
    module = made({"name": "torchvision:shufflenet_v2_x0_5"}, (1, 32, 32), (3,))
    told = said(capsys)
    assert "model.fix: group norm takes the place of batch norm in conv1.1, stage2.0.branch1.1, " in told
    assert module.fc.out_features == 3
    assert not any(isinstance(each, nn.BatchNorm2d) for each in module.modules())
    with pytest.raises(UserError, match="batch norm leaks and cannot be averaged"):
        made({"name": "torchvision:shufflenet_v2_x0_5", "fix": False}, (1, 32, 32), (3,))


def test_weights_of_torchvision_keep_their_batch_norm_and_another_head_begins_at_random(tmp_path, capsys):
    from torchvision.models import shufflenet_v2_x0_5

    note_once.cache_clear()
    theirs = shufflenet_v2_x0_5().eval()
    for each in theirs.buffers():  # as after training
        each.data = each + torch.rand_like(each) if each.is_floating_point() else each
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    value = {"name": "torchvision:shufflenet_v2_x0_5", "weights": str(tmp_path / "weights.pt")}
    ours = made(value, (3, 32, 32), (5,))
    told = "model.weights: fc.weight, fc.bias begin at random numbers, as the file has them in other shapes"
    assert told in said(capsys)
    theirs.fc = ours.fc
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(ours(x), theirs(x))
    assert begin(ours, CHOICES.read(value)) == weights.digest_of(tmp_path / "weights.pt")
    with pytest.raises(UserError, match=r"this model has a parameter bn1\.bias that the file has not"):
        made({**value, "name": "torchvision:resnet18"}, (3, 32, 32), (5,))


def test_a_library_that_is_not_installed_is_named_with_its_command(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(own_parts.importlib, "import_module", missing)
    with pytest.raises(ValidationError, match="timm is not installed; expected it: pip install timm"):
        CHOICES.read("timm:resnet18")


def test_a_module_of_timm_has_the_classes_and_channels_of_the_data():
    pytest.importorskip("timm")
    value = {"name": "timm:vit_tiny_patch16_224", "img_size": 8, "patch_size": 4, "depth": 1}
    module = made(value, (1, 8, 8), (3,))
    assert_gradients_are_those_of_a_plain_loop(module, *records((1, 8, 8), (3,)))


TINY = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 60, "max_position_embeddings": 16}
OF_TRANSFORMERS = {
    "AutoModelForSequenceClassification": ({"model_type": "distilbert", **TINY}, (3,)),
    "DistilBertForTokenClassification": (TINY, (6, 3)),
    "AutoModelForCausalLM": (
        {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9, "n_positions": 8},
        (6, 9),
    ),
}


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_modules_of_transformers_have_gradients_for_each_record(name):
    pytest.importorskip("transformers")
    config, outputs = OF_TRANSFORMERS[name]
    module = made({"name": f"transformers:{name}", "config": config}, WORDS, outputs)
    x, y = records(WORDS, outputs)
    x[1, 3:] = 0  # padding
    assert_gradients_are_those_of_a_plain_loop(module, x, y)


def test_a_folder_of_transformers_is_read_and_its_padding_masked(tmp_path):
    library = pytest.importorskip("transformers")
    theirs = library.DistilBertForSequenceClassification(library.DistilBertConfig(num_labels=3, **TINY)).eval()
    theirs.save_pretrained(tmp_path / "own")
    value = {"name": "transformers:AutoModelForSequenceClassification", "weights": str(tmp_path / "own")}
    x = torch.tensor([[3, 1, 4, 0, 0, 0], [3, 1, 4, 1, 5, 9]])
    expected = theirs(x, attention_mask=(x != 0).long()).logits
    torch.testing.assert_close(made(value, WORDS, (3,))(x.float()), expected, rtol=1e-4, atol=1e-6)
    other = made(value, WORDS, (7,))
    torch.testing.assert_close(other.distilbert.state_dict(), theirs.distilbert.state_dict())
    assert begin(other, CHOICES.read(value)) == weights.digest_of(tmp_path / "own")


def test_what_transformers_needs_is_told():
    pytest.importorskip("transformers")
    with pytest.raises(UserError, match=r"expected weights: a folder of save_pretrained, or config: .model_type: "):
        made("transformers:AutoModelForSequenceClassification", WORDS, (3,))
    for given, told in (
        ({"weights": "nowhere"}, r"expected a folder of save_pretrained, found no folder .*nowhere"),
        ({"config": {"model_type": "gpt22"}}, r"cannot be made: .*Unrecognized model identifier: gpt22.{1,300}$"),
    ):
        with pytest.raises(UserError, match=told):
            made({"name": "transformers:AutoModelForSequenceClassification", **given}, WORDS, (3,))
