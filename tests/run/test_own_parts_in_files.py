"""A model and records of the user's own that an experiment file names."""

import sys

import pytest
import yaml

import h2fdp
from h2fdp import Experiment, UserError

MODULE = """
import numpy as np
from torch import nn

class Net(nn.Sequential):
    def __init__(self, hidden=4):
        super().__init__(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 2))

def records(device, shift=0.0):
    rng = np.random.default_rng(len(device or ""))
    x = rng.normal(size=(12, 3)).astype("float32") + shift
    return x, (x[:, 0] > shift).astype(int)
"""
FILE = {
    "topology": {"edges": [{"name": "a", "devices": {"count": 2}}, {"name": "b", "devices": {"count": 2}}]},
    "data": "own_module:records",
    "model": {"name": "own_module:Net", "hidden": 5},
    "method": "h2fdp",
    "training": {"intervals": 3, "local_steps": 4, "batch_size": 4},
}


@pytest.fixture
def file(tmp_path):
    path = list(sys.path)
    (tmp_path / "own_module.py").write_text(MODULE)
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(FILE))
    yield tmp_path / "e.yaml"
    sys.modules.pop("own_module", None)
    sys.path[:] = path


def test_named_parts_are_those_handed_in_from_python(file):
    by_name = Experiment.from_file(file).run(file.parent / "named")
    import own_module

    test = own_module.records(None)
    config = {key: value for key, value in FILE.items() if key not in ("data", "model")}
    given = Experiment(
        topology=by_name.directory / "topology.yaml",
        data=own_module.records,
        test_data=test,
        model=lambda: own_module.Net(5),
        **{key: value for key, value in config.items() if key != "topology"},
    ).run(file.parent / "given")
    assert by_name.metrics["loss"].tolist() == given.metrics["loss"].tolist()


@pytest.mark.parametrize("change", ["", "# another line\nLATER = 1\n"])
def test_an_interrupted_run_goes_on_and_draws_afresh_only_for_other_code(file, change):
    whole = Experiment.from_file(file).run(file.parent / "whole")

    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Experiment.from_file(file).run(file.parent / "cut", on_interval=stop)
    (file.parent / "own_module.py").write_text(MODULE + change)
    if change:
        with pytest.raises(UserError, match=r"your own code \(.*\.py\) changed since the run began"):
            h2fdp.resume(file.parent / "cut")
    resumed = h2fdp.resume(file.parent / "cut", fresh_noise=bool(change))
    same = resumed.metrics["loss"].tolist() == whole.metrics["loss"].tolist()
    assert same == (not change)
    assert bool(resumed.summary["fresh_from"]) == bool(change)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model", "own_module:Nett", ": model: {folder}/own_module.py has no `Nett`"),
        ("model", {"name": "own_module:Net", "width": 3}, ": model: the options do not fit own_module:Net"),
    ],
)
def test_a_wrong_name_is_told_with_file_line_and_key(file, key, value, words):
    file.write_text(yaml.safe_dump(FILE | {key: value}, sort_keys=False))
    with pytest.raises(UserError) as caught:
        Experiment.from_file(file)
    assert str(caught.value).startswith(f"{file}:")
    assert words.format(folder=file.parent) in str(caught.value)


SHAKY = """
from h2fdp.algorithms import LocalObjective

class Shaky(LocalObjective):
    \"\"\"It fails once its model is no longer the initial one.\"\"\"

    def direction(self, model, gradient, received, personal):
        if received.mean() > 0.1:
            return gradient(model) / nothing, None
        return gradient(model) - 1.0, None
"""


def fails_in_the_middle(file, **runtime):
    """Runs it with an objective that fails once the model has moved; returns the error that a user is told."""
    (file.parent / "own_module.py").write_text(MODULE + SHAKY)
    changed = {"method": {"extends": "hfl", "objective": "own_module:Shaky"}, "model": "softmax", "data": "digits"}
    file.write_text(yaml.safe_dump(FILE | changed | {"runtime": runtime}))
    words = r"method\.objective: .*own_module:Shaky\.direction fails: .*NameError"
    with pytest.raises(UserError, match=words) as caught:
        Experiment.from_file(file).run(file.parent / "run")
    assert "return gradient(model) / nothing, None" in caught.value.report
    summary = yaml.safe_load((file.parent / "run" / "summary.json").read_text())
    assert (summary["state"], summary["intervals"] > 0) == ("failed", True)
    return caught.value


def test_code_that_fails_in_the_middle_of_a_run_is_told_with_its_traceback(file):
    told = fails_in_the_middle(file, backend="inline")
    assert not getattr(told, "__notes__", [])  # Python chains the user's error
