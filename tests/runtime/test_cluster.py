"""A run on a cluster that runs already: two machines of one CPU each, as Ray's own cluster utility makes them."""

import os
import pickle
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import ray
import torch
from ray.cluster_utils import Cluster

from h2fdp.protocol import InProcessNodes
from h2fdp.runtime.placement import HostResources, HostSpec, Share
from h2fdp.runtime.ray_nodes import HostSettings, RayNodes
from h2fdp.runtime.ray_session import _own_modules_by_value, _read_token_anew, ray_session
from tests.forks import in_a_child
from tests.runtime.runs import assert_equal, hosts, recorded, small

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, from its threads and processes

NEEDS_A_PATH_WITHOUT_SPACES = pytest.mark.skipif(
    " " in sys.executable, reason="Ray starts the workers of a cluster that is joined by the unquoted path of Python"
)


@pytest.fixture(scope="module")
def cluster():
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # not TMPDIR: paths of sockets are short
    Path(folder, "ray").mkdir()  # where Ray writes of a cluster before it makes the folder
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_TMPDIR", folder)
        environment.delenv("PYTHONPATH", raising=False)
        environment.setenv("RAY_AUTH_MODE", "token")
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
        environment.setenv("RAY_health_check_period_ms", "500")  # how soon a lost machine is noticed
        _read_token_anew()
        made = Cluster(initialize_head=True, head_node_args={"include_dashboard": False})
        made.workers = [made.add_node()]
        yield made
        made.shutdown()
    _read_token_anew()
    shutil.rmtree(folder, ignore_errors=True)


def lose(machine):
    """Kill every process of a machine at once."""
    raylet = machine.all_processes["raylet"][0].process.pid
    below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(raylet)], capture_output=True, text=True, check=True)
    for process in [raylet, *map(int, below.stdout.split())]:
        os.kill(process, signal.SIGKILL)


@NEEDS_A_PATH_WITHOUT_SPACES
def test_hosts_import_the_package_that_was_sent(cluster, tmp_path, monkeypatch):
    """On a machine that lacks the driver's folders; here they are taken from the path that Ray passes on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not Path(each, "h2fdp").is_dir()])
    with ray_session(cluster.address, 0):
        place = HostSpec("device:a/1", "device", ("a/1",), (0,), (Share("a/1", 0, range(1)),))
        nodes = RayNodes([place], Nothing(), HostSettings(HostResources(0.1), "test", 120.0))
        package = Path(nodes.locations[place.name].package)
        nodes.end()
    assert package.is_relative_to(cluster.head_node.get_session_dir_path())


class Nothing:
    def devices(self, number, rows):
        return InProcessNodes({})


@NEEDS_A_PATH_WITHOUT_SPACES
def test_a_machine_that_is_lost_changes_no_bit(cluster, tmp_path, capsys, monkeypatch):
    """Two hosts on two machines; one machine goes, and with it a host that then shares a CPU with the other."""
    monkeypatch.setattr("h2fdp.runtime.ray_nodes._SECONDS_TO_FIND_ROOM", 5.0)
    machines = []

    def watch(row):
        machines.append({host["Address"]["NodeID"] for host in hosts().values()})
        if row["interval"] == 1:
            here = ray.get_runtime_context().get_node_id()
            lose(next(each for each in cluster.workers if each.node_id != here))

    inline = small().run(tmp_path / "inline")
    run = small(runtime={"address": cluster.address, "hosts": 2}).run(tmp_path / "run", on_interval=watch)
    assert_equal(recorded(inline), recorded(run))
    assert [len(each) for each in machines] == [2, 1, 1]
    said = capsys.readouterr()
    assert "note: lost host:" in said.err
    assert "(raylet)" not in said.out + said.err
    assert run.summary["lost_hosts"] == 1
    assert '"event": "failure"' in (run.directory / "log.jsonl").read_text()


def test_a_model_beside_the_script_goes_where_its_module_is_not(tmp_path, monkeypatch):
    (tmp_path / "sizes.py").write_text("WIDTH = 7\n\ndef width():\n    return WIDTH\n")
    (tmp_path / "ours.py").write_text(
        "import torch\nfrom sizes import width\n\nclass Ours(torch.nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(3, width())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from ours import Ours

    with _own_modules_by_value():
        sent = ray.cloudpickle.dumps(Ours)

    def elsewhere():
        sys.path.remove(str(tmp_path))
        del sys.modules["sizes"], sys.modules["ours"]
        assert pickle.loads(sent)().out_features == 7

    assert in_a_child(elsewhere) == 0
    assert Ours()(torch.zeros(3)).shape == (7,)
