"""A network of three tiers gives the same bits in one process and on Ray, and after it was killed."""

import pytest

import h2fdp
from h2fdp.run import steps
from h2fdp.topology import read
from tests.runtime.runs import assert_equal, recorded, small

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, from its threads and processes
NETWORK = """
name: three tiers
edges:
  - name: north
    trusted: true
    edges:
      - {name: n1, trusted: true, devices: {count: 2}}
      - {name: n2, trusted: false, devices: {count: 2}}
  - name: south
    trusted: false
    edges:
      - {name: s1, trusted: true, devices: {count: 1}}
  - {name: alone, trusted: false, devices: {count: 2}}
"""
METHODS = ["h2fdp", "scaffold"]
FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}


def deep(folder, method, **settings):
    (folder / "network.yaml").write_text(NETWORK)
    topology = read(folder / "network.yaml", seed=3)
    return small(method, topology=topology, **{"aggregate_every": [1, 2], "faults": FAULTS, **settings})


@pytest.mark.parametrize("method", METHODS)
def test_ray_hosts_give_the_bits_of_one_process(method, tmp_path):
    alone = recorded(deep(tmp_path, method).run(tmp_path / "alone"))
    runtime = {"backend": "ray", "hosts": 2, "cpus_per_host": 0.5}
    assert_equal(alone, recorded(deep(tmp_path, method, runtime=runtime).run(tmp_path / "ray")))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_was_killed_continues_to_the_same_bits(method, tmp_path, monkeypatch):
    whole = recorded(deep(tmp_path, method).run(tmp_path / "whole"))

    def fail(step, interval):
        if (step, interval) == ("released", 1):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patched:
        patched.setattr(steps, "listener", fail)
        with pytest.raises(RuntimeError, match="the host is gone"):
            deep(tmp_path, method).run(tmp_path / "killed")
    assert_equal(whole, recorded(h2fdp.resume(tmp_path / "killed")))
