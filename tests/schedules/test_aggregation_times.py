"""Slots of local aggregations (H2FDP, Sec. 3.1 and its decisions)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.schedules import AggregationTimes, FixedSchedule
from h2fdp.schedules.aggregation_times import decayed, noise_of_share


@pytest.mark.parametrize(
    ("aggregation_times", "local_steps", "offsets"),
    [
        (AggregationTimes(every=5), 20, (5, 10, 15)),
        (AggregationTimes(every=20), 20, ()),
        (AggregationTimes(per_interval=2), 20, (7, 13)),
        (AggregationTimes(per_interval=5), 3, (1, 2)),
        (AggregationTimes(per_interval=3), 1, ()),
    ],
)
def test_offsets(aggregation_times, local_steps, offsets):
    assert aggregation_times.offsets(local_steps) == offsets


@given(
    st.integers(1, 60),
    st.one_of(
        st.builds(AggregationTimes, every=st.integers(1, 70)),
        st.builds(AggregationTimes, per_interval=st.integers(0, 70)),
    ),
)
def test_segments_fill_the_interval(local_steps, aggregation_times):
    segments = aggregation_times.segments(local_steps)
    assert sum(segments) == local_steps
    assert min(segments) >= 1
    assert len(segments) == len(aggregation_times.offsets(local_steps)) + 1


@pytest.mark.parametrize(
    ("aggregation_times", "local_steps", "heights"),
    [
        (AggregationTimes(every=5), 20, (1, 1, 1, 4)),
        (AggregationTimes(every=[2, 4]), 9, (1, 2, 1, 2, 4)),
        (AggregationTimes(every=[1, 2, 4]), 8, (1, 2, 1, 3, 1, 2, 1, 4)),
        (AggregationTimes(per_interval=[4, 2]), 10, (1, 2, 1, 2, 4)),
        (AggregationTimes(per_interval=[4, 2]), 3, (1, 2, 4)),
    ],
)
def test_heights_of_the_aggregations_in_a_network_of_three_tiers(aggregation_times, local_steps, heights):
    assert aggregation_times.heights(local_steps, depth=3) == heights
    assert len(aggregation_times.segments(local_steps)) == len(heights)


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_an_aggregator_aggregates_at_each_multiple_of_its_number_of_slots(local_steps, every, times, more):
    aggregation_times = AggregationTimes(every=[every, every * times, every * times * more])
    heights = dict(
        zip(aggregation_times.offsets(local_steps), aggregation_times.heights(local_steps, depth=3), strict=False)
    )
    for height, slots in enumerate((every, every * times, every * times * more), start=1):
        at = {slot for slot, reached in heights.items() if reached >= height}
        assert at == set(range(slots, local_steps, slots))


@given(st.floats(1e-6, 1e6), st.integers(1, 200))
def test_a_linear_decay_begins_whole_and_goes_to_zero_in_equal_parts(step_size, intervals):
    sizes = [decayed(step_size, "linear", k, intervals) for k in range(intervals)]
    assert sizes[0] == pytest.approx(step_size)
    np.testing.assert_allclose(np.diff([*sizes, 0.0]), -step_size / intervals, rtol=1e-9)
    assert sum(sizes) == pytest.approx(step_size * (intervals + 1) / 2)


@given(st.sampled_from(["sqrt", "linear", "none"]), st.integers(1, 200))
def test_no_decay_rises_or_reaches_zero(decay, intervals):
    sizes = [decayed(0.3, decay, k, intervals) for k in range(intervals)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] > 0


def test_the_fixed_schedule_falls_over_the_planned_intervals_also_where_it_ends_before():
    schedule = FixedSchedule(2, 0.8, "linear", 4, np.array([3]), last_slot=5)
    decisions = [schedule.decide(k, 2 * k) for k in range(3)]
    assert [each.step_size for each in decisions] == [0.8, 0.6000000000000001, 0.4]
    assert [each.local_steps for each in decisions] == [2, 2, 1]


@pytest.mark.parametrize("decay", ["linear", "sqrt"])
@pytest.mark.parametrize("turns", [30, 64, 65, 400, 2000])
def test_shares_of_many_turns_have_few_levels_and_leave_hardly_more_noise_in_the_last_model(decay, turns):
    """Against shares that fall as step sizes do, under which Cauchy and Schwarz's inequality is an equality."""
    noises = np.array([noise_of_share(decay, turn, turns) for turn in range(turns)])
    steps = np.array([decayed(1.0, decay, turn, turns) for turn in range(turns)])
    assert (noises**-2.0).sum() == pytest.approx(turns)  # mu^2 of equal noises, each of which is 1
    in_last_model, least = (steps**2 * noises**2).sum(), steps.sum() ** 2 / turns
    if turns <= 64:
        assert len(set(noises)) == turns
        assert in_last_model == pytest.approx(least)
    else:
        assert 10 <= len(set(noises)) <= 20
        assert 1 < in_last_model / least < 1.01
