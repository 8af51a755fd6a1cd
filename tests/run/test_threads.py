"""Equal seeds, equal bits, whatever the number of threads that libraries were given."""

import json
import os
import subprocess
import sys

import pytest

# Features of images, which NumPy and torch multiply; a controller, whose norms of 19,210 parameters NumPy adds up.
SCRIPT = """
import hashlib, json, sys
from h2fdp import Experiment, Topology

def bits(name, **settings):
    network = Topology.regular(edges=2, devices=3, trust=0.5, seed=1)
    settings |= {"data": "digits", "epsilon": 20.0, "noise_key": "seed", "local_steps": 2, "batch_size": 8}
    settings |= {"training": "paper", "calibration": "paper", "accountant": "rdp"}
    experiment = Experiment(topology=network, seed=2, intervals=3, **settings)
    inputs = hashlib.sha256(experiment.prepare().data.train.x.tobytes()).hexdigest()
    run = experiment.run(f"{sys.argv[1]}/{name}", progress=False)
    return inputs, run.summary["model_sha256"], run.metrics.drop(columns="wall_s").to_csv()

control = {"alpha1": 1, "alpha2": 1, "alpha3": 1, "tau_max": 8}
print(json.dumps([bits("features", model="public-features"),
                  bits("control", model={"name": "mlp", "hidden": 256}, control=control)]))
"""
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.mark.process
def test_equal_seeds_give_equal_bits_whatever_the_number_of_threads(tmp_path, monkeypatch, capsys):
    """Three threads in a process of their own; this one has the number that its environment says."""

    def place(name):  # each with a cache of its own, else one would have the other's features
        return {"XDG_CACHE_HOME": str(tmp_path / name)}, str(tmp_path / name / "runs")

    cache, out = place("three")
    variables = os.environ | dict.fromkeys(VARIABLES, "3") | cache
    apart = subprocess.Popen([sys.executable, "-c", SCRIPT, out], env=variables, stdout=-1, stderr=-1, text=True)
    cache, out = place("here")
    monkeypatch.setenv("XDG_CACHE_HOME", cache["XDG_CACHE_HOME"])
    monkeypatch.setattr(sys, "argv", ["script", out])
    exec(SCRIPT, {"__name__": "script"})
    answer, errors = apart.communicate()
    assert apart.returncode == 0, errors
    assert json.loads(answer) == json.loads(capsys.readouterr().out.splitlines()[-1])
