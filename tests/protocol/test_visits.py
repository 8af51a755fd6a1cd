"""Devices that change their edge server: what observers learn of a device, wherever it was, against its one account."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from h2fdp import Topology
from h2fdp.network.mobility import Mobility
from h2fdp.privacy.accounting import ACCOUNTANTS
from tests.networks import placed
from tests.protocol.overhearing import devices_of, overheard, squared_distance
from tests.protocol.test_any_tree import DELTA, epsilon_of_gaussian, prepared

PLD = ACCOUNTANTS["pld"]
INTERVALS = 4


def random_network(rng):
    """Two or three edge servers of mixed trust, whose devices are anywhere, or nowhere, in each interval."""
    sizes = rng.integers(1, 4, int(rng.integers(2, 4))).tolist()
    trusts = rng.random(len(sizes)) < 0.5
    tree = Topology(
        "cars",
        tuple(
            placed(f"n{at}", bool(trust), rng.uniform(10, 300, size).tolist(), [9.0] * size)
            for at, (size, trust) in enumerate(zip(sizes, trusts, strict=True))
        ),
    )
    names, places = tree.device_names(), [None, *(each.name for each in tree.subnets)]
    lines = [
        (interval, name, places[int(rng.integers(len(places)))], float(rng.choice([20.0, 50.0])))
        for interval in range(1, INTERVALS + 1)
        for name in names
        if rng.random() < 0.6
    ]
    return replace(tree, mobility=Mobility(lines))


@pytest.fixture(scope="module", params=range(20))
def run(request):
    rng = np.random.default_rng(request.param)
    setup = prepared(
        random_network(rng),
        method=["h2fdp", "hfl-dp"][int(rng.integers(2))],
        weights=str(rng.choice(["uniform", "by-size"])),
        aggregate_every=int(rng.choice([6, 3])),
        local_steps=6,
        intervals=INTERVALS,
        calibration="accounted",
        faults={"device_dropout": 0.2} if rng.random() < 0.3 else {},
    )
    with pytest.MonkeyPatch.context() as patch:
        return setup, overheard(setup, patch, intervals=INTERVALS)


def device_numbers(setup):
    """(edge server, row) -> number of the device, by names: independent of what accounts go by."""
    numbers = {name: number for number, name in enumerate(setup.drawn.device_names())}
    return {
        (subnet.name, row): numbers[name]
        for subnet in setup.topology.subnets
        for row, name in enumerate(subnet.device_names())
    }


def test_no_observer_learns_more_of_a_device_than_its_account_says(run):
    """All rows of a device together; `edge` is all untrusted edge servers together, a peer hears every broadcast."""
    setup, heard = run
    whose, names = device_numbers(setup), setup.drawn.device_names()
    heard = replace(heard, signals={place: (whose[row], slot) for place, (row, slot) in heard.signals.items()})
    allowed, worst = Counter(), {}
    for row in heard.rows:
        for device in devices_of(row):
            allowed[whose[device], row.observer] += (row.sensitivity / row.noise_std) ** 2
    guarded = setup.config.method.privacy.name == "hierarchical"
    curious = [each.name for each in setup.topology.subnets if not (each.trusted and guarded)]
    broadcasts = [vector for each in heard.broadcasts.values() for vector in each]
    for device in {each for each, _ in heard.signals.values()}:
        has = {
            "cloud": [([*heard.received.get("cloud", ()), *heard.models], set())],
            "public": [(heard.models, set())],
        }
        if any(allowed[device, "edge"] for _ in curious):
            has["edge"] = [([vector for node in curious for vector in heard.had_by(node)], set())]
        company = any(allowed[device, "peer"] for _ in names)
        has["peer"] = [([*broadcasts, *heard.models], {name}) for name in names if name != names[device] and company]
        for observer, sides in has.items():
            for vectors, known in sides:
                learned = squared_distance(heard, vectors, device, known)
                assert learned <= allowed[device, observer] * (1 + 1e-5) + 1e-12, (device, observer)
                worst[observer] = max(learned, worst.get(observer, 0.0))
    accounts = setup.empty_accounts()
    accounts.add(heard.rows)
    for observer, learned in worst.items():
        upper = max((PLD.epsilon(each.composition, DELTA) for each in accounts.classes(observer)), default=0.0)
        assert epsilon_of_gaussian(learned**0.5) <= upper * (1 + 1e-5), observer


def test_no_single_edge_server_learns_more_than_the_account_of_it_alone(run):
    """All vectors that it has, and all global models; each against its own rows and the public's of other places."""
    setup, heard = run
    whose = device_numbers(setup)
    heard = replace(heard, signals={place: (whose[row], slot) for place, (row, slot) in heard.signals.items()})
    guarded = setup.config.method.privacy.name == "hierarchical"
    curious = [each.name for each in setup.topology.subnets if not (each.trusted and guarded)]
    allowed, met = Counter(), set()
    for row in heard.rows:
        for at in devices_of(row):
            size, device = (row.sensitivity / row.noise_std) ** 2, whose[at]
            for edge in curious:
                if row.observer == ("edge" if row.edge == edge else "public"):
                    allowed[device, edge] += size
            if row.observer == "edge" and row.edge in curious:
                met.add((device, row.edge))
    accounts = setup.empty_accounts()
    accounts.add(heard.rows)
    held = list(accounts.classes("single-edge"))
    for device, edge in met:
        learned = squared_distance(heard, [*heard.had_by(edge), *heard.models], device, set())
        assert learned <= allowed[device, edge] * (1 + 1e-5) + 1e-12, (device, edge)
        upper = max(PLD.epsilon(each.composition, DELTA) for each in held if device in each.devices)
        assert epsilon_of_gaussian(allowed[device, edge] ** 0.5) <= upper * (1 + 1e-5)
    union = {device: each for each in accounts.classes("edge") for device in each.devices.tolist()}
    for each in held:
        for device in each.devices.tolist():
            assert PLD.epsilon(each.composition, DELTA) <= PLD.epsilon(union[device].composition, DELTA) * (1 + 1e-3)


