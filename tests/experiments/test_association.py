"""Devices that join edge servers by distance, cost or data: by hand, against all associations, in whole runs."""

import re
import shlex
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import entropy
from typer.testing import CliRunner

from experiments.parts import association
from experiments.parts.association import joined, mean_divergence, transferred
from h2fdp import Experiment, Topology, UserError
from h2fdp.cli.main import app
from h2fdp.data.federated import FederatedData
from h2fdp.network import Adversaries, Link, Radio
from h2fdp.network.adversaries import SignFlip
from tests.networks import placed

SERVERS = {"e0": [0.0, 0.0], "e1": [100.0, 0.0], "e2": [50.0, 80.0]}
DRAWN = np.random.default_rng(7).uniform(0, 1, (8, 2)) * [100, 80]


class Later(Link):
    """A link of one's own."""

    def seconds(self, bits, at=0.0):
        return bits / 1e6 + at % 1.0

    def joules(self, bits):
        return 0.0


def network(fading="none"):
    """Eight devices, whose machines differ."""
    subnets = [placed(f"e{at}", at == 0, [50.0] * size, [9.0] * size) for at, size in enumerate((3, 3, 2))]
    tree = Topology("apart", tuple(subnets), Radio(access="ofdma", fading=fading, bandwidth_hz=2e5))
    speeds = np.random.default_rng(3).uniform(0.5, 2, 8)
    return tree.with_devices(cycles_per_record=2e5, cpu_ghz=speeds)


def places(at=DRAWN, servers=SERVERS):
    return servers | dict(zip(network().device_names(), np.asarray(at, dtype=float).tolist(), strict=True))


EXPERIMENT = {
    "method": "hfl",
    "intervals": 2,
    "local_steps": 4,
    "aggregate_every": 2,
    "batch_size": 20,
    "seed": 5,
    "model": "softmax",
    "training": "paper",
    "data": {"name": "digits", "partition": {"labels_per_device": 2}},
}
PRIVATE = {"method": "h2fdp", "epsilon": 20.0, "calibration": "accounted", "accountant": "pld", "noise_key": "seed"}


def experiment(topology=None, **settings):
    return Experiment(network() if topology is None else topology, **{**EXPERIMENT, **settings})


def after(folder, by, at=None, **settings):
    """The experiment in which devices have joined."""
    asked = {name: settings.pop(name) for name in ("within_m", "public_labels") if name in settings}
    changes = joined(experiment(**settings), places() if at is None else at, by, folder / by, **asked)
    return experiment(**settings | changes)


def test_every_device_joins_the_nearest_edge_server(tmp_path):
    """By hand: the root of 1,800, 3 and 30 from the first; 30, 4 and 0, which counts as 1 m; 10 and the root of 200."""
    at = [[30, 30], [70, 0], [0, 3], [100, 4], [100, 0], [0, 30], [40, 80], [60, 70]]
    there = after(tmp_path, "nearest", places(at)).topology
    assert [subnet.device_names() for subnet in there.subnets] == [
        ["e0/1", "e0/3", "e1/3"],
        ["e0/2", "e1/1", "e1/2"],
        ["e2/1", "e2/2"],
    ]
    far = np.concatenate([subnet.column("distance_m") for subnet in there.subnets])
    assert far == pytest.approx([np.hypot(30, 30), 3, 30, 30, 4, 1, 10, np.hypot(10, 10)])
    assert [subnet.trust for subnet in there.subnets] == [subnet.trust for subnet in network().subnets]
    before = dict(zip(network().device_names(), network().table.columns["cpu_ghz"], strict=True))
    assert dict(zip(there.device_names(), there.table.columns["cpu_ghz"], strict=True)) == pytest.approx(before)


def test_an_edge_server_that_no_device_joins_leaves_the_network(tmp_path):
    there = after(tmp_path, "nearest", places(servers={**SERVERS, "e1": [1e4, 0.0]})).topology
    assert [subnet.name for subnet in there.subnets] == ["e0", "e2"]


