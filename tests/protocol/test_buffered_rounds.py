"""Rounds in which aggregators average what has arrived: models by hand, and what observers learn against the ledger."""

import heapq
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from h2fdp import Topology
from h2fdp.methods import name_of
from h2fdp.network import Radio
from h2fdp.protocol import DeviceGroup, InProcessNodes
from h2fdp.schedules import event_queue
from h2fdp.schedules.buffered import _deadlines, _queue
from h2fdp.schedules.event_queue import Durations, EventQueue
from tests.networks import placed
from tests.protocol.overhearing import devices_of, overheard
from tests.protocol.subnets import QuadraticEngine
from tests.protocol.test_any_tree import prepared, test_no_observer_learns_more_than_its_rows_say

__all__ = ["test_no_observer_learns_more_than_its_rows_say"]  # here about runs in which some uploads are stale


def random_network(rng):
    """Up to three edge servers of mixed trust, whose devices are more or less far away."""
    sizes = rng.integers(1, 4, int(rng.integers(1, 4))).tolist()
    return Topology(
        "flat",
        tuple(
            placed(f"n{at}", bool(rng.random() < 0.5), rng.uniform(1, 300, size).tolist(), [9.0] * size)
            for at, size in enumerate(sizes)
        ),
    )


def buffered(rng=None, **options):
    drawn = {} if rng is None else {"buffer": {"edge": int(rng.integers(1, 4)), "cloud": int(rng.integers(1, 4))}}
    return {"name": "buffered", **drawn, **options}


def overheard_run(number, server="average"):
    """A prepared run, and all that passed in four of its intervals."""
    rng = np.random.default_rng(number)
    method = ["h2fdp", "hfl-dp"][int(rng.integers(2))]
    setup = prepared(
        random_network(rng),
        method={
            "extends": method,
            "schedule": buffered(rng, staleness_power=float(rng.choice([0, 0.5, 2]))),
            "server": server,
        },
        weights=str(rng.choice(["uniform", "by-size"])),
        aggregate_every=int(rng.choice([6, 3, 2])),
        local_steps=6,
        intervals=4,
        calibration="accounted",
    )
    with pytest.MonkeyPatch.context() as patch:
        return setup, overheard(setup, patch, intervals=4)


@pytest.fixture(scope="module", params=range(17))
def run(request):
    return overheard_run(request.param)


