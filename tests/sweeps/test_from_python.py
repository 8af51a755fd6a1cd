"""Sweeps of experiments that Python made: the same runs as those of files, with records that only Python has."""

import numpy as np
import pytest
from torch import nn

from h2fdp import Experiment, Topology, UserError, sweep

NETWORK = Topology.regular(edges=2, devices=2, trust=1)
SETTINGS = {"method": "hfl", "intervals": 2, "local_steps": 2, "aggregate_every": 2}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def test_each_run_is_the_one_that_python_would_make_alone(tmp_path):
    experiment = Experiment(topology=NETWORK, data=(X, Y), test_data=0.2, model=Net, **SETTINGS)
    found = sweep(experiment, grid={"training.step_size": [0.1, 0.5], "seed": [1, 2]}, out=tmp_path / "all", jobs=1)
    assert not found.failures
    assert repr(found) == f"Sweep({str(tmp_path / 'all')!r}: 4 of 4 runs done)"
    assert list(found.runs) == [f"training.step_size={size},seed={seed}" for size in (0.1, 0.5) for seed in (1, 2)]
    alone = Experiment(
        topology=NETWORK, data=(X, Y), test_data=0.2, model=Net, partition="iid", step_size=0.5, seed=2, **SETTINGS
    ).run(tmp_path / "alone")
    swept = found.runs["training.step_size=0.5,seed=2"]
    assert swept.metrics["loss"].tolist() == alone.metrics["loss"].tolist()
    assert found.results()["step_size"].tolist() == ["0.1", "0.5"]
    assert found.results(against="step_size=0.1")["step_size"].tolist() == ["0.5"]
    assert found.plot(tmp_path / "a.svg").is_file()
    assert found.report() == tmp_path / "all" / "report.html"
    assert "4 of 4 runs" in found._repr_html_()
    again = sweep(experiment, grid={"training.step_size": [0.1, 0.5], "seed": [1, 2]}, out=tmp_path / "all", jobs=1)
    assert again.runs.keys() == found.runs.keys()


def test_records_of_a_function_stay_with_their_devices(tmp_path):
    def records(device):
        place = int(device[-1]) - 1
        return X[place::4], Y[place::4]

    experiment = Experiment(topology=NETWORK, data=records, test_data=(X, Y), **SETTINGS)
    found = sweep(experiment, grid={"seed": [3]}, out=tmp_path / "all", jobs=1)
    alone = Experiment(topology=NETWORK, data=records, test_data=(X, Y), seed=3, **SETTINGS).run(tmp_path / "alone")
    assert found.runs["seed=3"].metrics["loss"].tolist() == alone.metrics["loss"].tolist()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, r"grid: expected grid=\{"),
        ({"grid": {"training.intervls": [1]}}, "training.intervls: unknown key; did you mean"),
        ({"grid": {"training.step_size": 0.1}}, r"step_size: expected a list of values, \[0\.1\], found 0\.1"),
    ],
)
def test_mistakes_are_told(tmp_path, arguments, told):
    experiment = Experiment(topology=NETWORK, **SETTINGS)
    with pytest.raises(UserError, match=told):
        sweep(experiment, out=tmp_path / "out", jobs=1, **arguments)
