"""The worst epsilon of a slow accountant is that of all accounts, though it looks at few of them."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy import Accounts, Release
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.statement import epsilons, statement, worst_epsilon

DELTA = 1e-5


@dataclass
class Recorded:
    """An accountant that says its part of what `rdp` says, and which accounts it was asked about."""

    part: list[float]
    compositions: list
    name: str = "recorded"
    asked: list[int] = field(default_factory=list)

    def epsilon(self, composition, delta):
        place = self.compositions.index(composition)
        self.asked.append(place)
        return self.part[place] * ACCOUNTANTS["rdp"].epsilon(composition, delta)


@pytest.fixture
def asked(monkeypatch):
    def made(compositions, part):
        accountant = Recorded(part, compositions)
        monkeypatch.setitem(ACCOUNTANTS, "recorded", accountant)
        return accountant

    return made


def falling(count):
    """Accounts of ever more noise."""
    return [{ReleaseType(1.0 + place / 200, 1, 0.1): 10} for place in range(count)]


def test_the_largest_is_found_though_another_account_is_the_largest_by_rdp(asked):
    compositions = falling(20)
    recorded = asked(compositions, [0.8] * 3 + [0.99] + [0.9] * 16)
    found, largest = epsilons("recorded", compositions, DELTA)
    assert largest == found[3] == max(each for each in found if each is not None)
    rdp = [ACCOUNTANTS["rdp"].epsilon(each, DELTA) for each in compositions]
    assert sorted(recorded.asked) == [place for place in range(20) if found[place] is not None]
    assert all(rdp[place] <= largest for place in range(20) if found[place] is None)
    assert len(recorded.asked) < 20


def test_of_many_distinct_accounts_the_worst_by_pld_is_above_a_target_just_where_a_run_that_is_held_to_it_ends():
    accounts, names = Accounts({"a": 70}), [f"a/{row + 1}" for row in range(70)]
    for row in range(70):  # nearly equal: `rdp` says of all of them more than `pld` says of any
        release = Release(1, 5, "local", "a", str(row + 1), "cloud", 1.0, 12 + row / 500, 1, 1.0, "fixed")
        accounts.add([release], times=40)
    pld, found = ACCOUNTANTS["pld"], statement(accounts.held(), names, DELTA, ("rdp", "pld"))
    worst = found["worst"]["cloud"]["pld"]
    assert worst == max(pld.epsilon(each.composition, DELTA) for each in accounts.classes("cloud"))
    assert min(each["cloud"]["rdp"] for each in found["devices"].values()) > worst
    assert not accounts.exceeds("cloud", worst, DELTA, pld)
    assert accounts.exceeds("cloud", worst * (1 - 1e-9), DELTA, pld)


def test_the_statement_says_no_less_than_any_device_has():
    rng = np.random.default_rng(1)
    accounts, names = Accounts({"a": 12}), [f"a/{row + 1}" for row in range(12)]
    for row in range(12):
        noise, rate, steps = float(rng.uniform(0.6, 6)), float(rng.uniform(0.001, 0.3)), int(rng.integers(1, 8))
        releases = Release(1, 5, "local", "a", str(row + 1), "cloud", 1.0, noise, steps, rate, "poisson")
        accounts.add([releases], times=int(rng.integers(1, 40)))
    found = statement(accounts.held(), names, DELTA, ("rdp", "pld"))
    exact = [ACCOUNTANTS["pld"].epsilon(each.composition, DELTA) for each in accounts.classes("cloud")]
    assert found["worst"]["cloud"]["pld"] == max(exact)
    assert found["worst"]["cloud"]["rdp"] == max(each["cloud"]["rdp"] for each in found["devices"].values())
    listed = [each["cloud"] for each in found["devices"].values()]
    assert all(each["pld"] is not None or each["rdp"] <= max(exact) for each in listed)
    by_pld = statement(accounts.held(), names, DELTA, ("pld",))["worst"]["cloud"]
    assert found["devices"][by_pld["device"]]["cloud"]["pld"] == by_pld["pld"] == max(exact)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["1", "2", "3", "1-2", "2-4", "1-4"]),
            st.sampled_from([1.0, 1.5, 2.0, 3.0]),
            st.sampled_from([(1, 1.0), (1, 0.2), (5, 0.05)]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_worst_epsilon_is_the_largest_of_all_accounts_though_most_are_passed_over(rows):
    accounts = Accounts({"a": 4})
    accounts.add(
        Release(1, 1, "local", "a", devices, "cloud", 1.0, multiplier, steps, rate, "poisson")
        for devices, multiplier, (steps, rate) in rows
    )
    largest = max(ACCOUNTANTS["pld"].epsilon(each.composition, DELTA) for each in accounts.classes("cloud"))
    assert worst_epsilon(accounts, "cloud", DELTA, "pld") == pytest.approx(largest, rel=5e-4)  # what pld promises
    assert worst_epsilon(accounts, "edge", DELTA, "pld") is None


def test_a_slow_accountant_looks_at_as_many_as_it_takes(asked):
    compositions = falling(100)
    recorded = asked(compositions, [0.1] * 99 + [0.3])
    found, largest = epsilons("recorded", compositions, DELTA)
    assert sorted(recorded.asked) == list(range(100))
    assert largest == found[99] == max(found)
