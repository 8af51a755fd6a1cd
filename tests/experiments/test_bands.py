"""Shares of the bandwidth under which all uploads end together: against SciPy's solver, and in whole bills."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from experiments.parts.bands import equal_time, parts_for, seconds_over
from tests.costs.plans import THREE, everybody
from tests.costs.test_access import network, shared


def test_equal_devices_have_equal_shares():
    """Two devices on half the band each see half the noise: 8 bits at 1/2 log2(1 + 6) bits a second."""
    found = equal_time(np.full(2, 4.0), np.full(2, 3.0), np.zeros(2, dtype=int), np.zeros(2))
    assert found == pytest.approx([8 / (0.5 * np.log2(7))] * 2, rel=1e-12)


def test_alone_a_device_has_the_whole_band():
    assert equal_time(np.array([4.0, 2.0]), np.array([3.0, 9.0]), np.array([1, 0]), np.array([0.0, 5.0])) == (
        pytest.approx([4.0, 2.0], rel=1e-12)
    )


devices = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e12), st.integers(0, 2), st.just(0.0) | st.floats(0, 1e5))


@settings(max_examples=200, deadline=None)
@given(drawn=st.lists(devices, min_size=1, max_size=12))
def test_all_of_an_access_point_end_together_over_shares_of_sum_1(drawn):
    seconds, snr, points, lead = (np.array(each) for each in zip(*drawn, strict=True))
    found = equal_time(seconds, snr, points, lead)
    assert (found >= seconds * (1 - 1e-9)).all()
    for point in set(points.tolist()):
        there = points == point
        ends = (found - lead)[there]
        assert ends == pytest.approx([ends.max()] * len(ends), rel=1e-6, abs=1e-6 * found[there].max())
        parts = parts_for(found[there], seconds[there], snr[there])
        power_alone = seconds[there] * np.log1p(snr[there]) / snr[there]  # where the band is wider than any
        if (found[there] > power_alone * (1 + 1e-4)).all():  # else seconds hardly tell the share
            assert parts.sum() == pytest.approx(1, rel=1e-4)


@settings(max_examples=100, deadline=None)
@given(part=st.floats(1e-9, 1), seconds=st.floats(1e-6, 1e6), snr=st.floats(1e-3, 1e12))
def test_a_part_is_found_again_from_its_seconds(part, seconds, snr):
    within = seconds_over(np.array([part]), np.array([seconds]), np.array([snr]))
    assert seconds_over(parts_for(within, np.array([seconds]), np.array([snr])), seconds, snr) == pytest.approx(
        within, rel=1e-9
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_other_shares_end_sooner(seed):
    """The least deadline over all shares, by SLSQP."""
    draws = np.random.default_rng(seed)
    seconds, snr, lead = draws.uniform(0.1, 3, 5), 10 ** draws.uniform(-1, 4, 5), draws.uniform(0, 2, 5)
    solved = minimize(
        lambda x: x[5],
        [*[0.2] * 5, float(seconds_over(np.full(5, 0.2), seconds, snr).max())],
        bounds=[*[(1e-3, 1)] * 5, (None, None)],
        constraints=[
            {"type": "ineq", "fun": lambda x: x[5] + lead - seconds_over(x[:5], seconds, snr)},
            {"type": "eq", "fun": lambda x: x[:5].sum() - 1},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert solved.status in (0, 8), solved.message  # 8: rounding leaves no direction that descends
    found = equal_time(seconds, snr, np.zeros(5, dtype=int), lead)
    assert found - lead == pytest.approx([solved.fun] * 5, rel=1e-7)
    assert parts_for(found, seconds, snr) == pytest.approx(solved.x[:5], rel=1e-4)


TOGETHER = {"name": "experiments.parts.bands:EqualTime"}


def test_equal_devices_have_equal_shares_under_equal_times():
    equal, together = (everybody(network(access), (1, 1)) for access in (shared("equal"), TOGETHER))
    for name in ("energy_j", "delay_s", "clock_s", "bytes"):
        assert getattr(together, name) == pytest.approx(getattr(equal, name), rel=1e-12), name


def test_who_computes_longer_gets_more_of_the_band():
    """All are there at once, so that the clock is that of each, and sooner than with equal shares."""
    of_steps = {"seconds_per_step": [1.0, 4.0, 6.0]}
    powers = (THREE, 10.0, 2.0)
    equal, together = (everybody(network(each, powers, **of_steps), (2,)) for each in (shared("equal"), TOGETHER))
    assert together.clock_s < equal.clock_s - 1
    sent = together.device_energy_j / 10 ** (np.array(powers) / 10 - 3)
    assert 2 * np.array(of_steps["seconds_per_step"]) + sent == pytest.approx([2 * 6 + sent[2]] * 3, rel=1e-9)
