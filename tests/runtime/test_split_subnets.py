"""A subnet on several hosts: threads or Ray's actors, one or eight, whatever is killed meanwhile, the bits of one."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

import h2fdp
from h2fdp import Topology
from h2fdp.arithmetic import flushing
from h2fdp.network import Aggregator
from h2fdp.network.adversaries import Adversaries, SignFlip
from h2fdp.network.mobility import Mobility
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.runtime.host import Host, split_servers
from h2fdp.runtime.placement import PLACEMENTS
from h2fdp.runtime.ray_session import ray_session
from tests.networks import placed
from tests.noise_keys import keys_are, known
from tests.runtime.runs import assert_equal, hosts, kill, recorded, small

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, from its threads and processes
SMALL_SHARE = {"backend": "ray", "cpus_per_host": 0.2}


@pytest.fixture(scope="module", autouse=True)
def _one_key():
    with keys_are(known):
        yield


@pytest.fixture(scope="module")
def session():
    with ray_session(None, 0):
        yield


def star(trusted=False, devices=19, **more):
    return Topology("net", (placed("b", trusted, list(range(9, 9 + devices)), [9] * devices),), **more)


def one_large(trusted):
    """An edge server with 12 devices below another one, and two with a device each."""
    subnets = (
        placed("a", trusted, [9] * 12, [9] * 12, parent="top"),
        placed("b", True, [8], [9]),
        placed("c", False, [7], [9]),
    )
    return Topology("net", subnets, aggregators=(Aggregator("top", trusted),))


FAULTS = {"device_dropout": 0.4, "straggler": {"probability": 0.5}}


@pytest.fixture(autouse=True)
def _hosts_end(monkeypatch):
    """Hosts that a test makes in this process end with it, and so does their arithmetic."""
    made, begin = [], Host.__init__

    def noted(host):
        begin(host)
        made.append(host)

    monkeypatch.setattr(Host, "__init__", noted)
    with flushing(False):
        yield
        for host in reversed(made):
            host._stack.close()


class Hosts:
    """Ray's hosts without Ray: each holds its nodes, and nothing else reaches them."""

    def __init__(self, blueprint, count):
        specs = PLACEMENTS["packed"](blueprint.topology, count)
        self.sums, self.hosts = 0, {name: Host() for spec in specs for name in spec.nodes[:1]}
        self.owners = {node: self.hosts[spec.nodes[0]] for spec in specs for node in spec.nodes}
        for spec in specs:
            self.owners[spec.nodes[0]].build(blueprint, spec, None)
        self.split = split_servers(blueprint, specs, self)

    def call(self, method, shared, each):
        split = {name: getattr(self.split[name], method)(shared, each[name]) for name in each if name in self.split}
        others = {name: item for name, item in each.items() if name not in split}
        return split | {
            name: self.owners[name].call(method, shared, {name: item})[0][name] for name, item in others.items()
        }

    def add_up(self, method, shared, each):
        self.sums, total = self.sums + 1, None
        for name, item in each.items():
            failed, total = self.owners[name].add_up(method, shared, {name: item}, lambda before=total: before)
            assert failed is None
        return total


@pytest.fixture
def on_hosts(monkeypatch):
    """Threads of an inline run are hosts."""
    made = []

    @contextmanager
    def nodes(blueprint, numbers, workers):
        made.append(Hosts(blueprint, workers))
        yield made[-1]

    monkeypatch.setattr("h2fdp.runtime.inline_nodes", nodes)
    return made


DEEP = {"topology": one_large(True), "participation": 0.7, "weights": "by-size", "aggregate_every": [1, 2]}


@pytest.mark.parametrize(
    ("method", "settings"), [("pedpfl", {"topology": star(), "faults": FAULTS}), ("h2fdp", DEEP)], ids=["star", "deep"]
)
def test_one_two_and_eight_hosts_give_the_same_bits(method, settings, tmp_path, request):
    where = {count: {"backend": "inline", "hosts": count} for count in (1, 2, 8)}
    threads = [small(method, **settings, runtime=each).run(tmp_path / f"threads-{at}") for at, each in where.items()]
    made = request.getfixturevalue("on_hosts")
    apart = [small(method, **settings, runtime=each).run(tmp_path / f"hosts-{at}") for at, each in where.items()]
    for run in (*threads[1:], *apart):
        assert_equal(recorded(threads[0]), recorded(run))
    assert [each.sums > 0 for each in made] == [False, True, True]
    assert len(made[-1].hosts) == 8


