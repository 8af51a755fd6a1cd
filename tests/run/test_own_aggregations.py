"""A user's own aggregation in runs: what it sees, what it does wrong, and the same bits wherever it is named."""

import json
import sys

import pytest
import yaml

from h2fdp import Experiment, UserError
from h2fdp.algorithms import Aggregation

MODULE = """
from h2fdp.algorithms import Aggregation

class Secret(Aggregation):
    sees = "sum"

    def weights(self, uploads):
        return uploads.shares

class Blind(Secret):
    sees = "nothing"

class Failing(Secret):
    def weights(self, uploads):
        return uploads.shares / uploads.missing

class Negative(Secret):
    def weights(self, uploads):
        return -uploads.shares

class Greedy(Secret):
    def weights(self, uploads):
        uploads.shares[0] = 1.0
        return uploads.shares
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
    "method": {"extends": "h2fdp", "aggregation": "own_rules:Secret"},
    "training": {"intervals": 2, "local_steps": 4, "aggregate_every": 2, "batch_size": 8},
}


@pytest.fixture
def folder(tmp_path):
    path = list(sys.path)
    (tmp_path / "own_rules.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_rules", None)
    sys.path[:] = path


def file_of(folder, name="Secret", **method):
    content = FILE | {"method": {"extends": "h2fdp", "aggregation": f"own_rules:{name}"} | method}
    (folder / "e.yaml").write_text(yaml.safe_dump(content))
    return folder / "e.yaml"


def rows_of(run, observer):
    ledger = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    return [{**row, "observer": None} for row in ledger if row.get("observer") == observer and row["edge"] == "a"]


def test_an_edge_server_that_sees_the_sum_has_the_account_of_the_average(folder):
    secret = Experiment.from_file(file_of(folder)).run(folder / "secret")
    single = Experiment.from_file(file_of(folder), ["method.aggregation=average"]).run(folder / "single")
    assert rows_of(secret, "edge") == rows_of(secret, "cloud") == rows_of(single, "cloud")
    assert rows_of(single, "edge") != rows_of(single, "cloud")
    assert secret.privacy.epsilon(observer="edge") < single.privacy.epsilon(observer="edge")
    assert secret.metrics["loss"].tolist() == single.metrics["loss"].tolist()


def test_what_only_a_single_upload_proves_is_not_claimed_of_a_sum(folder):
    with pytest.raises(UserError, match=r"method\.aggregation: Theorem 6\.2 is about single models"):
        Experiment.from_file(file_of(folder, privacy="output"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Blind", r"e\.yaml:3: method\.aggregation: expected one of uploads, sum from .*Blind\.sees, found 'nothing'"),
        ("Failing", r"method\.aggregation: .*own_rules:Failing.weights fails: .*own_rules\.py:15: AttributeError"),
        (
            "Negative",
            r"method\.aggregation: expected weights above 0 for 3 .* from .*own_rules:Negative",
        ),
        ("Greedy", r"method\.aggregation: .*own_rules:Greedy.weights fails: .*own_rules\.py:23: ValueError.*read-only"),
    ],
)
def test_what_a_users_own_does_wrong_is_told(folder, name, words):
    with pytest.raises(UserError, match=words):
        Experiment.from_file(file_of(folder, name)).run(folder / "run")


def test_a_class_that_weighs_nothing_is_refused_with_file_line_and_key(folder):
    (folder / "own_rules.py").write_text("class Secret:\n    pass\n")
    with pytest.raises(UserError, match=r"e\.yaml:\d+: method\.aggregation: expected an aggregation.* no `weights`"):
        Experiment.from_file(file_of(folder))


def test_an_object_from_python(folder, tmp_path):
    class Even(Aggregation):
        def weights(self, uploads):
            return uploads.shares * 0 + 1 / len(uploads.shares)

    keys = {key: value for key, value in FILE.items() if key not in ("topology", "method")}
    topology = Experiment.from_file(file_of(folder)).topology
    made = [
        Experiment(topology, method={"extends": "h2fdp", "aggregation": rule}, **keys).run(tmp_path / str(number))
        for number, rule in enumerate((Even(), Even, "average"))
    ]
    assert made[0].metrics["loss"].tolist() == made[1].metrics["loss"].tolist() == made[2].metrics["loss"].tolist()
