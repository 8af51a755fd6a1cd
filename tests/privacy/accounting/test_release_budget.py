"""The largest count within a budget, against accounts whose answer is known, and how many accounts it takes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy.accounting import ReleaseType
from h2fdp.privacy.calibration import largest_count

STEP = ReleaseType(1.0, 1, 0.1)


class Account:
    """epsilon of a count by a rule; counts how often it is asked."""

    def __init__(self, rule):
        self._rule, self.asked = rule, 0

    def epsilon(self, composition, delta):
        self.asked += 1
        (count,) = composition.values()
        return self._rule(count)


@settings(max_examples=60)
@given(
    st.integers(0, 10**10),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.sampled_from([0.0, 1.0, 50.0]),
    st.integers(1, 10**10),
)
def test_it_is_the_last_one_within_the_budget(target, linear, root, jump, place):
    """Lines, roots, both, and a jump somewhere."""

    def rule(count):
        return 1e-9 * count + linear * count + root * math.sqrt(count) + jump * (count >= place)

    account, budget = Account(rule), rule(target)
    found = largest_count(STEP, budget, 1e-5, account)
    assert found == 0 or rule(found) <= budget
    assert rule(found + 1) > budget
    assert account.asked <= 80  # one for each halving of 10^10, and the way up


@pytest.mark.parametrize("epsilon", [2.0, 1e3, 1e6])
def test_few_accounts_are_asked_for_however_large_the_budget(epsilon):
    """Doubling and bisection would take 2 log2(count) of them: 66 at 1e6."""
    account = Account(lambda count: 1.4e-4 * count + 0.06 * math.sqrt(count))
    found = largest_count(STEP, epsilon, 1e-5, account)
    assert account.asked <= 48
    assert account.epsilon({STEP: found}, 1e-5) <= epsilon < account.epsilon({STEP: found + 1}, 1e-5)
