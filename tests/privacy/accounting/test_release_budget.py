"""The largest number of releases within a budget: accounts whose answer is known, and the papers' table of R_c."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType, iteration_budget, largest_count

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
    assert account.asked <= 150  # three for each halving of 10^10, and the way up


@pytest.mark.parametrize("epsilon", [2.0, 1e3, 1e6])
def test_few_accounts_are_asked_for_however_large_the_budget(epsilon):
    """Doubling and bisection take 2 log2(count) of them: 66 at 1e6."""
    account = Account(lambda count: 1.4e-4 * count + 0.06 * math.sqrt(count))
    found = largest_count(STEP, epsilon, 1e-5, account)
    assert account.asked <= 20
    assert account.epsilon({STEP: found}, 1e-5) <= epsilon < account.epsilon({STEP: found + 1}, 1e-5)


DELTA, CLASSIC = 1e-5, ACCOUNTANTS["classic-rdp"]
PAPERS_STEP = ReleaseType(1.1, steps=1, sampling_rate=0.015)  # noise multiplier 1.1, q = 0.015
TARGETS = [1.55, 1.65, 1.75, 1.85, 2.0, 2.25, 2.5, 2.75, 3.25]
PUBLISHED = [79, 122, 177, 231, 317, 457, 598, 775, 1123]
NEVER_OVERSPENDING = [78, 118, 174, 230, 314, 454, 596, 770, 1119]


@pytest.mark.parametrize(("target", "count"), list(zip(TARGETS, PUBLISHED, strict=True)))
def test_the_papers_table(target, count):
    assert iteration_budget("paper", PAPERS_STEP, target, DELTA, CLASSIC) == count
    assert target < CLASSIC.epsilon({PAPERS_STEP: count}, DELTA) < target + 0.01


@pytest.mark.parametrize(("target", "count"), list(zip(TARGETS, NEVER_OVERSPENDING, strict=True)))
def test_the_table_without_overspending(target, count):
    assert iteration_budget("safe", PAPERS_STEP, target, DELTA, CLASSIC) == count
    assert CLASSIC.epsilon({PAPERS_STEP: count}, DELTA) <= target < CLASSIC.epsilon({PAPERS_STEP: count + 1}, DELTA)


@given(st.floats(0.5, 20), st.floats(0.7, 20), st.floats(0.001, 1))
def test_the_papers_search_stops_near_its_target_on_either_side(target, noise, rate):
    step = ReleaseType(noise, 1, rate)
    found, safe = (iteration_budget(search, step, target, DELTA, CLASSIC) for search in ("paper", "safe"))
    assert found >= safe
    assert CLASSIC.epsilon({step: found}, DELTA) < target + 0.01
