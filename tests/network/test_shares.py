"""Shares of the bandwidth under which all uploads end together, alone and with frequencies: against SciPy's solvers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from h2fdp.costs import FrequencyRule
from h2fdp.network.shares import PlannedUploads, equal_time, parts_for, seconds_over


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


def problem(seed, joule, second):
    """Six devices of two access points; two uploads an interval from one of them, one from the other."""
    draws = np.random.default_rng(seed)
    points = np.array([0, 0, 0, 1, 1, 1])
    uploads = PlannedUploads(
        seconds=draws.uniform(0.05, 0.5, 6),
        snr=10 ** draws.uniform(0, 4, 6),
        watts=draws.uniform(0.05, 0.5, 6),
        points=points,
        times=np.where(points, 1.0, 2.0),
    )
    cycles, own, capacitance = draws.uniform(1e8, 3e9, 6), draws.uniform(1e9, 5e9, 6), draws.uniform(1e-28, 3e-28, 6)
    return uploads, (cycles, capacitance, own, draws.uniform(0, 0.3, 6)), FrequencyRule(0.3, joule, second)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("joule", "second"), [(1.0, 0.3), (0.5, 2.0), (1.0, 30.0), (1.0, 1e-3)])
def test_shares_and_frequencies_are_those_of_a_solver_of_convex_problems(seed, joule, second):
    """HFEL's problem with its uploads' joules: over frequencies, shares and the deadline, by SLSQP."""
    uploads, (cycles, capacitance, own, waits), rule = problem(seed, joule, second)

    def joules(ghz, sending):
        return float((capacitance / 2 * cycles * (ghz * 1e9) ** 2 + uploads.watts * uploads.times * sending).sum())

    def over(shares):
        return seconds_over(shares, uploads.seconds, uploads.snr)

    def weighed(x):
        found = joule * joules(np.array(x[:6]), over(np.array(x[6:12]))) + second * x[12]
        return found / max(joule, second)  # of the size that SLSQP likes

    begin = uploads.end(waits + cycles / own) * 1.3
    solved = min(
        (
            minimize(
                weighed,
                [*(own / 1e9 * scale), *[1 / 3] * 6, begin / scale],
                bounds=[*((0.3, most / 1e9) for most in own), *[(1e-3, 1)] * 6, (0, None)],
                constraints=[
                    {
                        "type": "ineq",
                        "fun": lambda x: x[12] - waits - cycles / (x[:6] * 1e9) - uploads.times * over(x[6:12]),
                    },
                    {"type": "eq", "fun": lambda x: x[6:12].reshape(2, 3).sum(axis=1) - 1},
                ],
                method="SLSQP",
                options={"ftol": 1e-12, "maxiter": 3000},
            )
            for scale in (1.0, 0.7, 0.4)
        ),
        key=lambda each: each.fun if each.success else np.inf,
    )
    assert solved.success
    hertz, parts = rule.chosen_plan(cycles, capacitance, own, waits, uploads)
    sending = over(parts)
    end = float((waits + cycles / hertz + uploads.times * sending).max())
    assert weighed([*(hertz / 1e9), *parts, end]) == pytest.approx(solved.fun, rel=1e-5)
    assert parts == pytest.approx(solved.x[6:12], abs=2e-2)
    assert hertz / 1e9 == pytest.approx(solved.x[:6], rel=2e-2)


def test_without_a_weight_of_joules_or_seconds():
    """All as fast as they can, or as slowly as they may; then bandwidth goes where it saves the most joules."""
    uploads, (cycles, capacitance, own, waits), _ = problem(1, 1.0, 1.0)
    assert FrequencyRule(0.3, 0.0, 1.0).chosen_plan(cycles, capacitance, own, waits, uploads) is None
    hertz, parts = FrequencyRule(0.3, 1.0, 0.0).chosen_plan(cycles, capacitance, own, waits, uploads)
    assert hertz == pytest.approx([0.3e9] * 6)

    def joules(shares):
        return float((uploads.watts * uploads.times * seconds_over(shares, uploads.seconds, uploads.snr)).sum())

    sums = {"type": "eq", "fun": lambda x: x.reshape(2, 3).sum(axis=1) - 1}
    solved = minimize(joules, [1 / 3] * 6, bounds=[(1e-3, 1)] * 6, constraints=sums, method="SLSQP")
    assert joules(parts) == pytest.approx(solved.fun, rel=1e-6)
