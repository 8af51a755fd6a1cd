"""Runs that train adapters and a head on a frozen base: what is sent, accounted, stored, and resumed."""

import numpy as np
import pytest
import torch
import yaml

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.models.construct import ParameterLayout, build
from h2fdp.run import recorders
from h2fdp.run.preview import notices
from h2fdp.run.result import load_model
from tests.run.test_resume import assert_same, crashing_at

SIZE = 2 * (64 + 8) + 8 * 10 + 10  # adapters of rank 2 on 64 x 8, and the head


def file_of(folder, protects="record", trusts=("trusted", "untrusted"), **settings):
    """An experiment on a base that is made anew."""
    torch.save(build("mlp", (64,), 7, {"hidden": 8}, seed_key=4).state_dict(), folder / "base.pt")
    model = {"name": "mlp", "hidden": 8, "from": "base.pt", "train": ["3"], "lora": {"layers": "1", "rank": 2}}
    values = {
        "topology": {"edges": [{"name": each, "trust": each, "devices": {"count": 2}} for each in trusts]},
        "data": "digits",
        "model": model,
        "training": {"intervals": 4, "local_steps": 2, "step_size": 0.5, "batch_size": 8}
        | ({"clip_scope": "record"} if protects == "record" else {}),
        "privacy": {"epsilon": 8, "calibration": "accounted", "noise_key": "seed", "protects": protects},
        "runtime": {"backend": "inline", "checkpoint_every": 2, **settings},
    }
    (folder / "x.yaml").write_text(yaml.safe_dump(values))
    return folder / "x.yaml"


def tensors(values):
    """The sizes of all tensors in a nested value."""
    if isinstance(values, dict | list | tuple):
        return [size for each in (values.values() if isinstance(values, dict) else values) for size in tensors(each)]
    return [values.numel()] if isinstance(values, torch.Tensor) else []


@pytest.mark.parametrize("protects", ["record", "device"])
def test_what_is_trained_alone_is_sent_accounted_and_stored(protects, tmp_path, monkeypatch):
    file = file_of(tmp_path, protects)
    setup = Experiment.from_file(file).prepare()
    assert setup.initial.numel() == SIZE
    assert setup.costs.message_bits == 32 * SIZE
    run = Experiment.from_file(file).run(tmp_path / "run")
    assert run.summary["parameters"] == SIZE
    assert max(each["pld"] for each in run.summary["privacy"]["worst"].values()) <= 8
    sizes = []
    with monkeypatch.context() as patch:
        saved = recorders.save_checkpoint

        def watched(folder, interval, values, **kind):
            sizes.append(tensors(values))
            return saved(folder, interval, values, **kind)

        patch.setattr(recorders, "save_checkpoint", watched)
        Experiment.from_file(file).run(tmp_path / "again")
    assert SIZE in sizes[0]
    assert max(sizes[0]) == SIZE
    base, end = torch.load(tmp_path / "base.pt"), torch.load(run.directory / "model.pt")
    assert torch.equal(base["1.weight"], end["1.weight"])
    assert end["3.bias"].shape == (10,)
    assert end["1.lora_b.weight"].any()
    assert torch.equal(load_model(run.directory)[1].lora_a.weight, end["1.lora_a.weight"])
    go_on = Experiment.from_file(file, [f"model.from={run.directory}"]).prepare()
    layout = ParameterLayout(go_on.blueprint.module())
    torch.testing.assert_close(layout.views(go_on.initial)["1.lora_b.weight"], end["1.lora_b.weight"], rtol=0, atol=0)


def test_a_frozen_rest_of_no_file_is_said_to_be_random(tmp_path):
    file = file_of(tmp_path)
    said = [notices(Experiment.from_file(file, given).prepare()) for given in ([], ["model.from=null"])]
    assert ["freeze random numbers" in " ".join(each) for each in said] == [False, True]


def test_engines_agree_up_to_rounding(tmp_path):
    ends = []
    for engine in ("loop", "stacked"):
        run = Experiment.from_file(file_of(tmp_path), [f"runtime.engine={engine}"]).run(tmp_path / engine)
        state = torch.load(run.directory / "model.pt")
        ends.append(np.concatenate([each.numpy().ravel() for each in state.values()]))
    np.testing.assert_allclose(*ends, atol=1e-5)


def test_a_base_that_changed_is_refused_on_resume_and_the_same_one_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    file = file_of(tmp_path)
    for name in ("run", "other"):
        with monkeypatch.context() as patch:
            crashing_at(patch, 3)
            with pytest.raises(RuntimeError, match="the host is gone"):
                Experiment.from_file(file).run(tmp_path / name)
    assert_same(Experiment.from_file(file).run(tmp_path / "whole"), h2fdp.resume(tmp_path / "run"))
    base = torch.load(tmp_path / "base.pt")
    torch.save(base | {"1.bias": base["1.bias"] + 1}, tmp_path / "base.pt")
    with pytest.raises(UserError, match=r"frozen parameters \(1.bias\).*changed since the run began"):
        h2fdp.resume(tmp_path / "other")
