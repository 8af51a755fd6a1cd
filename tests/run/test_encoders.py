"""Runs on the features of a frozen encoder: declared, of the same bits after a kill with an empty cache, refused with
other weights. What is trained, sent, accounted and paid for is the head, so features go with all that data go with."""

import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.data.feature_cache import user_cache
from h2fdp.network import Aggregator
from h2fdp.network.mobility import Mobility
from h2fdp.reports.paper import _differing
from h2fdp.reports.sweep_numbers import SweepNumbers
from h2fdp.reports.sweep_view import encoders_of
from tests.networks import placed
from tests.noise_keys import keys_are, known

ENCODER = """
import torch
from torch import nn


class Encoder(nn.Sequential):
    source = "drawn numbers"

    def __init__(self, width=12):
        norm = nn.BatchNorm2d(width)
        norm.register_buffer("position_ids", torch.arange(3))
        super().__init__(nn.Conv2d(1, width, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
"""
NETWORK = Topology(
    "two", (placed("a", "trusted", [9.0] * 2, [9.0] * 2), placed("b", "untrusted", [9.0] * 2, [9.0] * 2))
)
DEEP = Topology(
    "deep",
    tuple(replace(each, parent="top") for each in NETWORK.subnets),
    aggregators=(Aggregator("top", "trusted"),),
)
SECURE = replace(NETWORK, subnets=tuple(replace(each, trust="secure-sum") for each in NETWORK.subnets))
MOVING = replace(NETWORK, mobility=Mobility([(2, "a/1", "b")]))
GIVEN = {"data": {"name": "digits", "partition": "iid"}, "training": "auto", "epsilon": 8.0, "seed": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Of the encoder's file, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(ENCODER)
    yield tmp_path
    sys.modules.pop("mine", None)


def experiment(folder, topology=NETWORK, head="softmax", model=None, encoder=None, **settings):
    encoder = {"name": f"{folder}/mine:Encoder", **(encoder or {})}
    model = {"name": "public-features", "head": head, "encoder": encoder, **(model or {})}
    if "local_steps" in settings:
        settings.setdefault("training", "paper")
    return Experiment(topology, **{**GIVEN, "intervals": 3, "model": model, **settings})


def stop(row, *_):
    if row["interval"] == 2:
        raise KeyboardInterrupt


PAPER = {"local_steps": 2, "aggregate_every": 1, "batch_size": 8, "checkpoint_every": 1}
ROWS = {
    "as chosen": {},
    "mlp": {"head": "mlp", **PAPER},
    "one message": {"method": "one-shot", "head": "discriminant", "intervals": 1},
    "personal models": {"method": "ditto", **PAPER, "aggregate_every": 2},
    "a head of their own": {"method": "fedper", "head": "mlp", **PAPER},
    "secure sums": {"topology": SECURE},
    "a deep tree": {"topology": DEEP},
    "a star": {"method": "fedavg", **PAPER},
    "mobility": {"topology": MOVING, **PAPER, "calibration": "accounted"},
    "buffers": {
        "method": {"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"edge": 1, "cloud": 1}}},
        "calibration": "accounted",
    },
    "whole devices": {"protects": "device", **PAPER, "calibration": "accounted"},
    "faults": {"faults": {"device_dropout": 0.3}},
    "without noise": {"method": "hfl", "epsilon": 1.0, **PAPER},
}


@pytest.mark.parametrize("row", ROWS)
def test_a_run_that_was_killed_goes_on_to_the_same_bits_with_an_empty_cache(folder, row):
    given = ROWS[row] | {"checkpoint_every": 1}
    with keys_are(known):
        whole = experiment(folder, **given).run(folder / "whole")
        if whole.summary["intervals"] > 2:
            with pytest.raises(KeyboardInterrupt):
                experiment(folder, **given).run(folder / "killed", on_interval=stop)
            shutil.rmtree(user_cache() / "features")
            h2fdp.resume(folder / "killed")
            first, second = ((folder / name / "model.pt").read_bytes() for name in ("whole", "killed"))
            assert first == second
    assert (whole.summary["shape"], whole.summary["encoder"]) == ([49], "mine:Encoder, trained on drawn numbers")
    if whole.summary["privacy"]:
        assert all(each["pld"] <= 8 or each["verdict"] for each in whole.summary["privacy"]["worst"].values())
        (note,) = [each for each in whole.summary["privacy"]["notes"] if each.startswith("model public-features")]
        assert "by the encoder mine:Encoder, trained on drawn numbers; no account covers" in note
        assert note in whole.privacy.notes
        assert note.partition(": ")[2] in whole.report().read_text()


def test_what_is_sent_and_trained_is_the_head(folder):
    run = experiment(folder).run(folder / "run")
    assert run.summary["parameters"] == 49 * 10
    assert list(torch.load(run.directory / "model.pt")) == ["1.weight"]


def test_a_loaded_model_maps_images_to_the_scores_of_the_run(folder):
    run = experiment(folder).run(folder / "run")
    setup = experiment(folder).prepare()
    with torch.no_grad():
        scores = run.model(torch.from_numpy(setup.given.test.x / np.float32(16)))
    assert float((scores.argmax(1).numpy() == setup.given.test.y).mean()) == pytest.approx(run.summary["accuracy"])


def weights(folder, seed):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12)).state_dict() | {"1.position_ids": torch.arange(3)}
    torch.save(layers | {"fc.weight": torch.zeros(2, 2)}, folder / "weights.pt")
    return {"weights": str(folder / "weights.pt"), "source": "ImageNet"}


