"""Hosts that are forked from the process of a run: its bits, whoever is killed meanwhile, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.runtime import section
from h2fdp.runtime.forked_hosts import ForkedNodes
from h2fdp.runtime.host_placement import HostSpec
from h2fdp.runtime.process_messages import packed, unpacked
from tests.noise_keys import keys_are, known
from tests.runtime.runs import assert_equal, recorded, small

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked hosts need Linux")


@pytest.fixture(autouse=True)
def _one_key():
    with keys_are(known):
        yield


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    with keys_are(known):
        return recorded(small().run(tmp_path_factory.mktemp("inline") / "run"))


def forked(hosts, **settings):
    return small(runtime={"backend": "processes", "hosts": hosts}, **settings)


def children(parent=None):
    """Processes of this one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == (parent or os.getpid()):
            found.add(int(status.parent.name))
    return found


@pytest.mark.parametrize("hosts", [1, 2, 7])
def test_forked_hosts_give_the_bits_of_threads_and_leave_nothing(inline, tmp_path, hosts):
    before = children()
    assert_equal(inline, recorded(forked(hosts).run(tmp_path / "run")))
    assert children() <= before


def test_below_regions_too(tmp_path):
    network = Topology.deep(tiers=(2, 2, 2))
    alone = recorded(small(topology=network).run(tmp_path / "alone"))
    assert_equal(alone, recorded(forked(3, topology=network).run(tmp_path / "run")))


def test_a_run_that_was_stopped_goes_on_in_forked_hosts(inline, tmp_path):
    rows = []
    start_run(small().prepare(), tmp_path / "run", RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 1))
    where = ["runtime.backend=processes", "runtime.hosts=2"]
    assert_equal(inline, recorded(h2fdp.resume(tmp_path / "run", settings=where)))


def test_a_host_that_is_killed_is_forked_anew_and_its_work_repeated(inline, tmp_path, capfd):
    others, killed = children(), []

    def kill(row):
        if not killed:
            killed.extend(children() - others)
            for process in killed:
                os.kill(process, signal.SIGKILL)

    run = start_run(forked(2).prepare(), tmp_path / "run", RunCallbacks(on_interval=kill))
    assert len(killed) == 2
    assert_equal(inline, recorded(run))
    assert capfd.readouterr().err.count("its work is repeated") == 2


def test_parts_of_a_users_own_travel_by_the_fork(tmp_path):
    network = Topology.regular(edges=2, devices=2, trust=0.0)

    def records(device):
        return np.random.default_rng(len(device)).normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2

    def run(runtime, out):
        options = {"topology": network, "data": records, "model": lambda: torch.nn.Linear(3, 2), "runtime": runtime}
        return Experiment(**options, test_data=records("test"), method="hfl", intervals=3).run(out)

    alone = run({"backend": "inline"}, tmp_path / "alone")
    away = run({"backend": "processes", "hosts": 2}, tmp_path / "run")
    assert alone.metrics.drop(columns="wall_s").equals(away.metrics.drop(columns="wall_s"))
    one, other = (torch.load(each.directory / "model.pt", weights_only=True) for each in (alone, away))
    assert all(one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ({"backend": "processes", "gpus_per_host": 1}, "gpus_per_host.*forked processes cannot use a GPU"),
        ({"backend": "processes", "placement": "subnet"}, "placement.*processes are forked on this machine"),
        ({"backend": "processes", "address": "auto"}, "address.*processes are forked on this machine"),
    ],
)
def test_what_forked_hosts_have_not_is_refused(runtime, words):
    with pytest.raises(UserError, match=words):
        small(runtime=runtime)


def test_other_systems_are_told(monkeypatch):
    monkeypatch.setattr(section.sys, "platform", "darwin")
    with pytest.raises(UserError, match=r"runtime\.backend.*needs Linux; expected inline or ray"):
        small(runtime={"backend": "processes"})


