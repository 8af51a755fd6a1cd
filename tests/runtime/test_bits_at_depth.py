"""A network of four tiers gives the same bits after it was killed; on hosts of Ray, see `test_equal_bits`."""

import pytest

import h2fdp
from h2fdp.network import read
from h2fdp.run import recorders
from tests.runtime.runs import assert_equal, recorded, small

NETWORK = """
name: four tiers
edges:
  - name: north
    trusted: true
    edges:
      - name: middle
        trusted: true
        edges:
          - {name: n1, trusted: true, devices: {count: 2}}
          - {name: n2, trusted: false, devices: {count: 1}}
      - {name: n3, trusted: true, devices: {count: 1}}
  - name: south
    trusted: false
    edges:
      - {name: s1, trusted: true, devices: {count: 1}}
  - {name: alone, trusted: false, devices: {count: 1}}
"""
SMALL = """
name: three tiers
edges:
  - {name: north, trusted: true, edges: [{name: n1, trusted: true, devices: {count: 2}}]}
  - {name: alone, trusted: false, devices: {count: 1}}
"""
SUMS = """
name: secure sums below a trusted server, and beside it
edges:
  - {name: north, trusted: true, edges: [{name: n1, trust: secure-sum, devices: {count: 2}}]}
  - {name: alone, trust: secure-sum, devices: {count: 1}}
"""
TOLERANT = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"dropouts": 0.5}}}
FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}
CONTROL = {"enabled": True, "alpha1": 0.01, "alpha2": 0.01, "tau_max": 6}
SCAFFOLD = {"extends": "hfl", "objective": "scaffold", "server": "scaffold"}
METHODS = {
    "controlled": {"control": CONTROL},
    "secure sums": {"method": TOLERANT},
    "dp-sgd": {"method": {"extends": "h2fdp", "privacy": "dp-sgd"}},
    "scaffold": {"method": SCAFFOLD},
    "devices": {"method": {"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": 2.0}}},
    "secret draws": {
        "method": {"extends": "h2fdp", "objective": "pfedme", "privacy": {"name": "devices", "noise_multiplier": 2.0}},
        "participation": {"rate": 0.6, "secret": True, "cover": True},
    },
}


def deep(folder, network=NETWORK, method="h2fdp", **settings):
    (folder / "network.yaml").write_text(network)
    topology = read(folder / "network.yaml", seed=3)
    return small(topology=topology, **{"aggregate_every": [1, 2], "faults": FAULTS, "method": method, **settings})


@pytest.mark.parametrize("name", list(METHODS))
def test_a_run_that_was_killed_continues_to_the_same_bits(name, tmp_path, monkeypatch):
    network = SUMS if name == "secure sums" else NETWORK
    whole = recorded(deep(tmp_path, network, **METHODS[name]).run(tmp_path / "whole"))

    def fail(step, interval):
        if (step, interval) == ("released", 1):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patched:
        patched.setattr(recorders, "listener", fail)
        with pytest.raises(RuntimeError, match="the host is gone"):
            deep(tmp_path, network, **METHODS[name]).run(tmp_path / "killed")
    assert_equal(whole, recorded(h2fdp.resume(tmp_path / "killed")))