def test_an_association_that_is_the_files_has_its_ledger_its_costs_and_up_to_rounding_its_model(tmp_path):
    far = [10.0, 20.0, 30.0, 40.0, 10.0, 20.0, 30.0, 40.0]
    servers = {"e0": [0.0, 0.0], "e1": [1e4, 0.0], "e2": [0.0, 1e4]}
    owners = np.repeat([0, 1, 2], [3, 3, 2])
    at = np.array(list(servers.values()))[owners] + np.stack([far, np.zeros(8)], axis=1)
    tree, settings = network().with_devices(distance_m=far), {**EXPERIMENT, **PRIVATE}
    still = Experiment(tree, **settings).run(tmp_path / "still")
    changes = joined(Experiment(tree, **settings), places(at, servers), "nearest", tmp_path / "there")
    there = Experiment(**settings | changes).run(tmp_path / "joined")
    ledgers = [(each.directory / "privacy.jsonl").read_bytes() for each in (still, there)]
    assert ledgers[0] == ledgers[1]
    (weights,), (others,) = (torch.load(each.directory / "model.pt").values() for each in (still, there))
    torch.testing.assert_close(weights, others, rtol=0, atol=1e-6)  # inputs are stored as the model sees them
    costs = ["energy_j", "clock_s", "delay_s"]
    assert there.metrics[costs].equals(still.metrics[costs])


@pytest.mark.parametrize("by", ["nearest", "cost", "data"])
def test_devices_take_their_records_along(tmp_path, by):
    still, there = experiment().prepare(), after(tmp_path, by).prepare()
    assert there.topology.device_names() != still.topology.device_names()

    def held(setup):
        assert isinstance(setup.data, FederatedData)
        records = (setup.data.device(number) for number in range(8))
        scaling = setup.data.scaling
        inputs = ((each.x * scaling.scale + scaling.shift, each.y) for each in records)
        return dict(zip(setup.drawn.device_names(), inputs, strict=True))

    before = held(still)
    for name, (x, y) in held(there).items():
        assert np.array_equal(y, before[name][1])
        np.testing.assert_allclose(x, before[name][0], rtol=1e-5)


def moves(home, reached):
    for device, server in zip(*np.nonzero(reached), strict=True):
        if server != home[device] and np.count_nonzero(home == home[device]) > 1:
            yield np.where(np.arange(len(home)) == device, server, home)


EVERY = [np.array(home) for home in product(range(3), repeat=8) if len(set(home)) == 3]


@pytest.mark.parametrize("seed", range(8))
def test_no_transfer_improves_on_transfers_and_no_association_is_much_better(seed):
    """Eight devices, three edge servers: all 5,796 associations in which each edge server has a device. The value is
    the mean divergence of their labels, by SciPy."""
    rng = np.random.default_rng(seed)
    labels = rng.multinomial(30, rng.dirichlet([0.3] * 4, 8).mean(axis=0), 8) + rng.integers(0, 30, (8, 4))
    value, overall = mean_divergence(labels), labels.sum(axis=0)

    def by_scipy(home):
        return np.mean([entropy(labels[home == server].sum(axis=0), overall) for server in np.unique(home)])

    everywhere = np.full((8, 3), True)
    begun = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    found = transferred(begun, everywhere, value)
    assert value(found) == pytest.approx(by_scipy(found), rel=1e-9)
    assert all(by_scipy(other) >= by_scipy(found) * (1 - 1e-9) for other in moves(found, everywhere))
    assert len(EVERY) == 5796
    least = min(map(value, EVERY))
    assert least <= value(found) <= 0.5 * (value(begun) + least), "half of what there is to gain, at least"


def test_transfers_find_the_best_where_devices_do_not_depend_on_each_other():
    rng = np.random.default_rng(3)
    costs, reached = rng.uniform(1, 2, (8, 3)), rng.uniform(size=(8, 3)) < 0.8
    reached[:, 0] = True
    found = transferred(np.zeros(8, int), reached, lambda home: float(costs[np.arange(8), home].sum()))
    assert found.tolist() == np.argmin(np.where(reached, costs, 9), axis=1).tolist()


def home_of(setup):
    """(8,) the edge server of each device, in the order of the first network."""
    below = {name: number for number, each in enumerate(setup.drawn.subnets) for name in each.device_names()}
    names = [list(SERVERS).index(each.name) for each in setup.drawn.subnets]
    return np.array([names[below[name]] for name in network().device_names()])


