"""`fix: true` next to a model of one's own: Opacus's group norm in place of batch norm."""

import pytest
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
