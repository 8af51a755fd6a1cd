"""Verdicts by rule."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.reproduction.quantities import Estimate
from experiments.reproduction.verdict import BY_LESS, LESS_IF_ANY, UNDECIDED, Verdict, remark, verdict

numbers = st.floats(-100, 100)
lengths = st.floats(0, 50)


@st.composite
def estimates(draw):
    value = draw(numbers)
    return Estimate(value, value - draw(lengths), value + draw(lengths))


@given(numbers, lengths, estimates())
def test_what_holds_as_at_least_has_its_whole_interval_there_and_above_zero(number, tolerance, size):
    found = verdict("at least", number, tolerance, size, size)
    assert (found is Verdict.HOLDS) == (size.low >= number - tolerance and size.low > 0)
    assert (found is Verdict.FAILS) == (size.low <= 0)


@given(numbers, lengths, estimates(), estimates())
def test_at_most_has_no_direction(number, tolerance, size, direction):
    found = verdict("at most", number, tolerance, size, direction)
    assert found is (Verdict.HOLDS if size.high <= number + tolerance else Verdict.FAILS)


@given(st.sampled_from(["at least", "at most"]), numbers, lengths, numbers)
def test_without_an_interval_nothing_is_judged(relation, number, tolerance, value):
    one_seed = Estimate(value, math.nan, math.nan)
    assert verdict(relation, number, tolerance, one_seed, one_seed) is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(5.2, 9, "holds"), (4.9, 9, "holds in direction"), (0.1, 3, "holds in direction"), (-0.1, 20, "does not hold")],
)
def test_six_points_with_one_of_tolerance(low, high, expected):
    size = Estimate((low + high) / 2, low, high)
    assert verdict("at least", 6, 1, size, size) == expected


@given(st.sampled_from(["at least", "at most"]), numbers, lengths, estimates(), estimates())
def test_a_verdict_is_final_exactly_where_no_number_of_its_intervals_would_be_judged_better(
    relation, number, tolerance, size, direction
):
    judged = verdict(relation, number, tolerance, size, direction)
    best = [Estimate(*[each.low if relation == "at most" else each.high] * 3) for each in (size, direction)]
    word = remark(judged, relation, number, tolerance, size, direction)
    if judged is Verdict.FAILS:
        better = verdict(relation, number, tolerance, *best)
        assert word == {Verdict.HOLDS: UNDECIDED, Verdict.IN_DIRECTION: LESS_IF_ANY}.get(better, "")
    elif judged is Verdict.IN_DIRECTION:
        better = verdict(relation, number, tolerance, *best) is Verdict.HOLDS
        assert word == ("" if better else BY_LESS)
    else:
        assert word == ""
