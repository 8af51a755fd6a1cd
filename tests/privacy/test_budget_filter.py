"""What ends a run: budgets to the last digit, and reserves against a search through all ways of drawing on them."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import Accounts
from h2fdp.privacy.accounting import ReleaseType
from h2fdp.privacy.budget_filter import BudgetFilter, Reserve
from h2fdp.privacy.releases import Release

KINDS = [ReleaseType(noise, steps, 1.0, "fixed") for noise in (1.0, 2.0, 3.0) for steps in (1, 2)]
DRAWN = st.lists(st.sampled_from(range(len(KINDS))), max_size=4)


def released(noise_std, steps=1):
    return Release(1, 1, "local", "A", "1", "edge", 1.0, noise_std, steps, 1.0, "fixed")


def accounts_of(releases):
    accounts = Accounts({"A": 1}, ("edge",))
    accounts.add(releases)
    return accounts


@pytest.mark.parametrize(("of_spent", "stops"), [(1.0, None), (1 + 1e-9, None), (1 - 1e-9, "edge"), (1 / 1.01, "edge")])
def test_a_budget_is_exceeded_where_more_is_spent_and_nowhere_else(of_spent, stops):
    accounts = accounts_of([released(20.0)] * 3)
    planned = BudgetFilter.planned({"edge": 1.0}, 1e-5, accounts)
    watched = replace(planned, budgets={"edge": planned.spent(accounts, "edge") * of_spent})
    assert watched.exceeded(accounts) == stops


def drawn_in_some_order(spent, reserve):
    """Whether each release that is spent is given another one of the reserve, of its type and of no more noise."""
    for given_ in itertools.permutations(reserve, len(spent)):
        pairs = [(KINDS[one], KINDS[other]) for one, other in zip(spent, given_, strict=True)]
        if all(a.steps == b.steps and a.noise_multiplier >= b.noise_multiplier for a, b in pairs):
            return True
    return False


@given(DRAWN, DRAWN)
def test_a_reserve_is_exceeded_where_no_way_of_drawing_on_it_is_left(spent, reserve):
    def made(drawn):
        return [released(KINDS[each].noise_multiplier, KINDS[each].steps) for each in drawn]

    kept = Reserve(accounts_of(made(reserve)), ["edge"])
    expected = None if drawn_in_some_order(spent, reserve) else "edge"
    assert kept.exceeded(accounts_of(made(spent)), made(spent)) == expected
