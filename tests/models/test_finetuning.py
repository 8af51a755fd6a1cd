"""Fine-tuning: what is trained, adapters against dense matrices and plain loops, a frozen rest that is kept once."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout, _load, build, builder_of, source_of
from h2fdp.models.finetuning import fine_tuned
from h2fdp.models.registry import CHOICES, FineTuning
from h2fdp.training.clipping import Clipping
from h2fdp.training.gradients.rule import FunctionalGradients
from h2fdp.training.losses import CROSS_ENTROPY

SHAPE = (6, 8)


class Block(nn.Module):
    """Attention of linear layers and a perceptron, both beside a way around them."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(8, 24), "proj": nn.Linear(8, 8)})
        self.mlp = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))

    def forward(self, x):
        q, k, v = self.attn["qkv"](self.norm(x)).chunk(3, dim=-1)
        x = x + self.attn["proj"](functional.scaled_dot_product_attention(q, k, v))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, kind=torch.float32, classes=3):
        super().__init__()
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(8, classes)
        self.kind = kind
        self.to(kind)

    def forward(self, x):
        return self.head(self.blocks(x.to(self.kind)).mean(dim=1))


def tuned(function=Net, key=5, **stated):
    return build(lambda: fine_tuned(function, FineTuning.model_validate(stated)), SHAPE, 3, seed_key=key)


LORA = {"layers": ["attn.*"], "rank": 2, "alpha": 3.0}


def test_what_patterns_name_is_trained_and_nothing_else(capsys):
    module = tuned(train=["head", "1.norm.*"])
    layout = ParameterLayout(module)
    assert layout.names == ("blocks.1.norm.weight", "blocks.1.norm.bias", "head.weight", "head.bias")
    module = tuned(train=["head"], lora=LORA)
    assert ParameterLayout(module).size == 27 + 2 * 2 * ((8 + 24) + (8 + 8))
    said = " ".join(capsys.readouterr().err.split())
    assert "219 numbers are trained (head.bias, head.weight, adapters of 4 layers), 1,032 are frozen" in said


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (
            {"train": ["tail"]},
            "model.train: no parameter of the model fits tail; expected .* as blocks.0.norm.weigh",
        ),
        (
            {"lora": {"layers": ["norm"]}},
            "model.lora.layers: no linear layer of the model fits norm; .*blocks.0.attn.q",
        ),
    ],
)
def test_a_pattern_that_fits_nothing_is_refused_with_names(stated, words):
    with pytest.raises(UserError, match=words):
        tuned(**stated)


def test_an_adapted_layer_is_dense_with_a_product_of_low_rank_and_begins_as_it_was():
    module, plain = tuned(lora=LORA), build(Net, SHAPE, 3, seed_key=5)
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(module(x), plain(x), rtol=0, atol=0)
    layers = dict(module.named_modules())
    for name in ("blocks.0.attn.qkv", "blocks.1.attn.proj"):
        with torch.no_grad():
            layers[name].lora_b.weight.normal_()
            product = layers[name].lora_b.weight @ layers[name].lora_a.weight
            dict(plain.named_modules())[name].weight += 3.0 / 2 * product
    torch.testing.assert_close(module(x), plain(x))
    assert set(plain.state_dict()) == {name for name in module.state_dict() if "lora_" not in name}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_records_gradients_are_those_of_a_plain_loop_and_frozen_parameters_have_none(kind):
    module = tuned(lambda: Net(kind), train=["head", "0.norm"], lora=LORA)
    assert module(torch.ones(1, *SHAPE)).dtype == torch.float32
    rng, layout = torch.Generator().manual_seed(2), ParameterLayout(module)
    models = torch.randn(2, layout.size, generator=rng) / 4
    x, y = torch.randn(2, 4, *SHAPE, generator=rng), torch.randint(0, 3, (2, 4), generator=rng)
    shares = torch.tensor([[0.25] * 4, [0.5, 0.5, 0.0, 0.0]])
    found = FunctionalGradients(module, Clipping(0.1, "record"), CROSS_ENTROPY).sums(models, x, y, shares)
    expected = torch.zeros_like(models)
    for device in range(2):
        layout.load(module, models[device])
        for record in range(4):
            module.zero_grad()
            functional.cross_entropy(module(x[device, record][None]), y[device, record][None]).backward()
            assert all((each.grad is None) != each.requires_grad for each in module.parameters())
            own = torch.cat([each.grad.flatten() for each in module.parameters() if each.requires_grad])
            expected[device] += shares[device, record] * own * min(1.0, 0.1 / float(own.norm()))
    rounding = {"rtol": 2e-2, "atol": 2e-3} if kind == torch.bfloat16 else {}
    torch.testing.assert_close(found, expected, **rounding)


