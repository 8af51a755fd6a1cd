"""A small run, what it recorded, and the Ray actors that are its hosts."""

import os
import signal
import time

import pandas as pd
import ray

from h2fdp import Experiment, Topology


def small(method="h2fdp", seed=3, model="softmax", topology=None, **settings):
    return Experiment(
        topology=topology or Topology.regular(edges=3, devices=2, trust=0.5, seed=seed),
        model=model,
        method=method,
        seed=seed,
        **{"data": "digits", "intervals": 3, "aggregate_every": 2} | settings,
        local_steps=4,
        batch_size=4,
        epsilon=20.0,
        accountant="rdp",
    )


def recorded(run):
    metrics = run.metrics.drop(columns="wall_s")
    return metrics, run.devices, (run.directory / "privacy.jsonl").read_bytes(), run.model.state_dict()


def assert_equal(one, other):
    pd.testing.assert_frame_equal(one[0], other[0], check_exact=True)
    pd.testing.assert_frame_equal(one[1], other[1], check_exact=True)
    assert one[2] == other[2]
    for key, value in one[3].items():
        assert value.equal(other[3][key])


def hosts():
    """Name -> what Ray knows of each living actor."""
    found = ray._private.state.actors().values()
    return {actor["Name"]: actor for actor in found if actor["State"] == "ALIVE"}


def kill(name):
    """SIGKILL a host's process, and wait until Ray has noticed."""
    os.kill(hosts()[name]["Pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while name in hosts():
        assert time.monotonic() < deadline, f"Ray never noticed that {name} was killed"
        time.sleep(0.05)
