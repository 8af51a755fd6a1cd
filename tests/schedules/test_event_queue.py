"""The event clock against an independent simulation without a heap, and against merged clocks of two devices."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.schedules.event_queue import Buffer, Durations, EventQueue
from h2fdp.schedules.schedule import Backlog


def played(sizes, averages, edges, cloud, durations, rounds, points=None, queues=False):
    points = np.repeat(np.arange(len(sizes)), sizes) if points is None else points
    queue = EventQueue(
        sizes=np.array(sizes),
        points=points,
        averages=averages,
        edges=edges,
        cloud=cloud,
        queues=queues,
        durations=lambda _: durations,
    )
    return list(itertools.islice(queue, rounds))


def by_scanning(sizes, averages, edges, cloud, durations, rounds):
    """The rounds of the cloud by looking for the earliest of all moments, again and again; no queueing.

    Per round: (when, edge server -> (cloud's version, its uploads by average: (row, version, tasks)),
    (edge server, row) -> uploads that arrived since the round before).
    """
    first = np.cumsum([0, *sizes])
    now, version, at_cloud, cloud_due, found = 0.0, 0, {}, 0.0 + (cloud.deadline_s or math.inf), []
    busy, began, tasks = {}, {}, dict.fromkeys(range(first[-1]), 0)  # device -> arrives; version it has
    made, lists, inbox = [0] * len(sizes), [[] for _ in sizes], [[] for _ in sizes]
    due, uploading, receives = [math.inf] * len(sizes), {}, dict.fromkeys(range(len(sizes)), 0.0)
    received, rest, came = [0] * len(sizes), [list(range(size)) for size in sizes], Counter()

    def give(server, rows):
        for device in (first[server] + row for row in rows):
            began[device] = made[server]
            busy[device] = now + durations.task[device] + durations.upload[device] + durations.relay[device]
        due[server] = now + (edges[server].deadline_s or math.inf)

    while len(found) < rounds:
        late = [at for at in [*due, cloud_due] if at > now]
        now = min([*busy.values(), *uploading.values(), *receives.values(), *late])
        for server in [each for each, at in receives.items() if at == now]:
            del receives[server]
            lists[server], rows, rest[server] = [], rest[server], []
            give(server, rows)
        for device in [each for each, at in busy.items() if at == now]:
            del busy[device]
            server = int(np.searchsorted(first, device, side="right")) - 1
            inbox[server].append(int(device - first[server]))
            came[server, inbox[server][-1]] += 1
        for server, waiting in enumerate(inbox):
            full = len(waiting) >= edges[server].uploads or (waiting and due[server] <= now)
            if not full or server in uploading or server in at_cloud or server in receives:
                continue
            rows = sorted(waiting)
            lists[server].append([(row, began[first[server] + row], tasks[first[server] + row]) for row in rows])
            inbox[server], made[server] = [], made[server] + 1
            for row in rows:
                tasks[first[server] + row] += 1
            if len(lists[server]) < averages[server]:
                give(server, rows)
            else:
                rest[server], uploading[server] = rows, now + durations.link[server]
        for server in [each for each, at in uploading.items() if at == now]:
            del uploading[server]
            at_cloud[server] = (received[server], lists[server])
        if len(at_cloud) >= cloud.uploads or (at_cloud and cloud_due <= now):
            found.append((now, dict(sorted(at_cloud.items())), came))
            came = Counter()
            version, cloud_due = version + 1, now + (cloud.deadline_s or math.inf)
            for server in at_cloud:
                received[server], receives[server] = version, now + durations.link[server]
            at_cloud = {}
    return found


@st.composite
def networks(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    devices, servers = sum(sizes), len(sizes)
    deadline = draw(st.sampled_from([None, None, 1.5, 4.0]))
    edges = [Buffer(draw(st.integers(1, size)), deadline) for size in sizes]
    cloud = Buffer(draw(st.integers(1, servers)), deadline)
    averages = [draw(st.integers(1, 3)) for _ in sizes]
    times = rng.lognormal(0, 1, devices), rng.random(devices), rng.random(devices) * 0.1, rng.random(servers) * 0.2
    return sizes, averages, edges, cloud, Durations(*times)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_events_are_those_of_a_simulation_without_a_queue(network):
    _sizes, _averages, *_ = network
    for found, (at_s, expected, came) in zip(played(*network, 12), by_scanning(*network, 12), strict=True):
        assert found.at_s == pytest.approx(at_s, rel=1e-12)
        assert list(found.backlogs) == list(expected)
        averaged = Counter((server, row) for server, (_, each) in expected.items() for part in each for row, *_ in part)
        came.subtract(averaged)
        waiting = {(server, row): more for server, rows in found.waiting.items() for row, more in rows.items()}
        assert waiting == {device: more for device, more in came.items() if more}
        for server, (version, uploads) in expected.items():
            backlog = found.backlogs[server]
            assert backlog.version == version
            for number, each in enumerate(uploads):
                own = [
                    (row, began, tasks)
                    for began, tasks, places in backlog.models(number)
                    for row in backlog.rows[places].tolist()
                ]
                assert sorted(own) == each


@settings(max_examples=60, deadline=None)
@given(networks())
def test_models_that_uploads_begin_with_are_there_and_no_other_is_kept(network):
    """Every upload begins with a model that was carried or made, and what is kept is carried into the next backlog."""
    kept, tasks, versions = {}, {}, {0}
    for number, arrivals in enumerate(played(*network, 12)):
        for server, backlog in arrivals.backlogs.items():
            assert backlog.carried == kept.get(server, ())
            made = backlog.first + len(backlog.arrives)
            assert all(each < made for each in backlog.kept), "no device has the average that goes up"
            there = {*backlog.carried, *range(backlog.first, made)}
            assert {began for at in range(len(backlog.arrives)) for began, *_ in backlog.models(at)} <= there
            assert set(backlog.kept) <= there
            assert backlog.version in versions
            kept[server] = backlog.kept
            for average, row in zip(*np.nonzero(backlog.arrives), strict=True):
                device = server, int(backlog.rows[row])
                assert backlog.tasks[average, row] == tasks.get(device, 0), "each device counts its own uploads"
                tasks[device] = tasks.get(device, 0) + 1
        versions = {*arrivals.kept, number + 1}


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_who_waits_for_all_has_synchronous_rounds(servers, size, averages, seed):
    rng = np.random.default_rng(seed)
    devices = servers * size
    durations = Durations(*rng.random((3, devices)), rng.random(servers))
    for number, found in enumerate(
        played([size] * servers, [averages] * servers, [Buffer(size)] * servers, Buffer(servers), durations, 4)
    ):
        assert list(found.backlogs) == list(range(servers))
        for backlog in found.backlogs.values():
            assert backlog.in_step
            assert backlog.version == number
            assert backlog.first == number * averages
            assert not backlog.staleness.any()


@pytest.mark.parametrize(("slow", "uploads"), [(2.5, [0, 0, 1, 0, 0, 0, 1, 0]), (1.6, [0, 1, 0, 0, 1, 0, 1, 0])])
def test_two_devices_arrive_at_multiples_of_their_times(slow, uploads):
    """FedAsync at an edge server: arrivals are the merged multiples of 1 and of r seconds."""
    nothing = np.zeros(2)
    durations = Durations(np.array([1.0, slow * 1.001]), nothing, nothing, np.zeros(1))
    (found,) = played([2], [8], [Buffer(1)], Buffer(1), durations, 1)
    (backlog,) = found.backlogs.values()
    assert backlog.rows[backlog.arrives.argmax(axis=1)].tolist() == uploads
    own = {row: [number for number, each in enumerate(uploads) if each == row] for row in (0, 1)}
    for row, numbers in own.items():
        stale = [number - before - 1 for before, number in itertools.pairwise([-1, *numbers])]
        assert backlog.staleness[numbers, row].tolist() == stale


def test_one_message_at_a_time_waits_for_the_channel():
    """Both are ready after 1 s, and each message takes 2 s: they arrive at 3 and 5 s, and so on in turns."""
    durations = Durations(np.ones(2), np.full(2, 2.0), np.zeros(2), np.zeros(1))
    points = np.zeros(2, dtype=int)
    rounds = played([2], [1], [Buffer(1)], Buffer(1), durations, 4, points, queues=True)
    assert [each.at_s for each in rounds] == [3, 5, 7, 9]
    assert [each.backlogs[0].rows.tolist() for each in rounds] == [[0], [1], [0], [1]]


def test_a_deadline_takes_what_is_there_or_the_next_that_comes():
    """Of 1, 4 and 30 s with a deadline of 5 s: first the first two, later one alone that came after the deadline."""
    durations = Durations(np.array([1.0, 4.0, 30.0]), *np.zeros((2, 3)), np.zeros(1))
    (found,) = played([3], [6], [Buffer(3, 5.0)], Buffer(1), durations, 1)
    arrives = found.backlogs[0].arrives
    assert arrives[:5].tolist() == [[True, True, False]] * 5
    assert arrives[5].tolist() == [True, True, True]  # at 30 s, when the sixth deadline is


def test_staleness_counts_averages_since_the_model():
    backlog = Backlog.of(3, 4, [[(2, 4, 7)], [(0, 3, 6), (2, 5, 8)]], carried=[3])
    assert backlog.staleness.tolist() == [[0, 0], [2, 0]]
    assert not backlog.in_step