def arrived(setup, rounds):
    """How many uploads of each device have reached its edge server, or the cloud, by the end of the last round."""
    counts = Counter()

    class Counting(EventQueue):
        def _at_server(self, kind, number, detail, at_s):
            if kind == event_queue._UPLOADED:
                counts[setup.topology.subnets[number].name, detail] += 1
            super()._at_server(kind, number, detail, at_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("h2fdp.schedules.buffered.EventQueue", Counting)
        queue = _queue(setup.context, setup.config.method.schedule)
        for _ in range(rounds):
            next(queue)
    return counts


def test_every_upload_that_arrives_has_its_rows_also_where_the_cloud_never_averages_it(run):
    setup, heard = run
    averaged = Counter(device for device, _ in heard.signals.values())
    rows = Counter((device, row.observer) for row in heard.rows for device in devices_of(row))
    sent = arrived(setup, 4)
    assert all(sent[device] >= count for device, count in averaged.items())
    for device, count in sent.items():
        assert rows[device, "cloud"] == rows[device, "public"] >= count


STEP, LOCAL_STEPS, POWER = 0.3, 4, 0.5
TARGETS = [[[1.0], [5.0], [2.0]], [[-3.0], [8.0]]]
DISTANCES = [[10.0, 200.0, 700.0], [40.0, 900.0]]  # m


def quadratic_run(cloud_buffer, edge_buffer, every):
    """Exact gradient steps on |w - a_i|^2 / 2, without noise, under a channel that never changes."""
    tree = Topology(
        "two",
        tuple(placed(name, False, far, [9.0] * len(far)) for name, far in zip(("a", "b"), DISTANCES, strict=True)),
        Radio(access="ofdma", fading="none"),
    )
    options = {"buffer": {"edge": edge_buffer, "cloud": cloud_buffer}, "staleness_power": POWER}
    return prepared(
        tree,
        method={"extends": "hfl", "schedule": buffered(**options)},
        intervals=12,
        local_steps=LOCAL_STEPS,
        aggregate_every=every,
        step_size=STEP,
        step_decay="none",
    )


def models_of(setup, targets_of=TARGETS):
    """(intervals,) models of the cloud."""

    def group(number):
        targets = np.array(targets_of[number])
        return DeviceGroup(**vars(setup.blueprint.device_group(number)) | {"engine": QuadraticEngine(targets)})

    names = [subnet.name for subnet in setup.topology.subnets]
    edges = {name: setup.blueprint.edge_server(at, group(at)) for at, name in enumerate(names)}
    cloud = replace(setup, initial=torch.zeros(1, dtype=torch.float64)).cloud(InProcessNodes(edges))
    models = []
    for interval in range(setup.config.training.intervals):
        cloud.run_interval(cloud.plan(interval))
        models.append(float(cloud.model))
    return models


def by_messages(costs, cloud_buffer, edge_buffer, averages, rounds):
    """The cloud's models where every message carries its model: nodes hold values, and nothing is numbered but age."""
    steps, clock = LOCAL_STEPS // averages, itertools.count()
    sizes = [len(each) for each in TARGETS]
    task = (costs.down_seconds + costs.relay_seconds + steps * costs.step.seconds).tolist()
    sharing = np.repeat(sizes, sizes)
    ratio = np.log1p(costs.snr) / np.log1p(sharing * costs.snr)
    sends = (costs.seconds * sharing * ratio + costs.relay_seconds).tolist()
    kept = (1 - STEP) ** steps  # of the way to a target
    cloud, version, inbox, found = 0.0, 0, [], []
    servers = [{"model": 0.0, "made": 0, "inbox": [], "left": averages, "waiting": []} for _ in sizes]
    events = []

    def hand_out(at, number, rows):
        for row in rows:
            device, server = sum(sizes[:number]) + row, servers[number]
            message = (server["model"], server["made"])
            heapq.heappush(events, (at + task[device] + sends[device], next(clock), "device", number, row, message))

    def come_down(at, number):
        message = (cloud, version)
        heapq.heappush(events, (at, next(clock), "model", number, None, message))

    for number, size in enumerate(sizes):
        servers[number]["waiting"] = list(range(size))
        come_down(0.0, number)
    while len(found) < rounds:
        at, _, kind, number, row, message = heapq.heappop(events)
        server = servers[number]
        if kind == "model":
            server.update(model=message[0], received=message, left=averages)
            hand_out(at, number, server["waiting"])
        elif kind == "device":
            start, made = message
            target = TARGETS[number][row][0]
            server["inbox"].append((row, start - (target + (start - target) * kept), made))
        else:
            inbox.append((number, *message))
        full = len(server["inbox"]) >= min(edge_buffer, sizes[number])
        if server["left"] and full and kind != "up":
            ages = [(1 + server["made"] - made) ** -POWER for *_, made in server["inbox"]]
            moved = sum(age * update for age, (_, update, _) in zip(ages, server["inbox"], strict=True))
            rows = [row for row, *_ in server["inbox"]]
            server["model"] -= moved / len(rows)
            server.update(inbox=[], made=server["made"] + 1, left=server["left"] - 1)
            if server["left"]:
                hand_out(at, number, rows)
            else:
                server["waiting"] = rows
                up = (server["received"][0] - server["model"], server["received"][1])
                heapq.heappush(events, (at + costs.link_seconds[number], next(clock), "up", number, None, up))
        if len(inbox) >= cloud_buffer:
            cloud -= sum((1 + version - began) ** -POWER * update for _, update, began in inbox) / len(inbox)
            version, taken, inbox = version + 1, sorted(each for each, *_ in inbox), []
            found.append(cloud)
            for each in taken:
                come_down(at + costs.link_seconds[each], each)
    return found


@pytest.mark.parametrize(
    ("cloud_buffer", "edge_buffer", "every"), [(1, 1, 4), (1, 2, 2), (2, 1, 2), (2, 3, 4), (1, 1, 1), (2, 2, 1)]
)
def test_models_are_those_of_messages_that_carry_them(cloud_buffer, edge_buffer, every):
    """FedAsync (K = 1), FedBuff and synchronous rounds on quadratic losses, to rounding."""
    setup = quadratic_run(cloud_buffer, edge_buffer, every)
    expected = by_messages(setup.costs.drawn(0), cloud_buffer, edge_buffer, LOCAL_STEPS // every, 12)
    np.testing.assert_allclose(models_of(setup), expected, rtol=1e-9)


def test_semi_synchronous_rounds_end_when_half_could_have_arrived():
    """Medians by hand: at edge servers of devices, at the cloud of edge servers with both ways of their links."""
    seconds = Durations(
        np.array([1.0, 2.0, 9.0, 4.0, 6.0]), np.array([0.5, 0.5, 0.5, 1.0, 1.0]), np.zeros(5), np.array([0.1, 0.3])
    )
    at_edges, at_cloud = _deadlines("median", seconds, np.array([3, 2]), np.array([2, 1]))
    assert at_edges == [2.5, 6.0]
    assert at_cloud == pytest.approx(np.mean([2 * 2.5 + 0.2, 6.0 + 0.6]))
    assert _deadlines(7.0, seconds, np.array([3, 2]), np.array([2, 1])) == ([7.0, 7.0], 7.0)
    setup = prepared(random_network(np.random.default_rng(3)), method="semi-sync", intervals=5)
    assert name_of(setup.config.method) == "semi-sync"
    cloud = setup.cloud(None)
    for interval in range(5):
        cloud.skip(plan := cloud.plan(interval))
        assert plan.subnets
