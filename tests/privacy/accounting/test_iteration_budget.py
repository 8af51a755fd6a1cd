"""R_c, the local iterations within a privacy budget: the table of the ALI-DPFL papers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.calibration import iteration_budget

DELTA, CLASSIC = 1e-5, ACCOUNTANTS["classic-rdp"]
STEP = ReleaseType(1.1, steps=1, sampling_rate=0.015)  # noise multiplier 1.1, q = 0.015
TARGETS = [1.55, 1.65, 1.75, 1.85, 2.0, 2.25, 2.5, 2.75, 3.25]
PUBLISHED = [79, 122, 177, 231, 317, 457, 598, 775, 1123]
NEVER_OVERSPENDING = [78, 118, 174, 230, 314, 454, 596, 770, 1119]


@pytest.mark.parametrize(("target", "count"), list(zip(TARGETS, PUBLISHED, strict=True)))
def test_the_papers_table(target, count):
    assert iteration_budget("paper", STEP, target, DELTA, CLASSIC) == count
    assert target < CLASSIC.epsilon({STEP: count}, DELTA) < target + 0.01


@pytest.mark.parametrize(("target", "count"), list(zip(TARGETS, NEVER_OVERSPENDING, strict=True)))
def test_the_table_without_overspending(target, count):
    assert iteration_budget("safe", STEP, target, DELTA, CLASSIC) == count
    assert CLASSIC.epsilon({STEP: count}, DELTA) <= target < CLASSIC.epsilon({STEP: count + 1}, DELTA)


@given(st.floats(0.5, 20), st.floats(0.7, 20), st.floats(0.001, 1))
def test_the_papers_search_stops_near_its_target_on_either_side(target, noise, rate):
    step = ReleaseType(noise, 1, rate)
    found, safe = (iteration_budget(search, step, target, DELTA, CLASSIC) for search in ("paper", "safe"))
    assert found >= safe
    assert CLASSIC.epsilon({step: found}, DELTA) < target + 0.01