ONCE = {"aggregate_every": None, "aggregations_per_interval": 0}
PRIVATE = {"name": "devices", "noise_multiplier": 2.0}
MEASURING = {"name": "experiments.resource_budget:ResourceBudgetSchedule"}
MEASURING |= {"units": 30.0, "step_cost": 1.0, "aggregation_cost": 5.0}
BUFFERED = {"extends": "h2fdp", "privacy": "local", "schedule": {"name": "buffered", "buffer": {"edge": 3, "cloud": 1}}}
LIARS = Adversaries(SignFlip(), ("b/2", "b/5"), ())
FLAT = Topology("net", (placed("a", False, [9] * 12, [9] * 12), placed("c", False, [7], [9])))
MOVING = Mobility([(2, "a/3", "c"), (3, "a/3", "a")])
ROUNDED = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"rounding": 20}}}
SECURE = Topology("net", (placed("b", "secure-sum", list(range(9, 19)), [9] * 10),))
# Whether the sum of uploads is all that the edge server asks its hosts for, method, and settings.
CASES = {
    "robust": (False, {"extends": "fedavg", "aggregation": "median"}, {}),
    "memories": (False, {"extends": "hfl", "objective": "scaffold", "server": "scaffold"}, {}),
    "own models": (False, {"extends": "fedavg", "objective": "pfedme"}, {}),
    "measured": (False, {"extends": "fedavg", "schedule": MEASURING}, ONCE),
    "buffers": (False, BUFFERED, {"calibration": "accounted"}),
    "liars": (False, "fedavg", {"topology": star(adversaries=LIARS)}),
    "secure sums": (True, "h2fdp", {"topology": SECURE}),
    "modular sums": (False, ROUNDED, {"topology": SECURE}),
    "feedback": (False, "pedpfl", {"compression": {"device": {"top_k": 0.1, "error_feedback": True}}}),
    "quantised": (True, "pedpfl", {"compression": {"device": {"quantise": 4}}}),
    "steps": (True, {"extends": "h2fdp", "privacy": "dp-sgd"}, {"clip_scope": "record", "faults": FAULTS}),
    "device unit": (
        True,
        {"extends": "fedavg", "privacy": PRIVATE},
        {"participation": {"rate": 0.5, "secret": True, "cover": True}, **ONCE},
    ),
    "fixed": (True, "fedavg", {"sampling": "fixed"}),
    "correlated": (
        True,
        "h2fdp",
        {"correlated": {"kind": "banded-inverse", "bands": 2}, "calibration": "accounted", "sampling": "fixed"},
    ),
    "moves": (True, "h2fdp", {"topology": replace(FLAT, mobility=MOVING), "calibration": "accounted"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_split_subnet_is_right_with(name, tmp_path, request):
    in_sums, method, settings = CASES[name]
    made = partial(small, method, **{"topology": star(devices=10), "intervals": 2} | settings)
    one = made(runtime={"backend": "inline", "hosts": 1}).run(tmp_path / "one")
    found = request.getfixturevalue("on_hosts")
    assert_equal(recorded(one), recorded(made(runtime={"backend": "inline", "hosts": 3}).run(tmp_path / "three")))
    assert bool(found[-1].sums) is in_sums


def test_a_host_that_is_lost_adds_its_part_again(session, tmp_path):
    seen = []

    def watch(row):
        seen.append({each.partition("#")[0] for each in hosts()})
        if row["interval"] == 1:
            kill("host:1")

    one = small("pedpfl", topology=star()).run(tmp_path / "one")
    three = small("pedpfl", topology=star(), runtime=SMALL_SHARE | {"hosts": 3}).run(
        tmp_path / "four", on_interval=watch
    )
    assert seen[0] == {"host:0", "host:1", "host:2"}
    assert_equal(recorded(one), recorded(three))
    assert three.summary["lost_hosts"] == 1


@pytest.mark.parametrize("before", [1, 2])
def test_a_run_goes_on_on_another_number_of_hosts(before, tmp_path, on_hosts):
    method, rows = {"extends": "hfl", "objective": "scaffold", "server": "scaffold"}, []
    stops = RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 1)
    made = partial(small, method, topology=star())
    start_run(made(runtime={"backend": "inline", "hosts": before}).prepare(), tmp_path / "run", stops)
    again = h2fdp.resume(tmp_path / "run", settings=["runtime.backend=inline", "runtime.hosts=5"])
    whole = made(runtime={"backend": "inline", "hosts": 1}).run(tmp_path / "whole")
    assert_equal(recorded(whole), recorded(again))


def test_a_host_holds_the_records_of_its_own_devices(tmp_path):
    run = small("pedpfl", topology=star()).prepare()
    sizes = run.blueprint.data.sizes
    spec = PLACEMENTS["packed"](run.topology, 4)[1]
    host = Host()
    host.build(run.blueprint, spec, lambda _: pytest.fail("nothing is below"))
    (block,) = host._nodes._kept.values()
    (share,) = spec.shares
    assert len(block.node(share.name).records.y) == sizes[share.rows.start : share.rows.stop].sum() < sizes.sum() / 3


def test_no_node_has_the_name_of_a_share():
    """An edge server may be called as shares are numbered."""
    topology = Topology("net", (placed("b", False, [9.0] * 8, [9.0] * 8), placed("b/1-4", False, [9.0], [9.0])))
    names = [node for spec in PLACEMENTS["packed"](topology, 2) for node in spec.nodes]
    assert len(set(names)) == len(names)
