"""How the step size falls over a run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.schedules import FixedSchedule
from h2fdp.schedules.aggregation_times import decayed


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
