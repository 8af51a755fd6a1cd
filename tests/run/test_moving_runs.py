"""Whole runs whose devices change their edge server: neutral settings, one account each, resuming, and refusals."""

import contextlib
import json
import re
import shutil
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.audit.run_audit import audits
from h2fdp.integrity import check
from h2fdp.network import Aggregator, Radio, Wire
from h2fdp.network.mobility import Mobility
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.releases import rows_in
from h2fdp.privacy.statement import statement
from h2fdp.run import recorders
from h2fdp.run.loop import resume_run, start_run
from h2fdp.run.model_scores import device_scores
from h2fdp.run.preview import notices
from h2fdp.run.privacy import RunPrivacy
from tests.networks import placed
from tests.protocol.overhearing import devices_of
from tests.protocol.test_any_tree import epsilon_of_gaussian

STILL = Topology(
    "cars", tuple(placed(f"e{at}", at == 0, [20.0, 60.0], [9.0] * 2) for at in range(3)), Radio(access="ofdma")
)
TRACE = [
    (3, "e0/1", "e1", 40.0),
    (5, "e0/1", "e2"),
    (2, "e1/1", "e0"),
    (4, "e1/1", None),
    (6, "e1/1", "e1"),
    (4, "e2/2", "e0"),
]
INTERVALS = 6


