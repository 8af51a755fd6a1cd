"""`fix: true` next to a model of one's own: Opacus's group norm in place of batch norm."""

import pytest
import torch
import yaml

import h2fdp
from h2fdp.errors import UserError

NORMED = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, width=16):
        first = [nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten()]
        super().__init__(*first, nn.Linear(width * 36, 10))
"""


def normed(folder, model):
    (folder / "normed.py").write_text(NORMED)
    file = folder / "x.yaml"
    file.write_text(
        f"topology: {{edges: [{{name: a, devices: {{count: 2}}}}]}}\ndata: digits\nmodel: {model}\n"
        "training: {intervals: 2, clip_scope: record, local_steps: 1}\nprivacy: {epsilon: 9, noise_key: seed}\n"
    )
    return h2fdp.Experiment.from_file(file)


def test_batch_norm_is_refused_with_what_replaces_it(tmp_path):
    with pytest.raises(UserError, match=r"batch norm leaks .*fix: true"):
        normed(tmp_path, '"normed:Net"').prepare()


def test_fix_replaces_batch_norm_by_group_norm_with_equal_bits_for_equal_seeds(tmp_path):
    model = '{name: "normed:Net", fix: true, width: 32}'
    runs = [normed(tmp_path, model).run(tmp_path / name) for name in ("one", "two")]
    assert len({run.summary["model_sha256"] for run in runs}) == 1
    kinds = [type(each).__name__ for each in runs[0].model.modules()]
    assert "GroupNorm" in kinds
    assert "BatchNorm2d" not in kinds
    written = yaml.safe_load((tmp_path / "one" / "config.yaml").read_text())["model"]
    assert (written["fix"], written["width"]) == (True, 32)


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64"])
def test_a_frozen_backbone_of_any_type_with_constant_buffers_trains_its_head_alone(tmp_path, kind):
    (tmp_path / "normed.py").write_text(
        "import torch\nfrom tests.models.test_build import Headed\n\n\n"
        f"def Net():\n    torch.manual_seed(1)\n    return Headed(torch.{kind})\n"
    )
    file = tmp_path / "x.yaml"
    file.write_text(
        "topology: {edges: [{name: a, devices: {count: 2}}]}\ndata: digits\nmodel: {name: 'normed:Net', fix: true}\n"
        "training: {intervals: 2, clip_scope: record, local_steps: 1}\nprivacy: {epsilon: 9, noise_key: seed}\n"
    )
    run = h2fdp.Experiment.from_file(file).run(tmp_path / "run")
    assert run.summary["parameters"] == 2 * 8 + 90
    state = torch.load(run.directory / "model.pt")
    assert state["0.layers.0.weight"].dtype == getattr(torch, kind)
    assert torch.equal(state["0.position_ids"], torch.arange(64))