def test_the_frozen_rest_is_there_once_in_a_process_and_keeps_its_type():
    one, other = (tuned(lambda: Net(torch.bfloat16), lora=LORA) for _ in range(2))
    frozen = [each for each in one.parameters() if not each.requires_grad]
    assert {each.dtype for each in frozen} == {torch.bfloat16}
    assert len(frozen) == len({id(each) for each in (*one.parameters(), *other.parameters()) if not each.requires_grad})
    assert all(each.dtype == torch.float32 for each in one.parameters() if each.requires_grad)
    changed = tuned(lambda: Net(torch.bfloat16), key=6, lora=LORA)
    assert not torch.equal(changed.head.weight, other.head.weight)


def test_a_base_of_another_file_is_taken_with_a_head_of_another_size(tmp_path):
    torch.manual_seed(1)
    base = Net(classes=7)
    torch.save(base.state_dict() | {"pooler.weight": torch.ones(2)}, tmp_path / "base.pt")
    module = tuned(train=["head"], lora=LORA)
    before = module.head.weight.clone()
    _load(module, tmp_path / "base.pt", tuned=True)
    assert torch.equal(module.blocks[0].attn["qkv"].weight, base.blocks[0].attn["qkv"].weight)
    assert torch.equal(module.head.weight, before)
    with pytest.raises(UserError, match=r"head.bias has the shape \(7,\)"):
        _load(tuned(lora=LORA), tmp_path / "base.pt", tuned=True)


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(dim=1))


def test_an_adapter_that_no_score_depends_on_is_refused():
    with pytest.raises(UserError, match=r"attention.out_proj does not use its adapter"):
        tuned(Joined, lora={"layers": ["out_proj", "head"]})


def test_layers_of_torchs_encoder_use_their_adapters_also_where_no_gradient_is_asked_for():
    def made():
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
        return nn.Sequential(layer, nn.Flatten(), nn.Linear(48, 3)).eval()

    module = tuned(made, lora={"layers": ["linear1"]})
    x = torch.ones(2, *SHAPE)
    before = module(x)
    with torch.no_grad():
        module[0].linear1.lora_b.weight.normal_()
        assert not torch.equal(module(x), before)
        torch.testing.assert_close(module(x), module.train(False)(x.requires_grad_()).detach())


def named(tmp_path, **stated):
    return CHOICES.read({"name": "mlp", "hidden": 4, **stated}, tmp_path)


def test_a_named_model_trains_its_head_on_the_frozen_rest_of_a_file(tmp_path):
    first = build("mlp", (5,), 3, {"hidden": 4}, seed_key=1)
    torch.save(first.state_dict(), tmp_path / "base.pt")
    model = named(tmp_path, train="3", **{"from": "base.pt"})
    module = builder_of(model, (5,), 3, seed_key=2)()
    assert torch.equal(module[1].weight, first[1].weight)
    assert ParameterLayout(module).names == ("3.weight", "3.bias")
    assert model.options()["train"] == ["3"]
    again = build(source_of(model, (5,), 3), (5,), 3)
    again.load_state_dict(module.state_dict())


@pytest.mark.parametrize("stated", [{"lora": {"rank": 2}}, {"lora": {"layers": "3", "rank": 0}}, {"train": []}])
def test_a_wrong_section_of_a_model_of_ones_own_names_its_key(stated, tmp_path):
    (tmp_path / "nets.py").write_text("from tests.models.test_finetuning import Net\n")
    model = CHOICES.read({"name": "nets:Net", **stated}, tmp_path)
    with pytest.raises(UserError, match=f"{next(iter(stated))}"):
        builder_of(model, SHAPE, 3, 1)


def test_adapters_hang_on_a_module_of_a_library_with_its_weights(tmp_path):
    library = pytest.importorskip("transformers")
    settings = {
        "dim": 16,
        "n_layers": 1,
        "n_heads": 2,
        "hidden_dim": 32,
        "vocab_size": 60,
        "max_position_embeddings": 8,
    }
    theirs = library.DistilBertForSequenceClassification(library.DistilBertConfig(num_labels=3, **settings))
    theirs.save_pretrained(tmp_path / "base")
    value = {
        "name": "transformers:AutoModelForSequenceClassification",
        "weights": str(tmp_path / "base"),
        "lora": {"layers": ["q_lin", "v_lin"], "rank": 2},
        "train": ["classifier"],
    }
    module = builder_of(CHOICES.read(value), (6,), (3,), 0)()
    assert ParameterLayout(module).size == 2 * 2 * (16 + 16) + 16 * 3 + 3
    name = "distilbert.transformer.layer.0.attention.q_lin.weight"
    assert torch.equal(module.get_parameter(name), theirs.get_parameter(name))
