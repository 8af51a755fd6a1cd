"""Links of whole experiments: each key of a link, in each form of a topology, is effective or refused; a satellite."""

import importlib
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import yaml

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.network import Wire, imported, read
from h2fdp.run.forecast import planned_work
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SATELLITE = re.search(r"```python\n(from h2fdp.network import Link\n.*?)```", PAGE.read_text(), re.S)[1]
OWN = {"name": "my_link:Satellite", "rate_mbps": 0.5, "period_s": 3.0, "visible_s": 0.06}
PASSES = [[0.0, 0.02], [3.0, 3.06], [6.0, 6.05], [6.05, 6.1], [9.0, 9.2], [12.0, 90.0]]
WINDOWS = {"rate_mbps": 0.5, "delay_s": 0.01, "windows": "passes.csv"}
BUFFERS, IN_A_STAR = ({"name": "buffered", "buffer": each} for each in ({"edge": 1, "cloud": 1}, {"cloud": 1}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_link.py").write_text(SATELLITE)
    (tmp_path / "passes.csv").write_text("".join(f"{start},{end}\n" for start, end in [("start_s", "end_s"), *PASSES]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


SETTINGS = {"method": "hfl", "model": "softmax", "training": "paper", "intervals": 6, "local_steps": 2}
SETTINGS |= {"aggregate_every": 1, "batch_size": 4, "seed": 3}


def prepared(topology, **settings):
    return Experiment(topology, "digits", **(SETTINGS | settings)).prepare()


def costs(topology, **settings):
    return planned_work(prepared(topology, **settings)).costs


def tree(link, deep=False):
    """A topology in the words of YAML; in a deep one the link is above an aggregator."""
    lowest = [{"name": name, "trusted": True, "devices": {"count": 2}} for name in "ab"]
    if deep:
        return {"name": "net", "edges": [{"name": "top", "trusted": True, "edges": lowest, "link": link}]}
    return {"name": "net", "edges": [lowest[0] | {"link": link}, lowest[1]]}


def graph(link):
    """The same as a graph."""
    made = nx.Graph()
    made.add_node("c", kind="cloud")
    for name, values in (("a", link), ("b", {})):
        made.add_node(name, kind="edge", trusted=True)
        made.add_edge("c", name, **values)
        for device in (f"{name}/1", f"{name}/2"):
            made.add_node(device, kind="device")
            made.add_edge(name, device)
    return made


def on_a_wire(link):
    """As attributes of a link: what it is as `link`, the rest as they are."""
    return {"link" if key == "name" else key: value for key, value in link.items()}


def as_yaml(link, deep=False):
    Path("net.yaml").write_text(yaml.safe_dump(tree(link, deep)))
    return read("net.yaml", 3)


def as_graphml(link):
    nx.write_graphml(graph(on_a_wire(link)), "net.graphml")
    return read("net.graphml", 3)


def as_json(link, nested=False):
    values = {"link": link} if nested else on_a_wire(link)
    Path("net.json").write_text(json.dumps(nx.node_link_data(graph(values), edges="links")))
    return read("net.json", 3)


def as_default(link):
    values = tree(None) | {"cloud": {"link": link}}
    values["edges"][0].pop("link")
    Path("net.yaml").write_text(yaml.safe_dump(values))
    return read("net.yaml", 3)


def as_default_of_a_graph(link):
    made = graph({})
    made.graph |= {f"cloud.link.{key}": value for key, value in link.items()}
    nx.write_graphml(made, "net.graphml")
    return read("net.graphml", 3)


FORMS = {
    "yaml": as_yaml,
    "an upper tier": lambda link: as_yaml(link, deep=True),
    "the default": as_default,
    "graphml": as_graphml,
    "default of a graph": as_default_of_a_graph,
    "json": as_json,
    "nested json": lambda link: as_json(link, nested=True),
    "networkx": lambda link: imported(graph(on_a_wire(link)), 3)[0],
    "gml": lambda link: nx.write_gml(graph(on_a_wire(link)), "net.gml") or read("net.gml", 3),
}
KEYS = {
    "rate_mbps": ({}, {"rate_mbps": 0.01}, ("energy_j", "delay_s", "clock_s")),
    "power_dbm": ({"rate_mbps": 0.1}, {"rate_mbps": 0.1, "power_dbm": 60.0}, ("energy_j",)),
    "delay_s": ({"rate_mbps": 0.1}, {"rate_mbps": 0.1, "delay_s": 0.2}, ("delay_s", "clock_s")),
    "windows": (WINDOWS | {"windows": None}, WINDOWS, ("delay_s", "clock_s")),
    "name": ({}, {"name": "my_link:Satellite"}, ("energy_j", "delay_s", "clock_s")),
    "an option": (OWN, OWN | {"visible_s": 0.5}, ("delay_s", "clock_s")),
    "an option in joules": (OWN, OWN | {"watts": 50.0}, ("energy_j",)),
}


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_a_link_is_effective_in_each_form(folder, form, key, star):
    method = "hfl" if not star else {"extends": "hfl", "topology": "star"}
    before, after, effective = KEYS[key]
    links = [{name: value for name, value in link.items() if value is not None} for link in (before, after)]
    one, other = (costs(FORMS[form](link), method=method) for link in links)
    assert {name for name in ("energy_j", "delay_s", "clock_s") if one[name] != other[name]} == set(effective)
    assert one["bytes"] == other["bytes"]


@pytest.mark.parametrize(
    ("form", "link", "words"),
    [
        (as_yaml, OWN | {"speed": 1}, r"net.yaml:\d+: edges\[0\].link.* the options do not fit my_link:Satellite"),
        (as_yaml, {"name": "my_link:Ship"}, "has no `Ship`"),
        (as_yaml, {"rate_mbps": 5, "watts": 3}, r"net.yaml:\d+: edges\[0\].link.watts: .* means nothing|unknown key"),
        (as_yaml, {"name": "fibre"}, "expected one of wire, or module:Name"),
        (as_yaml, 5, r"edges\[0\].link: expected one of wire, or module:Name, found 5"),
        (
            as_yaml,
            {"windows": 5},
            r"net.yaml:\d+: edges\[0\].link.windows: expected the path of a CSV file, or a list of",
        ),
        (as_yaml, {"windows": []}, "link.windows: expected at least one window, found none"),
        (as_yaml, {"windows": [[0, 1], 5]}, "link.windows: line 2: expected start_s from 1 on, .*; found 5"),
        (as_yaml, {"windows": [[0, 1], [0.5, 2]]}, r"line 2: expected start_s from 1 on, .*; found \[0.5, 2\]"),
        (as_yaml, {"windows": [[3, 1]]}, r"line 1: expected start_s from 0 on, .* and a later end_s; found \[3, 1"),
        (as_yaml, {"windows": "nowhere.csv"}, "link.windows: .*nowhere.csv: cannot be read: No such file"),
        (as_yaml, {"delay_s": -1}, "link.delay_s: expected a finite number of at least 0, found -1"),
        (as_yaml, {"window": "passes.csv"}, "link.window: unknown key; did you mean `windows`"),
        (as_graphml, {"windows": "nowhere.csv"}, 'node "a".link.windows: .*nowhere.csv: cannot be read'),
        (as_graphml, {"delay": 0.1}, 'node "a".link.delay: unknown key; did you mean `delay_s`'),
        (as_graphml, OWN | {"speed": 1}, 'node "a".link.*the options do not fit my_link:Satellite'),
        (as_graphml, {"rate_mps": 5}, 'node "a".link.rate_mps: unknown key; did you mean `rate_mbps`'),
        (as_json, {"name": "fibre"}, 'node "a".link.*expected one of wire, or module:Name'),
        (as_default_of_a_graph, {"rate_mps": 5}, "cloud.link.rate_mps: unknown key; did you mean `rate_mbps`"),
    ],
)
def test_a_wrong_key_of_a_link_is_refused_where_it_stands(folder, form, link, words):
    with pytest.raises(UserError, match=words):
        form(link)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("start,end\n0,1\n", "passes.csv:1: expected the columns start_s, end_s, found start, end"),
        ("start_s,end_s\n", "expected at least one window, found none"),
        ("start_s,end_s\n0,1\n\n0.5,2\n", r"passes.csv:4: expected start_s from 1 on.*; found \[0.5, 2\]"),
        ("start_s,end_s\n0,x\n", r"passes.csv:2: expected start_s from 0 on.*; found \[0, 'x'\]"),
        ("start_s,end_s\n-3,1\n", "passes.csv:2: expected start_s from 0 on"),
        ("start_s,end_s\n0,.inf\n", "passes.csv:2: .*found .0, inf"),
        ("start_s,end_s\n0\n", "passes.csv:2: .*found .0"),
    ],
)
def test_a_wrong_file_of_windows_is_refused_in_a_line_with_its_own_place(folder, lines, words):
    Path("passes.csv").write_text(lines)
    with pytest.raises(UserError, match=rf"net.yaml:\d+: edges\[0\].link.windows: (.*/)?{words}") as caught:
        as_yaml(WINDOWS)
    assert len(caught.value.problems) == 1


def test_windows_of_another_program_have_semicolons_and_decimal_commas(folder, capsys):
    Path("passes.csv").write_text("start_s;end_s\n0;1,5\n2;3\n")
    assert as_yaml(WINDOWS).subnets[0].link.windows == ((0.0, 1.5), (2.0, 3.0))
    assert "separated by semicolons and have decimal commas" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["rate_mbps", "link", "delay_s", "windows"])
@pytest.mark.parametrize("place", ["a", "a/1", "c", "the air"])
def test_a_key_of_a_link_that_stands_elsewhere_in_a_graph_is_refused(folder, place, key):
    made = graph({})
    values = made.edges["a", "a/1"] if place == "the air" else made.nodes[place]
    values[key] = 5.0
    nx.write_graphml(made, "net.graphml")
    node = "a/1" if place == "the air" else place
    with pytest.raises(UserError, match=f'node "{node}".{key}: expected this on the link from an edge server'):
        read("net.graphml", 3)


def test_a_default_rate_of_all_links_of_a_graph_is_none_of_devices(folder):
    made = graph({})
    nx.set_edge_attributes(made, 5.0, "rate_mbps")
    nx.write_graphml(made, "net.graphml")
    assert [subnet.link.rate_bps for subnet in read("net.graphml", 3).subnets] == [5e6, 5e6]


def test_what_a_graph_without_roles_cannot_say_of_its_links_is_named(folder):
    made = nx.path_graph(["core", "north"])
    nx.set_edge_attributes(made, {("core", "north"): {"power_dbm": 3.0, "link": "my_link:Satellite", "rate_mbps": 5.0}})
    network, said = imported(made, 3)
    assert said.endswith("not used: link, power_dbm")
    assert network.subnets[-1].link.rate_bps == 5e6


def on_a_clock(radio_s, satellite, wire_s, bits):
    """Seconds after each interval: the radio, then both messages up, then both down."""
    ends, at = [], 0.0
    for seconds in radio_s:
        at += seconds
        for _ in range(2):
            at += max(satellite.seconds(bits, at), wire_s)
        ends.append(at)
    return ends


def satellite_of(link):
    options = {key: value for key, value in link.items() if key != "name"}
    if link is OWN:
        return importlib.import_module("my_link").Satellite(**options)
    return Wire(0.5e6, 38.0, 0.01, tuple(map(tuple, PASSES)))


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("link", [OWN, WINDOWS], ids=["own", "windows"])
def test_a_run_waits_for_its_satellite_as_its_dry_run_says(folder, star, link):
    settings = {"method": {"extends": "hfl", "topology": "star"}} if star else {}
    free = prepared(as_yaml({"rate_mbps": "unlimited"}), **settings)
    setup = prepared(as_yaml(link), **settings)
    wire_s = setup.costs.message_bits / 100e6
    plan, alone = free.first_plan, []
    for interval in range(6):
        clock = free.bill.columns(replace(plan, interval=interval))["clock_s"]
        alone.append(clock - 2 * wire_s)  # of the other edge server's wire
    expected = on_a_clock(alone, satellite_of(link), wire_s, setup.costs.message_bits)
    dry = planned_work(setup).costs
    run = Experiment("net.yaml", "digits", **SETTINGS | settings).run(folder / "run")
    assert run.metrics["clock_s"].tolist() == pytest.approx(expected, rel=1e-9)
    assert expected[-1] > 12
    for name in ("energy_j", "delay_s", "clock_s", "bytes"):
        assert run.summary[name] == dry[name]


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("link", [OWN | {"period_s": 0.1}, WINDOWS], ids=["own", "windows"])
def test_a_satellite_under_buffers_is_asked_by_the_clock_in_run_and_dry_run(folder, star, link):
    method = {"extends": "hfl", "schedule": BUFFERS}
    if star:
        method |= {"schedule": IN_A_STAR, "topology": "star"}
    asked = {"method": method, "intervals": 40}
    wires, setup = (prepared(as_yaml(link), **asked) for link in ({}, link))
    dry = planned_work(setup).costs
    run = Experiment(setup.drawn, "digits", **SETTINGS | asked).run(folder / "run")
    for name in ("energy_j", "delay_s", "clock_s", "bytes"):
        assert run.summary[name] == pytest.approx(dry[name], rel=1e-12)
    assert dry["clock_s"] != planned_work(wires).costs["clock_s"]
    rows = run.metrics["clock_s"].tolist()
    assert rows == sorted(rows)


def test_a_satellite_below_which_devices_come_and_go(folder):
    Path("net.yaml").write_text(yaml.safe_dump(tree(OWN) | {"mobility": {"trace": [[3, "a/1", "b"], [5, "a/1", "a"]]}}))
    moving = costs(read("net.yaml", 3))
    still = costs(as_yaml(OWN))
    assert moving["clock_s"] > 4 * OWN["period_s"]
    assert moving["bytes"] == still["bytes"]
    assert moving["delay_s"] < still["delay_s"]  # two intervals with one device behind the satellite, and not two


REFUSED = {
    "control.enabled": ({"method": "h2fdp", "control": {"enabled": True}, "epsilon": 100.0}, {}),
    "sums at the cloud": ({"method": "h2fdp", "epsilon": 100.0}, {"cloud": {"trust": "secure-sum"}}),
}


@pytest.mark.parametrize("settings", REFUSED, ids=list(REFUSED))
def test_what_counts_messages_over_wires_is_refused(folder, settings):
    asked, network = REFUSED[settings]
    Path("net.yaml").write_text(yaml.safe_dump(tree(OWN) | network))
    with pytest.raises(
        UserError, match=r"a has a link that is no plain wire, .*expected rate_mbps and power_dbm alone"
    ):
        prepared(read("net.yaml", 3), **asked)


def test_relays_of_one_sum_over_the_whole_network_have_wires(folder):
    values = tree(OWN)
    for edge in values["edges"]:
        edge.pop("trusted")
    Path("net.yaml").write_text(yaml.safe_dump(values | {"trust": {"relay": 1}}))
    whole = {"method": "h2fdp", "epsilon": 100.0, "aggregate_every": 2}
    with pytest.raises(UserError, match="or no secure sums above edge servers, found that of cloud"):
        prepared(read("net.yaml", 3), **whole)


def test_links_that_close_too_early_are_told_before_anything_is_released(folder):
    """By the dry run and by the run, which leaves no directory; with a target it may end before."""
    Path("passes.csv").write_text("start_s,end_s\n0,0.02\n3,3.2\n")
    as_yaml(WINDOWS)
    experiment = Experiment("net.yaml", "digits", **SETTINGS)
    words = "bits that is ready at 3.2.* s has not ended when the last window does, at 3.2 s; expected later windows"
    with pytest.raises(UserError, match=words):
        planned_work(experiment.prepare())
    with pytest.raises(UserError, match=words):
        experiment.run(folder / "run")
    assert not (folder / "run").exists()
    until = Experiment("net.yaml", "digits", **SETTINGS, until={"accuracy": 0.01}).run(folder / "until")
    assert until.summary["state"] == "accuracy reached"


def test_a_run_with_windows_keeps_them_and_goes_on_without_their_file(folder):
    """They stand in the run's own topology, as a trace does: a file that is changed or gone changes nothing."""
    as_yaml(WINDOWS)
    whole = Experiment("net.yaml", "digits", **SETTINGS).run(folder / "whole")
    seen = []
    halted = RunCallbacks(on_interval=seen.append, stop=lambda: len(seen) == 2)
    setup = Experiment("net.yaml", "digits", **SETTINGS).prepare()
    Path("passes.csv").unlink()
    start_run(setup, folder / "run", halted)
    assert (
        f"windows: {json.dumps(PASSES)}".replace(".0,", ",").replace(".0]", "]")
        in (folder / "run/topology.yaml").read_text()
    )
    resumed = h2fdp.resume(folder / "run")
    assert resumed.metrics["clock_s"].tolist() == whole.metrics["clock_s"].tolist()
    assert read("run/topology.yaml", 3) == setup.drawn


@pytest.mark.parametrize("link", [OWN, WINDOWS], ids=["own", "windows"])
def test_a_network_with_links_that_ask_for_the_moment_is_written_and_read_again(folder, link):
    network = as_yaml(link)
    h2fdp.network.write(network, "again.yaml")
    again = read("again.yaml", 3)
    assert again == network
    assert len(again.own_parts) == (link is OWN)
    costs(again)  # makes the link
    sent = pickle.loads(pickle.dumps(again))  # to another host
    assert sent == again
    assert sent.subnets[0].link.seconds(100.0, 2.0) == again.subnets[0].link.seconds(100.0, 2.0)


@pytest.mark.parametrize("trust", ["trusted", "untrusted", "secure-sum"])
def test_a_satellite_changes_no_bit_of_ledger_and_model(folder, trust):
    """Trust and unit, and secure sums of devices, do not see links."""
    found = []
    for name, link in (("wire", {}), ("own", OWN), ("windows", WINDOWS)):
        values = tree(link)
        for edge in values["edges"]:
            edge["trust"] = trust
            edge.pop("trusted")
        Path("net.yaml").write_text(yaml.safe_dump(values))
        settings = SETTINGS | {"method": "h2fdp", "epsilon": 100.0, "intervals": 2, "noise_key": "seed"}
        run = Experiment("net.yaml", "digits", **settings).run(folder / name)
        found.append([(run.directory / each).read_bytes() for each in ("privacy.jsonl", "model.pt")])
    assert found[0] == found[1] == found[2]