@pytest.mark.parametrize("control", [{}, {"alpha2": 0.0}, {"alpha1": 0.0, "least_ghz": 0.2}], ids=str)
def test_by_cost_no_transfer_is_cheaper_as_runs_are_billed(tmp_path, monkeypatch, control):
    """What is weighed is the bill of the first interval of a run in that network; and of all 5,796 associations that
    leave no edge server empty, none is much cheaper."""
    seen, weighing = [], association.cost_of_joining
    monkeypatch.setattr(association, "cost_of_joining", lambda *given: seen.append(weighing(*given)) or seen[-1])
    setup = after(tmp_path, "cost", control=control).prepare()
    (value,), weights = seen, setup.config.control.cost_weights
    home, bill = home_of(setup), setup.bill.columns(setup.first_plan)
    assert value(home) == pytest.approx(weights[0] * bill["energy_j"] + weights[1] * bill["clock_s"], rel=1e-12)
    begun = after(tmp_path, "nearest", control=control).prepare()
    bill = begun.bill.columns(begun.first_plan)
    nearest = weights[0] * bill["energy_j"] + weights[1] * bill["clock_s"]
    assert all(value(other) >= value(home) * (1 - 1e-9) for other in moves(home, np.full((8, 3), True)))
    least = min(map(value, EVERY))
    assert least * (1 - 1e-9) <= value(home) <= nearest
    assert value(home) <= 1.1 * least


def test_by_data_labels_below_edge_servers_are_nearer_to_those_of_all(tmp_path):
    """As near as those of any association that leaves no edge server empty."""
    counts = experiment().holdings().to_numpy()

    def divergence(home):
        below = np.array([counts[home == server].sum(axis=0) for server in np.unique(home)])
        return np.mean([entropy(each, counts.sum(axis=0)) for each in below])

    found, begun = (divergence(home_of(after(tmp_path, by).prepare())) for by in ("data", "nearest"))
    assert found < begun
    least = min(map(mean_divergence(counts), EVERY))
    assert least * (1 - 1e-9) <= found <= 1.1 * least


STAR = {"method": "fedavg"}


@pytest.mark.parametrize(
    ("by", "settings", "found"),
    [
        ("data", PRIVATE, "--by: .*expected --public-labels"),
        ("cost", STAR, "--by: a star"),
        ("cost", {**PRIVATE, "adjacency": "add-remove", "sampling": "poisson"}, r"privacy\.adjacency: .*how many rec"),
        ("cost", {"method": "h2fdp", "training": "auto"}, "aggregate_every is chosen after"),
        ("nearest", {"at": places() | {"e3": [0.0, 0.0]}}, "places: the network has no e3"),
        ("nearest", {"at": SERVERS}, "expected a place of each edge server and device, found none of e0/1"),
        ("nearest", {"within_m": 9.0}, r"--within: e\d/\d is [\d.]+ m from the nearest edge server; .*found 9"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path, monkeypatch, by, settings, found):
    if settings.get("training") == "auto":
        for name in ("intervals", "local_steps", "aggregate_every", "batch_size", "model"):
            monkeypatch.delitem(EXPERIMENT, name)
    with pytest.raises(UserError) as caught:
        after(tmp_path, by, **settings)
    assert re.search(found, str(caught.value)), caught.value


def test_by_cost_links_are_wires(tmp_path):
    first, *others = network().subnets
    tree = replace(network(), subnets=(replace(first, link=Later()), *others))
    with pytest.raises(UserError, match="--by: e0 has a link that is no plain wire"):
        joined(experiment(tree), places(), "cost", tmp_path)


def test_liars_are_named_where_the_file_has_them(tmp_path):
    tree = replace(network(), adversaries=Adversaries(devices=("e0/1",), attack=SignFlip()))
    with pytest.raises(UserError, match="expected neither mobility nor adversaries"):
        joined(experiment(tree), places(), "nearest", tmp_path)


def test_the_program_writes_what_the_command_runs(tmp_path, monkeypatch, capsys):
    file, table = tmp_path / "run.yaml", tmp_path / "places.csv"
    file.write_text(
        "data: digits\ntopology: {edges: [{name: a, devices: {count: 2}}, {name: b, devices: {count: 2}}]}\n"
    )
    at = {"a": (0, 0), "b": (90, 0), "a/1": (80, 0), "a/2": (1, 2), "b/1": (0, 9), "b/2": (70, 3)}
    pd.DataFrame([(name, *xy) for name, xy in at.items()], columns=["name", "x_m", "y_m"]).to_csv(table, index=False)
    words = ["association", str(file), str(table), "--by", "data", "--out", str(tmp_path / "out"), "--public-labels"]
    monkeypatch.setattr("sys.argv", words)
    association.main()
    note, command = capsys.readouterr().out.splitlines()
    assert "no epsilon covers" in note
    assert command.startswith(f"run it: h2fdp run {file} --set=topology=")
    told = CliRunner().invoke(app, [*shlex.split(command)[3:], "--dry-run"])
    assert told.exit_code == 0, told.output
    table.write_text("name,x,y\n")
    with pytest.raises(UserError, match="found no x_m"):
        association.main()
