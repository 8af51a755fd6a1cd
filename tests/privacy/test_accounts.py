"""Accounts of observers: the same from the run, from the ledger, and release by release."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy import Accounts, BudgetFilter, Release
from h2fdp.privacy.accounting import ACCOUNTANTS, ORDERS, ReleaseType
from h2fdp.privacy.accounts import release_type
from h2fdp.privacy.releases import AlikeReleases

DELTA = 1e-5


def release(observer="cloud", devices="1-2", edge="a", multiplier=4.0, steps=5, rate=0.1, interval=1):
    return Release(
        interval, 5 * interval, "local", edge, devices, observer, 0.5, 0.5 * multiplier, steps, rate, "poisson"
    )


def by_device(accounts, observer):
    return {int(device): each.composition for each in accounts.classes(observer) for device in each.devices}


def test_devices_are_told_apart_by_what_was_released_about_them():
    accounts = Accounts({"a": 3, "b": 2})
    accounts.add([release(devices="1-3"), release(devices="2"), release(edge="b", devices="1", multiplier=8.0)])
    one, other = ReleaseType(4.0, 5, 0.1, "poisson"), ReleaseType(8.0, 5, 0.1, "poisson")
    assert by_device(accounts, "cloud") == {0: {one: 1}, 1: {one: 2}, 2: {one: 1}, 3: {other: 1}}
    assert by_device(accounts, "edge") == {}
    assert accounts.worst("edge", DELTA) is None


def test_the_worst_device_counts():
    accounts = Accounts({"a": 2})
    accounts.add([release(devices="1-2"), release(devices="2")])
    expected = ACCOUNTANTS["rdp"].epsilon({release_type(release()): 2}, DELTA)
    assert accounts.worst("cloud", DELTA) == pytest.approx(expected)


def test_what_was_not_released_can_be_taken_back():
    accounts = Accounts({"a": 2})
    accounts.add([release()])
    before = accounts.worst("cloud", DELTA)
    accounts.add([release(multiplier=1.0)])
    accounts.add([release(multiplier=1.0)], times=-1)
    assert accounts.worst("cloud", DELTA) == before


def test_a_ledger_alone_gives_the_same_accounts():
    rows = [release(devices="1-3"), release(devices="2"), release(edge="b", devices="2", multiplier=8.0)]
    direct = Accounts({"a": 3, "b": 2})
    direct.add(rows)
    assert by_device(Accounts.of_ledger(rows), "cloud") == by_device(direct, "cloud")


@given(st.floats(1e-3, 1e6), st.floats(1e-6, 1e3))
def test_rounding_never_adds_noise_and_takes_next_to_nothing(noise_std, sensitivity):
    row = Release(1, 1, "local", "a", "1", "edge", sensitivity, noise_std, 1, 0.1, "poisson")
    ratio = noise_std / sensitivity
    rounded = release_type(row).noise_multiplier
    assert ratio * (1 - 1.001e-5) <= rounded <= ratio * (1 + 1e-11)


def test_equal_ratios_of_different_intervals_are_one_type():
    """Noise and sensitivity both follow the step size; their ratio differs in the last bits only."""
    kinds = set()
    for interval in range(1, 300):
        step = 0.1 / np.sqrt(interval)
        sensitivity = 2 * step * 5 * 1.0
        noise_std = 2**0.5 * (32 / 1200) * (2 * step * 20) * 83.1
        kinds.add(release_type(Release(1, 1, "local", "a", "1", "edge", sensitivity, noise_std, 5, 0.1, "poisson")))
    assert len(kinds) == 1


class TestBudgetFilter:
    def interval(self):
        accounts = Accounts({"a": 2})
        accounts.add([release(multiplier=6.0)] * 4)
        return accounts

    def test_training_ends_before_the_budget_is_exceeded_and_not_much_before(self):
        budget = BudgetFilter.planned({"cloud": 2.0}, DELTA, self.interval())
        accounts, intervals = Accounts({"a": 2}), 0
        while True:
            accounts.add([release(multiplier=6.0)] * 4)
            if budget.exceeded(accounts):
                break
            intervals += 1
            assert accounts.worst("cloud", DELTA) <= 2.0
        # The best any order could do, found by brute force over all of them.
        kind, best = release_type(release(multiplier=6.0)), intervals
        while ACCOUNTANTS["rdp"].epsilon({kind: 4 * (best + 1)}, DELTA) <= 2.0:
            best += 1
        assert intervals == best

    def test_spending_at_one_order_is_never_below_the_account(self):
        budget = BudgetFilter.planned({"cloud": 2.0}, DELTA, self.interval())
        for times in (1, 5, 50):
            accounts = Accounts({"a": 2})
            accounts.add([release(multiplier=6.0)], times=times)
            assert budget.spent(accounts, "cloud") >= accounts.worst("cloud", DELTA) * (1 - 1e-12)

    def test_spending_is_watched_at_the_fixed_order_only(self):
        """After few releases the best order is another one: a filter that took the best would be no filter."""
        budget = BudgetFilter.planned({"cloud": 8.0}, DELTA, self.interval())
        accounts = Accounts({"a": 2})
        accounts.add([release(multiplier=6.0)] * 4)
        assert budget.spent(accounts, "cloud") > accounts.worst("cloud", DELTA) * 1.05

    def test_an_observer_without_a_budget_may_learn(self):
        budget = BudgetFilter.planned({"edge": 0.1}, DELTA, self.interval())
        assert budget.exceeded(self.interval()) is None
        assert 0 <= budget.orders["edge"] < len(ORDERS)


@pytest.mark.slow
def test_many_noises_share_a_grid_that_over_counts_by_little():
    """Types beyond the 64th are rounded down by at most half a per cent, and taking them back leaves nothing."""
    multipliers = 4.0 + np.random.default_rng(0).random(300)
    rows = [release(devices="1", multiplier=float(each)) for each in multipliers]
    accounts = Accounts({"a": 1})
    accounts.add(rows)
    (found,) = accounts.classes("cloud")
    assert len(found.composition) < 64 + 60
    assert sum(found.composition.values()) == 300
    exact = ACCOUNTANTS["rdp"].epsilon(dict.fromkeys(map(release_type, rows), 1), DELTA)
    assert exact <= accounts.worst("cloud", DELTA) <= exact * 1.02
    accounts.add(rows, times=-1)
    assert list(accounts.classes("cloud")) == []


EDGES = ("a", "b", "c", "d")
SOME_RELEASES = st.lists(
    st.builds(
        release,
        observer=st.sampled_from(["edge", "cloud"]),
        devices=st.sampled_from(["1", "1-2", "2", "1,3"]),
        multiplier=st.sampled_from([2.0, 4.0]),
    ),
    max_size=3,
)
ENTRIES = st.tuples(st.lists(st.sampled_from(EDGES), min_size=1, unique=True), SOME_RELEASES, st.booleans())


@given(entries=st.lists(ENTRIES, max_size=6))
@settings(max_examples=60)
def test_subnets_with_the_same_releases_are_entered_together_or_one_by_one(entries):
    together, single = Accounts(dict.fromkeys(EDGES, 3)), Accounts(dict.fromkeys(EDGES, 3))
    for edges, rows, at_once in entries:
        of_each = [replace(row, edge=edge) for edge in edges for row in rows]
        single.add(of_each, times=2)
        if at_once:
            together.add_alike([AlikeReleases(edges, rows)], times=2)
        else:
            together.add(of_each, times=2)
    for observer in single.observers:
        assert by_device(together, observer) == by_device(single, observer)
        assert together.worst(observer, DELTA) == single.worst(observer, DELTA)
