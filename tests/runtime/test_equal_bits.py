"""Invariant 3: equal seeds, equal results - inline or on Ray, on one host or several."""

import pandas as pd
import pytest

import h2fdp
from h2fdp import Experiment, Topology
from h2fdp.experiment.run import start_run

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, from its threads and processes


def small(method="h2fdp", seed=3, model="softmax", **settings):
    topology = Topology.regular(edges=3, devices=2, trust=0.5, seed=seed)
    return Experiment(
        topology=topology,
        data="digits",
        model=model,
        method=method,
        seed=seed,
        intervals=3,
        local_steps=4,
        aggregate_every=2,
        batch_size=4,
        epsilon=20.0,
        **settings,
    )


def recorded(run):
    metrics = run.metrics.drop(columns="wall_s")
    return metrics, run.devices, (run.directory / "privacy.jsonl").read_bytes(), run.model().state_dict()


def assert_equal(one, other):
    pd.testing.assert_frame_equal(one[0], other[0], check_exact=True)
    pd.testing.assert_frame_equal(one[1], other[1], check_exact=True)
    assert one[2] == other[2]
    for key, value in one[3].items():
        assert value.equal(other[3][key])


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    return recorded(small().run(tmp_path_factory.mktemp("inline") / "run"))


@pytest.mark.parametrize("hosts", [1, 2])
def test_ray_hosts_give_the_bits_of_one_process(inline, tmp_path, hosts):
    runtime = {"backend": "ray", "hosts": hosts, "cpus_per_host": 0.5}
    assert_equal(inline, recorded(small(runtime=runtime).run(tmp_path / "run")))


def test_a_run_that_was_stopped_in_one_process_goes_on_on_ray(inline, tmp_path):
    rows = []
    start_run(small().prepare(), tmp_path / "run", on_interval=rows.append, stop=lambda: len(rows) == 1)
    where = ["runtime.backend=ray", "runtime.hosts=3", "runtime.cpus_per_host=0.5"]
    assert_equal(inline, recorded(h2fdp.resume(tmp_path / "run", settings=where)))


def test_the_same_seed_gives_the_same_bits_again(inline, tmp_path):
    assert_equal(inline, recorded(small().run(tmp_path / "run")))


def test_another_seed_gives_another_run(inline, tmp_path):
    other = recorded(small(seed=4).run(tmp_path / "run"))
    assert not inline[0]["loss"].equals(other[0]["loss"])


def test_asking_for_more_hosts_than_there_are_cpus_says_so(tmp_path):
    from h2fdp import UserError

    with pytest.raises(UserError, match=r"runtime\.hosts: 4096 hosts .* CPUs; expected at most"):
        small(runtime={"backend": "ray", "hosts": 4096}).run(tmp_path / "run")


@pytest.mark.parametrize("estimates", ["released", "private"])
def test_the_controller_decides_alike_on_ray_also_where_devices_fail(tmp_path, estimates):
    control = {"enabled": True, "alpha1": 0.01, "alpha2": 0.01, "tau_max": 6, "estimates": estimates}
    faults = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.2}}
    settings = {"control": control, "faults": faults}
    one = small(**settings).run(tmp_path / "inline")
    runtime = {"backend": "ray", "hosts": 2, "cpus_per_host": 0.5}
    other = small(**settings, runtime=runtime).run(tmp_path / "ray")
    assert_equal(recorded(one), recorded(other))
    decisions = [(each.directory / "control.jsonl").read_bytes() for each in (one, other)]
    assert decisions[0] == decisions[1]
