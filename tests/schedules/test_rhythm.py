"""Slots of local aggregations (H2FDP, Sec. 3.1 and its decisions)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.schedules import FixedSchedule, Rhythm


@pytest.mark.parametrize(
    ("rhythm", "local_steps", "offsets"),
    [
        (Rhythm(every=5), 20, (5, 10, 15)),
        (Rhythm(every=5), 21, (5, 10, 15, 20)),
        (Rhythm(every=20), 20, ()),
        (Rhythm(every=1), 3, (1, 2)),
        (Rhythm(per_interval=3), 20, (5, 10, 15)),
        (Rhythm(per_interval=2), 20, (7, 13)),
        (Rhythm(per_interval=0), 20, ()),
        (Rhythm(per_interval=5), 3, (1, 2)),  # duplicates and the last slot dropped
        (Rhythm(per_interval=3), 1, ()),
        (Rhythm(), 20, ()),
    ],
)
def test_offsets(rhythm, local_steps, offsets):
    assert rhythm.offsets(local_steps) == offsets


@given(
    st.integers(1, 60),
    st.one_of(st.builds(Rhythm, every=st.integers(1, 70)), st.builds(Rhythm, per_interval=st.integers(0, 70))),
)
def test_segments_fill_the_interval(local_steps, rhythm):
    segments = rhythm.segments(local_steps)
    assert sum(segments) == local_steps
    assert min(segments) >= 1
    assert len(segments) == len(rhythm.offsets(local_steps)) + 1


def test_the_step_size_falls_with_the_square_root_of_the_interval():
    import numpy as np

    schedule = FixedSchedule(20, 0.1, "sqrt", np.array([5, 1]), share=0.5)
    assert [schedule.decide(k, 0).step_size for k in (0, 3)] == [0.1, 0.05]
    assert schedule.decide(0, 0).participation.tolist() == [2, 1]