def experiment(mobility=None, topology=STILL, **settings):
    defaults = {
        "method": "h2fdp",
        "intervals": INTERVALS,
        "local_steps": 2,
        "aggregate_every": 1,
        "batch_size": None,
        "sampling_rate": 1.0,
        "epsilon": 20.0,
        "seed": 5,
        "calibration": "accounted",
        "accountant": "pld",
        "model": "softmax",
        "training": "paper",
    }
    return Experiment(replace(topology, mobility=mobility), "digits", **{**defaults, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return experiment(Mobility(TRACE)).run(tmp_path_factory.mktemp("whole") / "run")


def ledger(run):
    return [json.loads(line) for line in (run / "privacy.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "mobility", [Mobility(), Mobility([(2, "e0/1", "e0"), (4, "e1/2", "e1")])], ids=["stay", "trace"]
)
def test_devices_that_stay_have_the_bits_of_a_network_that_stands_still(tmp_path, mobility):
    still, moving = experiment().run(tmp_path / "still"), experiment(mobility).run(tmp_path / "moving")
    for name in ("model.pt", "devices.parquet"):
        assert (still.directory / name).read_bytes() == (moving.directory / name).read_bytes(), name
    rows = [{key: value for key, value in row.items() if key != "moves"} for row in ledger(moving.directory)]
    assert rows == ledger(still.directory)
    columns = ["wall_s", "epsilon_claimed"]  # no formula counts what devices release that may move
    assert moving.metrics.drop(columns=columns).equals(still.metrics.drop(columns=columns))
    assert moving.summary["privacy"]["worst"]["public"]["pld"] == still.summary["privacy"]["worst"]["public"]["pld"]


def where(name, interval):
    """From the trace alone."""
    at = name.split("/")[0]
    for begins, device, edge, *_ in sorted(TRACE, key=lambda line: line[0]):
        if device == name and begins <= interval:
            at = edge
    return at


def test_a_device_has_one_account_of_all_its_edge_servers(whole):
    """From the rows of the ledger that are a device's by the trace: Gaussian releases of mu compose to the root of the
    sum of mu^2, whose epsilon is known exactly. No row is left over."""
    names = [f"e{edge}/{row}" for edge in range(3) for row in (1, 2)]
    found, counts, places = defaultdict(float), defaultdict(int), defaultdict(float)
    for row in ledger(whole.directory):
        if "observer" not in row:
            continue
        there = [name for name in names if where(name, row["interval"]) == row["edge"]]
        own = [f"{row['edge']}/{number}" for number in (1, 2)]
        for part in rows_in(row["devices"]):
            for number in range(part.start, part.stop):
                visitors = [name for name in there if name not in own]
                device = own[number] if number < 2 else None
                if device is None:  # rows of visits follow in the order of the trace
                    order = [line[1] for line in sorted(TRACE, key=lambda line: line[0]) if line[2] == row["edge"]]
                    order = [name for name in dict.fromkeys(order) if name not in own]
                    device = order[number - 2]
                    assert device in visitors
                assert device in there
                size = (row["sensitivity"] / row["noise_std"]) ** 2
                found[device, row["observer"]] += size
                places[device, row["observer"], row["edge"]] += size
                counts[device, row["observer"]] += 1
    there = {name: sum(where(name, interval) is not None for interval in range(1, INTERVALS + 1)) for name in names}
    for name in names:
        assert counts[name, "public"] == 2 * there[name]  # two aggregations an interval
        assert counts[name, "edge"] == (0 if name == "e0/2" else 2 * there[name])
    edges = ("e0", "e1", "e2")
    for name in names:  # each edge server that has rows of its own, with the public's of the others
        singles = [
            places[name, "edge", at] + sum(places[name, "public", other] for other in edges if other != at)
            for at in edges
            if places[name, "edge", at]
        ]
        found |= {(name, "single-edge"): max(singles)} if singles else {}
    privacy = whole.summary["privacy"]
    assert list(privacy["devices"]) == names
    for observer in ("edge", "single-edge", "public", "cloud", "peer"):
        worst = max(epsilon_of_gaussian(mu**0.5) for (_, seen), mu in found.items() if seen == observer)
        assert privacy["worst"][observer]["pld"] == pytest.approx(worst, rel=1e-3)
        assert worst <= 20 * (1 + 1e-3)
    for name in names:
        for observer, numbers in privacy["devices"][name].items():
            if numbers["pld"] is not None:
                assert numbers["pld"] == pytest.approx(epsilon_of_gaussian(found[name, observer] ** 0.5), rel=1e-3)


def test_the_account_of_the_run_directory_is_that_of_the_run_and_a_ledger_alone_is_refused(whole):
    after = RunPrivacy(whole.directory).statement(("rdp", "pld"))
    assert after["devices"] == whole.summary["privacy"]["devices"]
    with pytest.raises(UserError, match="expected the run directory"):
        RunPrivacy(whole.directory / "privacy.jsonl", delta=1e-5)
    assert not check(whole.directory).problems
    assert whole.summary["devices"] == 6
    assert any(note.startswith("mobility: ") for note in whole.summary["privacy"]["notes"])


def test_a_topology_without_its_mobility_does_not_give_devices_several_accounts(whole, tmp_path):
    """Rows of the ledger say that devices move, so that the rows of a visit are never taken for another device's."""
    run = shutil.copytree(whole.directory, tmp_path / "run")
    lines = (run / "topology.yaml").read_text().splitlines(keepends=True)
    shutil.rmtree(run / "checksums")
    (run / "topology.yaml").write_text("".join(line for line in lines if not line.startswith("mobility:")))
    with pytest.raises(UserError):
        RunPrivacy(run)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, whole):
    def stop(reached, number):
        if (reached, number) == ("ran", 4):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorders, "listener", stop)
        with contextlib.suppress(KeyboardInterrupt):
            start_run(experiment(Mobility(TRACE), runtime={"checkpoint_every": 2}).prepare(), tmp_path / "run")
    resume_run(Experiment.of_run(tmp_path / "run").prepare, tmp_path / "run")
    for name in ("privacy.jsonl", "model.pt", "devices.parquet"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.directory / name).read_bytes(), name


def test_a_budget_is_about_all_edge_servers_of_a_device_together(tmp_path):
    """A device that moves to another edge server in the middle spends what it would spend at one."""
    untrusted = Topology("two", tuple(placed(f"e{at}", False, [20.0] * 2, [9.0] * 2) for at in range(2)))
    ended = {}
    for name, mobility in (("still", None), ("moving", Mobility([(3, "e0/1", "e1"), (3, "e1/1", "e0")]))):
        run = experiment(mobility, untrusted, method="hfl-dp", budget={"edge": 12.0}).run(tmp_path / name)
        assert run.summary["state"] == "budget spent"
        assert run.summary["privacy"]["worst"]["edge"]["rdp"] <= 12.0
        ended[name] = run.summary["intervals"] if "intervals" in run.summary else len(run.metrics)
    assert ended["still"] == ended["moving"]


def test_a_budget_is_about_the_first_interval_that_releases_anything():
    devices = [subnet.device_name(row) for subnet in STILL.subnets for row in range(subnet.size)]
    away = [(1, name, None) for name in devices]
    back = [(2, subnet.device_name(row), subnet.name) for subnet in STILL.subnets for row in range(subnet.size)]
    moving = experiment(Mobility(away + back), budget={"cloud": 0.1})
    with pytest.raises(UserError, match=r"budget\.cloud: the first interval is epsilon"):
        moving.run()


def test_three_epochs_at_three_edge_servers_compose_to_the_account_of_three_runs():
    """Each of epsilon 2: together 3.722 (the noise of a release is that of one run of an epoch's length)."""
    untrusted = Topology("three", tuple(placed(f"e{at}", False, [20.0] * 2, [9.0] * 2) for at in range(3)))
    moves = [(4, "e0/1", "e1"), (7, "e0/1", "e2"), (4, "e1/1", "e2"), (7, "e1/1", "e0")]
    ratios = []
    for intervals, epsilon, mobility in ((3, 2.0, None), (9, 3.722, Mobility(moves))):
        setup = experiment(mobility, untrusted, method="hfl-dp", intervals=intervals, epsilon=epsilon).prepare()
        cloud = setup.cloud(None)
        rows = [row for row in cloud.releases(cloud.plan(0)) if row.observer == "edge"]
        ratios.append({round(row.noise_std / row.sensitivity, 6) for row in rows})
    (one,), (three,) = ratios
    assert three == pytest.approx(one, rel=1e-3)


def test_a_single_edge_server_holds_its_epoch_and_what_everybody_receives_of_the_others():
    """Three epochs of ten intervals at three edge servers: each alone is epsilon 2 for the server that it is at, all
    together 3.722. By hand, from the rows of the ledger that are the device's by name."""
    untrusted = Topology("three", tuple(placed(f"e{at}", False, [20.0] * 2, [9.0] * 2) for at in range(3)))
    moves = [(11, "e0/1", "e1"), (21, "e0/1", "e2"), (11, "e1/1", "e2"), (21, "e1/1", "e0")]
    setup = experiment(Mobility(moves), untrusted, method="hfl-dp", intervals=30, epsilon=3.722).prepare()
    accounts, cloud, mu = setup.empty_accounts(), setup.cloud(None), defaultdict(float)
    numbers = {each.name: each.device_names().index("e0/1") for each in setup.topology.subnets}
    for interval in range(30):
        plan = cloud.plan(interval)
        for row in (rows := list(cloud.releases(plan))):
            if (row.edge, numbers[row.edge]) in devices_of(row):
                mu[row.observer, row.edge] += (row.sensitivity / row.noise_std) ** 2
        accounts.add(rows)
        cloud.skip(plan)
    edges = ("e0", "e1", "e2")
    for edge in edges:
        assert epsilon_of_gaussian(mu["edge", edge] ** 0.5) == pytest.approx(2, rel=2e-3)
    own = {e: mu["edge", e] + sum(mu["public", other] for other in edges if other != e) for e in edges}
    found = statement(accounts.held(), setup.drawn.device_names(), 1e-5, ("rdp", "pld"))
    assert found["devices"]["e0/1"]["edge"]["pld"] == pytest.approx(3.722, rel=2e-3)
    worst = epsilon_of_gaussian(max(own.values()) ** 0.5)
    assert 2 < worst < 3.6
    by_hand = [each for each in accounts.classes("single-edge") if 0 in each.devices]
    assert max(ACCOUNTANTS["pld"].epsilon(each.composition, 1e-5) for each in by_hand) == pytest.approx(worst, rel=1e-3)
    assert found["worst"]["single-edge"]["pld"] >= worst * (1 - 1e-3)
    assert found["worst"]["single-edge"]["edge"] in edges


def test_a_device_that_stays_is_the_same_to_one_edge_server_and_to_all(tmp_path):
    run = experiment(Mobility()).run(tmp_path / "run")
    worst = run.summary["privacy"]["worst"]
    assert worst["single-edge"]["pld"] == worst["edge"]["pld"] == run.privacy.epsilon("single-edge", "pld")
    assert worst["single-edge"]["verdict"] == worst["edge"]["verdict"] == "met"


def test_messages_about_devices_that_move_are_paid_for():
    """Two devices leave e0 before the third interval, one comes back after having been nowhere, one only walks away
    from its edge server: two messages of a model's size from e0, then one from e1."""
    lines = [(3, "e0/1", "e1"), (3, "e0/2", "e2"), (2, "e1/1", "e1", 70.0), (4, "e1/2", None), (5, "e1/2", "e2")]
    wire, costs = Wire(rate_bps=1e6, power_dbm=30.0), []
    for handover in (None, wire):
        setup = experiment(Mobility(lines, handover=handover), method="hfl", calibration="paper").prepare()
        cloud, found = setup.cloud(None), []
        for interval in range(5):
            plan = cloud.plan(interval)
            found.append(setup.bill.columns(plan))
            cloud.skip(plan)
        costs.append(found)
    bits = setup.costs.message_bits
    for (plain, paid), (messages, one_after_another) in zip(
        zip(*costs, strict=True), [(0, 0), (0, 0), (2, 2), (0, 0), (1, 1)], strict=True
    ):
        more = {key: paid[key] - plain[key] for key in plain}
        seconds = bits / 1e6
        assert more["energy_j"] == pytest.approx(messages * seconds, abs=1e-9)  # 30 dBm are a watt
        assert more["delay_s"] == pytest.approx(messages * seconds, abs=1e-9)
        assert more["clock_s"] == pytest.approx(one_after_another * seconds, abs=1e-9)
        assert more["bytes"] == pytest.approx(messages * bits / 8)


def test_a_visit_costs_what_a_device_at_its_distance_costs():
    """Energy and times of an interval are those of a network that has the devices where they are."""
    radio = Radio(access="ofdma", fading="none")
    here, far = placed("e0", True, [20.0, 60.0], [9.0] * 2), placed("e0", True, [60.0], [9.0])
    other, met = placed("e1", False, [30.0], [9.0]), placed("e1", False, [30.0, 80.0], [9.0] * 2)
    moving = Topology("moving", (here, other), radio, mobility=Mobility([(2, "e0/1", "e1", 80.0)]))
    costs = []
    for topology in (moving, Topology("moved", (far, met), radio), Topology("still", (here, other), radio)):
        setup = experiment(topology.mobility, topology, method="hfl", calibration="paper").prepare()
        cloud = setup.cloud(None)
        costs.append([setup.bill.columns(cloud.plan(interval)) for interval in range(2)])
    moved, expected, still = costs
    assert moved[0] == pytest.approx(still[0])
    assert moved[1] == pytest.approx(expected[1])
    assert moved[1]["energy_j"] > still[1]["energy_j"]


def test_the_energy_of_a_device_is_that_of_all_its_rows():
    """Nothing that a device spends elsewhere is left out of its line, nor counted twice."""
    setup = experiment(Mobility(TRACE)).prepare()
    rows = setup.topology.devices
    columns = device_scores(setup, setup.initial, np.ones(rows))
    assert columns["device"] == setup.drawn.device_names()
    assert sum(columns["energy_j"]) == rows
    assert dict(zip(columns["device"], columns["energy_j"], strict=True))["e0/1"] == 3


DEEP = Topology(
    "deep", (placed("e0", False, [9.0] * 2, [9.0] * 2, parent="high"),), aggregators=(Aggregator("high", False),)
)
SECURE = replace(STILL, subnets=tuple(replace(each, trust="secure-sum") for each in STILL.subnets))
BUFFERED = {"extends": "h2fdp", "schedule": {"name": "buffered"}}
REFUSED = [
    ({"participation": 0.5}, r"training\.participation: .*expected 1"),
    ({"calibration": "paper"}, r"privacy\.calibration: .*expected accounted, found paper"),
    ({"method": "scaffold", "calibration": "paper"}, r"method\.objective: .*without a memory"),
    ({"method": BUFFERED}, r"method\.schedule: .*expected fixed, found buffered"),
    ({"topology": SECURE}, r"topology: .*expected no secure sums"),
    ({"topology": DEEP}, r"topology: .*expected one tier of edge servers, found 2 tiers"),
    (
        {"method": {"extends": "h2fdp", "privacy": "dp-sgd"}, "clip_scope": "record"},
        r"method\.privacy: .*expected hierarchical or local",
    ),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=[words[:30] for _, words in REFUSED])
def test_what_does_not_move_is_refused(settings, words):
    topology = settings.get("topology", STILL)
    mobility = Mobility([(2, topology.subnets[0].device_name(0), None)])
    with pytest.raises(UserError) as caught:
        experiment(mobility, topology, **{key: value for key, value in settings.items() if key != "topology"}).prepare()
    assert re.search(words, str(caught.value)), caught.value


def test_audits_are_refused():
    with pytest.raises(UserError, match="expected no mobility"):
        audits(experiment(Mobility(TRACE)).prepare(), ("public",), canaries=10)


AWAY = [(1, name, None) for name in STILL.device_names()]


@pytest.mark.parametrize("method", ["h2fdp", "hfl"])
def test_ways_on_which_all_devices_are_away_are_refused_by_name(method):
    settings = {} if method == "h2fdp" else {"calibration": None, "method": method}
    with pytest.raises(UserError, match="mobility has every device nowhere in all 6 intervals"):
        experiment(Mobility(AWAY), **settings).prepare()
    experiment(Mobility([*AWAY[1:], (6, "e0/1", "e1")]), **settings).prepare()


def test_a_trace_that_moves_nobody_is_said():
    late = notices(experiment(Mobility([(7, "e0/1", "e1")])).prepare())
    assert late == [
        "mobility has no effect: no device moves in the 6 intervals of this run; its trace begins with interval 7"
    ]
    assert notices(experiment(Mobility()).prepare()) == [late[0].partition(";")[0]]
    assert notices(experiment(Mobility([(6, "e0/1", "e1")])).prepare()) == []