def test_a_resume_with_other_weights_of_the_encoder_is_refused(folder):
    with pytest.raises(KeyboardInterrupt):
        experiment(folder, encoder=weights(folder, 1), checkpoint_every=1).run(folder / "run", on_interval=stop)
    ledger = (folder / "run" / "privacy.jsonl").read_bytes()
    weights(folder, 2)
    with pytest.raises(UserError, match=r"frozen parameters \(encoder.0.weight, .*changed since the run began"):
        h2fdp.resume(folder / "run")
    assert (folder / "run" / "privacy.jsonl").read_bytes() == ledger
    weights(folder, 1)
    assert h2fdp.resume(folder / "run").summary["state"] == "done"


def test_a_resume_with_other_code_of_the_encoder_is_refused(folder):
    with pytest.raises(KeyboardInterrupt):
        experiment(folder, checkpoint_every=1).run(folder / "run", on_interval=stop)
    (folder / "mine.py").write_text(ENCODER.replace("nn.ReLU()", "nn.Tanh()"))
    sys.modules.pop("mine")
    with pytest.raises(UserError, match=r"own code .*changed since the run began"):
        h2fdp.resume(folder / "run")


@pytest.mark.parametrize(
    ("model", "encoder", "words"),
    [
        ({}, {"weights": "none.pt"}, r"model\.encoder.*: expected .* file, found .*none.pt \(No such file"),
        ({}, {"weights": "mine.py"}, r"mine:Encoder: expected a state dict as torch.save or safetensors writes it"),
        ({}, {"side": 0}, "mine:Encoder: expected side: a whole number of pixels, found 0"),
        ({}, {"side": -3}, "expected side: a whole number of pixels, found -3"),
        ({}, {"side": True}, "expected side: a whole number of pixels, found True"),
        ({}, {"side": "big"}, "expected side: a whole number of pixels, found big"),
        ({}, {"depth": 3}, "the options do not fit"),
    ],
)
def test_wrong_keys_are_named_with_what_is_right(folder, monkeypatch, model, encoder, words):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=words):
        experiment(folder, model=model, encoder=encoder).prepare()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def Encoder():\n    return 3", "expected an nn.Module from .*mine:Encoder, found 3"),
        ("def Encoder():\n    raise OSError('lost')", "mine:Encoder cannot be made: .*mine.py:2: OSError: lost"),
        ("from torch import nn\nEncoder = nn.Identity", r"mine:Encoder: the encoder must map 2 records of shape"),
        (
            "from torch import nn\ndef Encoder():\n    return nn.Conv2d(7, 2, 3)",
            r"mine:Encoder: the encoder fails on images of shape \(1, 8, 8\)",
        ),
    ],
)
def test_an_encoder_that_is_none_is_refused(folder, code, words):
    (folder / "mine.py").write_text(code)
    with pytest.raises(UserError, match=words):
        experiment(folder).prepare()


def test_records_that_are_no_images_have_no_encoder(folder):
    with pytest.raises(UserError, match=r"encoders take images, grey or in colour; found records of shape \(20,\)"):
        experiment(folder, data={"name": "synthetic", "alpha": 1, "beta": 1}).prepare()


@pytest.mark.parametrize(
    ("epsilon", "model", "size", "head"),
    [
        (0.02, {}, 256, "centred"),
        (8.0, {}, 320, "softmax"),
        (0.02, {"size": 20}, 20, "softmax"),
        (0.02, {"head": "mlp"}, 320, "mlp"),
    ],
)
def test_where_noise_is_much_auto_takes_fewer_features_less_their_mean(folder, epsilon, model, size, head):
    encoder = {"name": f"{folder}/mine:Encoder", "width": 80}
    given = GIVEN | {"intervals": 3, "epsilon": epsilon, "calibration": "accounted"}
    stated = {"name": "public-features", "encoder": encoder}
    setup = Experiment(NETWORK, **given, model=stated | model).prepare()
    assert (setup.features.size, setup.config.model.head) == (size, head)
    assert setup.data.shape == (size + 1,)
    again = Experiment(NETWORK, **given, model=setup.config.model.options() | stated).prepare()  # as it is written
    assert (again.features.size, again.config.model.head) == (size, head)


def test_auto_never_picks_an_encoder(folder):
    assert Experiment(NETWORK, **GIVEN, model="auto").prepare().features.declared is None


def test_an_account_names_a_source_that_is_not_stated(folder):
    (folder / "mine.py").write_text(ENCODER.replace("source", "origin"))
    notes = experiment(folder).prepare().features.note
    assert "trained on what its file does not state (source)" in notes
    stated = experiment(folder, encoder={"source": "ImageNet"}).prepare().features.note
    assert "trained on ImageNet" in stated


def test_axes_of_figures_name_the_encoders():
    made = {("4",): [{"encoder": "lite, trained on ImageNet"}] * 2, ("8",): [{"encoder": None}, {}]}
    assert encoders_of(each for runs in made.values() for each in runs) == "features by lite, trained on ImageNet"
    numbers = SweepNumbers(("privacy.epsilon",), (), None, summaries=made)
    assert _differing(numbers) == "\n(features by lite, trained on ImageNet)"
    assert _differing(replace(numbers, summaries={("8",): [{}]})) == ""


def test_ray_hosts_have_the_features_and_not_the_encoder(folder):
    setup = experiment(folder).prepare()
    assert setup.blueprint.data.shape == (49,)
    assert not any(isinstance(each, nn.Conv2d) for each in setup.blueprint.module().modules())
    assert "Conv2d" not in repr(setup.blueprint)
