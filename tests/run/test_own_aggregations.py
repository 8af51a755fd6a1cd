"""A user's own aggregation in runs: what it does wrong, and the same bits wherever it is named."""

import sys

import pytest
import yaml

from h2fdp import Experiment, UserError

MODULE = """
import torch; from h2fdp.algorithms import Aggregation

class Rule(Aggregation):
    def weights(self, uploads):
        return uploads.shares

class Failing(Rule):
    def weights(self, uploads):
        return uploads.shares / uploads.missing

class Middle(Rule):
    def combine(self, updates, weights):
        return torch.stack(list(updates)).median(dim=0).values

class Still(Middle):
    def reach(self, weights):
        return 0 * weights
"""
FILE = {
    "topology": {
        "edges": [
            {"name": "a", "trusted": False, "devices": {"count": 3}},
            {"name": "b", "trusted": True, "devices": {"count": 2}},
        ]
    },
    "data": "digits",
    "model": "softmax",
    "method": {"extends": "h2fdp", "aggregation": "own_rules:Rule"},
    "training": {"intervals": 2, "local_steps": 4, "aggregate_every": 2, "batch_size": 8},
}


@pytest.fixture
def folder(tmp_path):
    path = list(sys.path)
    (tmp_path / "own_rules.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_rules", None)
    sys.path[:] = path


def file_of(folder, name="Rule", **method):
    content = FILE | {"method": {"extends": "h2fdp", "aggregation": f"own_rules:{name}"} | method}
    (folder / "e.yaml").write_text(yaml.safe_dump(content))
    return folder / "e.yaml"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Failing", r"method\.aggregation: .*own_rules:Failing.weights fails: .*own_rules\.py:10: AttributeError"),
        ("Middle", r"method\.aggregation: trusted edge servers add noise to averages, .* or its `reach`"),
        ("Still", r"method\.aggregation: expected reach above 0 for 1 upload from .*own_rules:Still"),
    ],
)
def test_what_a_users_own_does_wrong_is_told(folder, name, words):
    with pytest.raises(UserError, match=words):
        Experiment.from_file(file_of(folder, name)).run(folder / "run")
