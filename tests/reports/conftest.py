"""Small real runs, made once, and copies of them that a test may spoil."""

import shutil

import pytest

from h2fdp import Experiment, Topology

SETTINGS = {"intervals": 3, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "backend": "inline", "seed": 3}
NETWORK = Topology.regular(edges=3, devices=2, trust=0.5, seed=3)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Run directories by name: with fixed noise, with a controller, without privacy, a star."""
    folder = tmp_path_factory.mktemp("runs")
    methods = {"fixed": "h2fdp", "controlled": "h2fdp-adaptive", "open": "hfl", "star": "pedpfl"}
    for name, method in methods.items():
        Experiment(topology=NETWORK, method=method, name=name, **SETTINGS).run(folder / name)
    return {name: folder / name for name in methods}


@pytest.fixture
def spoilt(runs, tmp_path):
    """Copies a run under another name."""

    def copy(name, target="copy"):
        return shutil.copytree(runs[name], tmp_path / target)

    return copy
