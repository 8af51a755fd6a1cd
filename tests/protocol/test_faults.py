"""Faults: how often they happen, what they leave of an interval, and what they may not depend on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from h2fdp.protocol.arrivals import DeviceFaults, Faults, reachable, tasks_of, tasks_under
from h2fdp.streams import Streams

STREAMS = Streams(seed=5)
ERROR_RATE = 1e-6
MANY = 20_000


def accepts(hits, draws, probability):
    """Whether a two-sided binomial test at an error rate of 1e-6 believes in this probability."""
    return bool(stats.binomtest(int(hits), draws, probability).pvalue > ERROR_RATE)


def device_faults(count=MANY, interval=0, **faults):
    return Faults(**faults).device_faults(STREAMS, "edge", interval, count)


def test_nothing_fails_by_default():
    found = device_faults()
    assert (found.lasts == 1).all()
    assert not found.slow.any()
    assert not Faults().possible
    assert reachable(Faults(), STREAMS, [("edge", 3)], 0, np.arange(3)).tolist() == [0, 1, 2]
    assert tasks_under(Faults(), STREAMS, [("edge", 3)], 0, np.arange(3), (5, 5)).whole


@pytest.mark.parametrize(("factor", "accepted"), [(1, True), (2 / 3, False), (3 / 2, False)])
def test_devices_drop_out_and_straggle_as_often_as_asked(factor, accepted):
    found = device_faults(device_dropout=0.3, straggler_probability=0.2)
    assert accepts((found.lasts < 1).sum(), MANY, 0.3 * factor) is accepted
    assert accepts(found.slow.sum(), MANY, 0.2 * factor) is accepted


def test_a_device_drops_out_in_any_slot_with_equal_probability():
    found = device_faults(device_dropout=1.0).slots(8)
    assert stats.chisquare(np.bincount(found, minlength=8)).pvalue > ERROR_RATE
    assert found.max() == 7  # it never completes the interval
    assert (device_faults().slots(8) == 8).all()


def test_dropping_out_tells_nothing_about_being_slow():
    found = device_faults(device_dropout=0.3, straggler_probability=0.2)
    assert accepts(((found.lasts < 1) & found.slow).sum(), MANY, 0.06)


def test_stragglers_of_ten_epochs_train_one_to_nine_as_in_the_upcycled_experiments():
    work = device_faults(straggler_probability=1.0).work(10)
    assert sorted(set(work)) == list(range(1, 10))
    assert stats.chisquare(np.bincount(work)[1:]).pvalue > ERROR_RATE


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 400))
def test_a_straggler_finishes_a_whole_number_of_steps_between_the_fractions_at_least_one(one, other, steps):
    least, most = sorted((one, other))
    found = device_faults(50, straggler_probability=1.0, straggler_fraction=(least, most)).work(steps)
    assert found.min() >= 1
    assert found.max() <= max(1, most * steps + 1e-6)
    if np.floor(most * steps) > np.ceil(least * steps) + 1:
        assert found.min() >= least * steps - 1e-6


def test_work_of_a_fraction_that_floats_do_not_hold():
    always = DeviceFaults(np.ones(1), np.ones(1, bool), np.zeros(1), (0.1, 0.1))
    assert [always.work(10 * tens).item() for tens in range(1, 40)] == list(range(1, 40))


@pytest.mark.parametrize(("length", "interval"), [(1, 0), (1, 7), (3, 0), (3, 1), (3, 2), (3, 9), (5, 400)])
def test_an_edge_server_is_offline_with_the_probability_that_an_outage_began_lately(length, interval):
    faults = Faults(edge_outage=0.1, outage_intervals=length)
    hits = sum(faults.offline(STREAMS, f"edge-{number}", interval) for number in range(4000))
    expected = 1 - 0.9 ** min(length, interval + 1)
    assert accepts(hits, 4000, expected)
    assert not accepts(hits, 4000, expected * 2 / 3)
    assert not accepts(hits, 4000, min(1.0, expected * 3 / 2))


def test_an_outage_lasts_as_long_as_it_is_said_to():
    """An outage that begins is one of length 1 with the same draws; each is followed by the rest of its length."""
    begins, offline = (
        [Faults(edge_outage=0.05, outage_intervals=length).offline(STREAMS, "edge", k) for k in range(2000)]
        for length in (1, 4)
    )
    assert 0 < sum(begins) < 300
    assert offline == [any(begins[max(0, k - 3) : k + 1]) for k in range(2000)]


def test_subnets_and_intervals_fail_independently():
    def dropped(edge, interval):
        return Faults(device_dropout=0.5).device_faults(STREAMS, edge, interval, 4000).lasts < 1

    for other in (dropped("b", 0), dropped("a", 1)):
        assert accepts((dropped("a", 0) & other).sum(), 4000, 0.25)


def test_a_higher_probability_adds_faults_and_takes_none_away():
    few, more = (
        device_faults(device_dropout=p, straggler_probability=p, edge_outage=p, outage_intervals=2) for p in (0.1, 0.4)
    )
    assert (more.lasts <= few.lasts).all()
    assert (more.slow >= few.slow).all()
    assert (few.lasts[few.lasts < 1] == more.lasts[few.lasts < 1]).all()
    outages = [[Faults(edge_outage=p).offline(STREAMS, "e", k) for k in range(200)] for p in (0.1, 0.4)]
    assert all(not one or other for one, other in zip(*outages, strict=True))


POINTS = [("north", 4), ("south", 3)]
WORLD = Faults(device_dropout=0.4, straggler_probability=0.4, edge_outage=0.3)


def test_a_device_meets_the_same_faults_whoever_takes_part_beside_it():
    rows = np.array([1, 3, 4])
    of_all = tasks_under(WORLD, STREAMS, POINTS, 2, np.arange(7), (3, 3))
    of_some = tasks_under(WORLD, STREAMS, POINTS, 2, rows, (3, 3))
    np.testing.assert_array_equal(of_some.steps, of_all.steps[:, rows])
    np.testing.assert_array_equal(of_some.lost, of_all.lost[rows])


def test_a_star_meets_the_faults_of_its_tree():
    for interval in range(20):
        rows = [reachable(WORLD, STREAMS, [point], interval, np.arange(point[1])) for point in POINTS]
        star = reachable(WORLD, STREAMS, POINTS, interval, np.arange(7))
        assert star.tolist() == [*rows[0].tolist(), *(4 + rows[1]).tolist()]
        parts = [WORLD.device_faults(STREAMS, name, interval, size) for name, size in POINTS]
        found = tasks_under(WORLD, STREAMS, POINTS, interval, np.arange(7), (10,))
        expected = np.concatenate([tasks_of(part, np.arange(len(part.lasts)), (10,)).steps for part in parts], axis=1)
        np.testing.assert_array_equal(found.steps, expected)


def slot_by_slot(lasts, work, segments):
    """One device, slot after slot: uploads at each aggregation, and steps whose upload was never made."""
    slots = sum(segments)
    ends = np.cumsum(segments).tolist()
    vanishes = slots if lasts == 1 else int(lasts * slots)
    uploads, since, done = [], 0, 0
    for slot in range(1, slots + 1):
        if slot <= vanishes and work * slot // slots > done:  # its next step is finished by the end of this slot
            since, done = since + 1, done + 1
        if slot in ends:
            uploads.append(since if slot <= vanishes else 0)
            since = 0 if slot <= vanishes else since
    return uploads, since


segment_lists = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(segment_lists, st.data())
def test_turnout_is_what_happens_slot_by_slot(segments, data):
    size = data.draw(st.integers(1, 5))
    lasts = np.array(data.draw(st.lists(st.just(1.0) | st.floats(0, 0.999), min_size=size, max_size=size)))
    slow = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    diligence = np.array(data.draw(st.lists(st.floats(0, 0.999), min_size=size, max_size=size)))
    of_devices = DeviceFaults(lasts, slow, diligence, (0.0, 1.0))
    found = tasks_of(of_devices, np.arange(size), segments)
    work = of_devices.work(sum(segments))
    for device in range(size):
        uploads, lost = slot_by_slot(lasts[device], int(work[device]), segments)
        assert found.steps[:, device].tolist() == uploads
        assert found.lost[device] == lost
    stays = lasts == 1
    np.testing.assert_array_equal(found.steps.sum(axis=0)[stays], work[stays])
    assert (found.steps <= np.array(segments)[:, None]).all()


def test_a_device_that_fails_in_no_way_does_what_was_planned():
    faults = Faults(device_dropout=1e-12)
    assert tasks_under(faults, STREAMS, POINTS, 0, np.arange(7), (4, 4)).whole
    one = replace(WORLD, device_dropout=0.0).device_faults(STREAMS, "north", 0, 4)
    assert (tasks_of(one, np.arange(4), (4, 4)).steps[:, ~one.slow] == 4).all()


def test_a_device_begins_the_segments_before_it_is_gone():
    """Of ten slots it stays for 4: it takes part in the aggregation after slot 3, and begins the segment after that."""
    lasts = DeviceFaults(np.array([0.4, 1.0, 0.0]), np.zeros(3, bool), np.zeros(3), (0.1, 0.9))
    work = tasks_of(lasts, np.arange(3), (3, 3, 4))
    assert work.there.tolist() == [[True, True, True], [True, True, False], [False, True, False]]
    assert (work.steps > 0).tolist() == [[True, True, False], [False, True, False], [False, True, False]]
    assert work.part(1, 3).there.tolist() == work.there[1:].tolist()
    assert (work.opening(np.array([True, False, True])).there == work.there).all()
