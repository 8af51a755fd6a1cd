"""The exponential average of estimates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.errors import UserError
from h2fdp.schedules.loss_constants import Smoothed

values = st.lists(st.one_of(st.none(), st.floats(-100, 100)), max_size=20)
weights = st.floats(0.01, 1)


@given(values, weights, st.floats(-100, 100))
def test_it_is_the_weighted_sum_of_what_came_in(found, weight, prior):
    average = Smoothed(prior, weight)
    for value in found:
        average = average.updated(value)
    came = [value for value in found if value is not None]
    expected = prior * (1 - weight) ** len(came)
    for age, value in enumerate(reversed(came)):
        expected += weight * (1 - weight) ** age * value
    assert average.value == pytest.approx(expected, abs=1e-9)


@given(weights)
def test_the_first_value_is_taken_whole_where_nothing_was_known(weight):
    assert Smoothed(None, weight).updated(None).value is None
    assert Smoothed(None, weight).updated(3.0).value == 3.0


@pytest.mark.parametrize("weight", [0.0, 1.5, float("nan")])
def test_a_weight_that_averages_nothing_is_refused(weight):
    with pytest.raises(UserError, match="weight: expected a number above 0 and at most 1"):
        Smoothed(1.0, weight)