class Nodes:
    """Answers with what it is asked for."""

    def __init__(self, folder):
        self.folder = folder

    def call(self, method, shared, each):
        return getattr(self, method)(shared, each)

    def whose(self, shared, each):
        return dict.fromkeys(each, os.getpid())

    def added(self, shared, each):
        return {node: shared + item for node, item in each.items()}

    def dies(self, shared, each):
        """As often as `shared` says."""
        for node in each:
            before = self.folder / node
            count = len(before.read_bytes()) if before.exists() else 0
            if count < shared:
                before.write_bytes(bytes(count + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return dict(each)

    def fails(self, shared, each):
        if shared == "mistake":
            raise UserError("expected something else", key="training.step_size")

        class Own(Exception):
            """No other process can make one."""

        raise Own("of a kind that does not travel")


@pytest.fixture
def nodes(tmp_path):
    places = [HostSpec(f"host:{name}", "subnets", (name, f"{name}{name}")) for name in "ab"]
    made = ForkedNodes(places, [Nodes(tmp_path), Nodes(tmp_path)], threads=2)
    assert made.call("whose", None, {"a": 0, "b": 0}) == {"a": os.getpid(), "b": os.getpid()}  # the first: here
    yield made
    made.end()


def test_after_the_first_call_each_place_has_a_process(nodes):
    of = nodes.call("whose", None, {"bb": 0, "a": 0, "aa": 0})
    assert list(of) == ["bb", "a", "aa"]
    assert len(set(of.values()) | {os.getpid()}) == 3
    assert of["a"] == of["aa"]
    assert set(of.values()) <= children()
    nodes.end()
    assert not set(of.values()) & children()


def test_a_lost_host_is_replaced_but_not_for_ever(nodes, capfd):
    assert nodes.call("dies", 2, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert capfd.readouterr().err.count("note: lost host:") == 4
    with pytest.raises(RuntimeError, match=r"host:a was lost 3 times in a row \(signal 9\)"):
        nodes.call("dies", 9, {"a": 1})


def test_ctrl_c_is_not_for_hosts(nodes):
    of = nodes.call("whose", None, {"a": 0})
    os.kill(of["a"], signal.SIGINT)
    assert nodes.call("whose", None, {"a": 0}) == of


def test_exceptions_come_back_as_they_are_or_in_words(nodes):
    with pytest.raises(UserError, match="expected something else") as found:
        nodes.call("fails", "mistake", {"a": 0})
    assert found.value.problems[0].key == "training.step_size"
    assert "in a host of this run" in found.value.__notes__[0]
    with pytest.raises(RuntimeError, match="Own: of a kind that does not travel"):
        nodes.call("fails", "own", {"b": 0})
    assert nodes.call("added", 1, {"a": 1, "b": 2}) == {"a": 2, "b": 3}


def test_large_vectors_travel_whole(nodes):
    vector = torch.arange(3_000_000, dtype=torch.float32)
    found = nodes.call("added", vector, {"a": 1.0, "b": 2.0})
    assert torch.equal(found["a"], vector + 1)
    assert torch.equal(found["b"], vector + 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8, torch.bfloat16])
def test_tensors_travel_to_the_bit(dtype):
    for tensor in (
        torch.arange(6).reshape(2, 3).to(dtype),
        torch.arange(6).reshape(2, 3).to(dtype).T,
        torch.ones(()).to(dtype),
    ):
        found = unpacked(packed({"of": [tensor]}))["of"][0]
        assert found.dtype == dtype
        assert torch.equal(found, tensor)
        found.zero_()  # memory of its own
        assert tensor.any()


ORPHANS = """
import sys, time
from h2fdp.runtime.forked_hosts import ForkedNodes
from h2fdp.runtime.host_placement import HostSpec
class Nodes:
    def call(self, method, shared, each):
        import os
        return dict.fromkeys(each, os.getpid())
nodes = ForkedNodes([HostSpec(name, "subnets", (name,)) for name in "abc"], [Nodes()] * 3, 1)
nodes.call("whose", None, {"a": 0})
print(*nodes.call("whose", None, dict.fromkeys("abc")).values(), flush=True)
time.sleep(600)
"""


def test_hosts_end_with_a_driver_that_is_killed():
    driver = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    with driver:
        processes = [int(word) for word in driver.stdout.readline().split()]
        assert len(set(processes)) == 3
        driver.kill()
    deadline = time.monotonic() + 60
    while any(
        Path(f"/proc/{each}/stat").exists() and "Z" not in Path(f"/proc/{each}/stat").read_text().split()[2]
        for each in processes
    ):
        assert time.monotonic() < deadline, "a host outlives its driver"
        time.sleep(0.05)
