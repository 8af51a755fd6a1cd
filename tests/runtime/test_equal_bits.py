"""Invariant 3: equal seeds, equal results - inline or on Ray, on any placement, whatever is killed meanwhile."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import ray
import torch

import h2fdp
from h2fdp import Topology, UserError
from h2fdp.data.from_python import from_python
from h2fdp.network import Aggregator
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.runtime.placement import HostResources, HostSpec, Share
from h2fdp.runtime.ray_nodes import HostSettings, RayNodes
from h2fdp.runtime.ray_session import ray_session
from tests.networks import placed
from tests.noise_keys import keys_are, known
from tests.run.test_own_parts_in_files import fails_in_the_middle, file
from tests.runtime.runs import assert_equal, hosts, kill, recorded, small
from tests.runtime.test_bits_at_depth import METHODS, NETWORK, SMALL, deep

__all__ = ["file"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, from its threads and processes
HALF = {"backend": "ray", "cpus_per_host": 0.5}


@pytest.fixture(scope="module", autouse=True)
def _one_key():
    """Equal keys and seeds, equal bits: hosts know the key by what the driver tells them."""
    with keys_are(known):
        yield


@pytest.fixture(scope="module")
def session():
    """One local cluster for all; meanwhile outsiders try to join it, with no token and with a wrong one."""
    outside = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    with ray_session(None, 0):
        address = ray.get_runtime_context().gcs_address
        loopback = "from ray._private import ray_constants; ray_constants.ENABLE_RAY_CLUSTER = False"  # else Ray asks
        script = f"import ray; {loopback}; ray.init(address={address!r}, log_to_driver=False); print('joined')"
        tries = [
            subprocess.Popen([sys.executable, "-c", script], env=outside | token, stdout=-1, stderr=-1, text=True)
            for token in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64})
        ]
        yield tries
        for outsider in tries:
            outsider.kill()
            outsider.communicate()


REMEMBERING = {"extends": "hfl", "objective": "scaffold", "server": "scaffold", "upcycle": 0.5}


def test_a_run_that_was_stopped_in_one_process_goes_on_on_ray_with_what_devices_remember(session, tmp_path):
    """In a deep network, with a host for each edge server that has devices."""
    made, rows = partial(deep, tmp_path, SMALL, REMEMBERING, participation=0.6), []
    start_run(made().prepare(), tmp_path / "run", RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 1))
    where = ["runtime.backend=ray", "runtime.placement=subnet"]
    again = h2fdp.resume(tmp_path / "run", settings=where)
    assert_equal(recorded(made().run(tmp_path / "inline")), recorded(again))


def test_noise_on_steps_gives_the_bits_of_one_process_on_all_hosts(session, tmp_path):
    """In a deep network whose devices and edge servers fail; and a controller decides alike."""
    method, seen = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}, set()
    settings = {"method": method, "weights": "by-size", "participation": 0.6, "calibration": "accounted"}
    settings |= METHODS["controlled"]
    alone = deep(tmp_path, NETWORK, **settings).run(tmp_path / "inline")
    other = deep(tmp_path, NETWORK, **settings, runtime=HALF | {"hosts": 2})
    away = other.run(tmp_path / "ray", on_interval=lambda row: seen.update(hosts()))
    assert_equal(recorded(alone), recorded(away))
    assert {name.partition("#")[0] for name in seen} == {"host:0", "host:1"}
    decisions = [(each.directory / "control.jsonl").read_bytes() for each in (alone, away)]
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_labels_than_classes_give_the_bits_of_one_process_on_all_hosts(session, tmp_path, task):
    arrays = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    labels = arrays[:, 0] if task == "regression" else (arrays[:, :3] > 0).astype(int)
    ranges = {"y": (-3, 3)} if task == "regression" else None
    data = from_python((arrays, labels), 0.2, task=task, ranges=ranges)
    for name, where in (("inline", {}), ("ray", HALF | {"hosts": 2})):
        made = small(data=data, model="logistic", runtime=where)
        made.run(tmp_path / name)
    assert_equal(*(recorded(h2fdp.Run(tmp_path / name)) for name in ("inline", "ray")))


FEEDBACK = {"top_k": 0.1, "error_feedback": True}
ONE = Topology("net", (placed("b", False, [9], [9]),))
ONE_BELOW = Topology("net", (placed("a", False, [9], [9], parent="b"),), aggregators=(Aggregator("b", True),))
COMPRESSED = {"compression": {"device": FEEDBACK, "edge": FEEDBACK, "down": {"quantise": 8}}, "topology": ONE}
COMPRESSED |= {"calibration": "accounted"}
LEARNING = {"control": {"enabled": True, "alpha1": 0.01, "alpha2": 0.01, "tau_max": 3}, "topology": ONE_BELOW}
LEARNING |= {"aggregate_every": [1, 2]}
MEASURING = {"name": "experiments.resource_budget:ResourceBudgetSchedule"}
MEASURING |= {"units": 30.0, "step_cost": 1.0, "aggregation_cost": 5.0}
OWN = {"extends": "h2fdp", "privacy": "dp-sgd", "objective": {"name": "mean-regularised", "penalty": 0.3}}
TWO = {"topology": Topology("net", (placed("b", False, [9, 8], [9, 9]),)), "evaluate_devices": True}
CHARGED = TWO["topology"].with_devices(battery_j=[1e9, 1.8e-5], harvest_w=1e-6, seconds_per_step=1)
DRAWN = {"extends": "h2fdp", "objective": "pfedme", "privacy": {"name": "devices", "noise_multiplier": 2.0}}
ONCE = {"aggregate_every": None, "aggregations_per_interval": 0}
# method, settings, and the host that is killed after the first interval
ALONE = {
    # The cloud travels with what it remembers of uplinks, and with its clock of events.
    "compression": ({"extends": "h2fdp", "privacy": "local"}, COMPRESSED, None),
    "buffers": (
        {"extends": "h2fdp", "privacy": "local", "schedule": {"name": "buffered", "buffer": {"edge": 1, "cloud": 1}}},
        COMPRESSED,
        None,
    ),
    # Models of devices' own, of which a schedule has devices measure; the charge of their batteries is the cloud's.
    "own models": (OWN | {"schedule": MEASURING}, TWO | ONCE | {"topology": CHARGED}, None),
    # Each device draws by itself whether it takes part.
    "secret draws": (DRAWN, TWO | {"participation": {"rate": 0.5, "secret": True, "cover": True}}, None),
    # A controller learns, and an edge server above another runs where the cloud does.
    "a lost device": ("h2fdp", LEARNING, "device:a/1"),
    "a lost edge server": ("h2fdp", LEARNING, "edge:a"),
    "a lost cloud": ("h2fdp", LEARNING, "cloud"),
}


@pytest.mark.parametrize("name", ALONE)
def test_an_actor_for_each_node_gives_the_bits_of_one_process(name, session, tmp_path, capsys):
    method, settings, lost = ALONE[name]
    edge = settings["topology"].subnets[0]
    nodes = {
        "cloud",
        f"edge:{edge.name}",
        *(f"device:{edge.name}/{n + 1}" for n in range(len(edge.columns["distance_m"]))),
    }

    def watch(row):
        assert {each.partition("#")[0] for each in hosts()} == nodes
        if lost is not None and row["interval"] == 1:
            kill(lost)

    whole = small(method, **settings).run(tmp_path / "inline")
    apart = small(method, **settings, runtime={"placement": "entity"}).run(tmp_path / "run", on_interval=watch)
    assert len(whole.metrics) == 3
    assert_equal(recorded(whole), recorded(apart))
    assert (whole.summary["lost_hosts"], apart.summary["lost_hosts"]) == (0, lost is not None)
    said = " ".join(capsys.readouterr().err.split())
    assert lost is None or f"lost {lost}; its work is repeated" in said
    first, second = ((each.directory / "control.jsonl").read_text() for each in (whole, apart))
    assert first == second
    if name == "own models":
        before, _, after = first.partition("\n")
        assert '"beta": null' in before, "nothing is known before the first interval"
        assert '"beta": null' not in after, "and then measured"


def test_code_that_fails_on_a_host_is_told_with_its_traceback(session, file):
    assert fails_in_the_middle(file, backend="ray", hosts=1).__notes__


def lost(reference):
    try:
        ray.get(reference, timeout=60)
    except ray.exceptions.ObjectLostError:
        return True
    return False


class Losing:
    """The nodes of a host that answers after some calls were lost with their host."""

    def __init__(self, file, losses):
        self.file, self.losses = file, losses

    def answer(self, shared, item):
        with open(self.file, "a") as file:
            file.write("called\n")
        with open(self.file) as file:
            if len(file.readlines()) <= self.losses:
                os._exit(1)
        return float(shared.sum()) + item

    def sleep(self, shared, item):
        time.sleep(60)


class Stub:
    """Stands for a blueprint: what `Host.build` makes of a place is its one node."""

    device, noisy = torch.device("cpu"), True

    def __init__(self, file, losses):
        self.node = Losing(file, losses)

    def devices(self, number, rows):
        return self.node


def stub_nodes(file, losses):
    place = HostSpec("device:a/1", "device", ("a/1",), (0,), (Share("a/1", 0, range(1)),))
    return RayNodes([place], Stub(str(file), losses), HostSettings(HostResources(0.1), f"test-{file.name}", 120.0))


def test_a_host_that_is_lost_time_and_again_ends_the_run(session, tmp_path, monkeypatch):
    monkeypatch.setattr("h2fdp.runtime.ray_nodes.MOST_LOSSES", 1)
    nodes = stub_nodes(tmp_path / "two", losses=2)
    with pytest.raises(UserError, match=r"runtime: the host device:a/1 was lost 2 times in a row"):
        nodes.call("answer", torch.ones(3), {"a/1": 1.0})
    nodes.end()


def test_a_lost_model_is_sent_again_and_who_is_late_is_named(session, tmp_path, monkeypatch, caplog):
    """The first time the model belongs to a process that ends, and its bytes with it."""
    nodes = stub_nodes(tmp_path / "calls", losses=0)
    put, puts = ray.put, []

    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self, value):
            return [ray.put(value)]

    def lossy(value):
        puts.append(value)
        if len(puts) > 1:
            return put(value)
        keeper = Keeper.remote()
        (reference,) = ray.get(keeper.keep.remote(value))
        ray.kill(keeper)
        while not lost(reference):
            pass
        return reference

    with monkeypatch.context() as patch:
        patch.setattr(ray, "put", lossy)
        assert nodes.call("answer", torch.ones(1_000_000), {"a/1": 0.0}) == {"a/1": 1e6}
    assert len(puts) == 2
    assert [each.h2fdp["note"] for each in caplog.records] == ["lost device:a/1; its work is repeated"]
    nodes._settings = replace(nodes._settings, timeout_s=0.5)
    with pytest.raises(
        UserError, match=r"runtime: no answer within 0\.5 s from device:a/1; .* of the cluster's .* free"
    ):
        nodes.call("sleep", torch.ones(3), {"a/1": None})
    nodes.end()


def test_nobody_joins_without_the_token(session):
    for outsider in session:
        assert outsider.wait(timeout=120) != 0
        assert "joined" not in outsider.stdout.read()
        assert "ConnectionError" in outsider.stderr.read()