def test_an_edge_server_or_a_peer_that_meets_a_device_has_an_account_of_it_ever_after(run):
    """Each upload of such a device is in the account of `edge` and of `peer`, also where neither is with it."""
    setup, heard = run
    whose = device_numbers(setup)
    guarded = setup.config.method.privacy.name == "hierarchical"
    trusted = {each.name for each in setup.topology.subnets if each.trusted and guarded}
    rows = Counter((whose[device], row.observer) for row in heard.rows for device in devices_of(row))
    ever = {device for (edge, _), device in whose.items() if edge not in trusted}
    for device in {device for device, _ in rows}:
        assert rows[device, "edge"] == (rows[device, "public"] if device in ever else 0)
        assert rows[device, "peer"] in (0, rows[device, "public"])


def test_every_upload_is_of_a_row_that_is_there(run):
    """At each slot a device uploads once, by the row that the trace names; counted from the trace alone."""
    setup, heard = run
    whose = device_numbers(setup)
    uploads = Counter((whose[row], slot) for row, slot in heard.signals.values())
    assert max(uploads.values(), default=1) == 1
    names = setup.drawn.device_names()
    lines = sorted(setup.drawn.mobility.lines, key=lambda line: line.interval)
    homes = [subnet.name for subnet in setup.drawn.subnets for _ in range(subnet.size)]
    for (edge, row), slot in heard.signals.values():
        interval, device = -(-slot // 6), whose[edge, row]
        at = homes[device]
        for line in lines:
            if line.interval <= interval and line.device == names[device]:
                at = line.edge
        assert at == edge


def test_a_device_has_one_class(run):
    """No device is in two classes of an observer: it has one account."""
    setup, heard = run
    accounts = setup.empty_accounts()
    accounts.add(heard.rows)
    for observer in setup.observers:
        devices = [device for each in accounts.classes(observer) for device in each.devices.tolist()]
        assert len(devices) == len(set(devices)) <= setup.drawn.devices
