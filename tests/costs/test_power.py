"""The power that a device chooses: against brute force, at its corners, and what messages then cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from h2fdp.costs.device_costs import PowerRule
from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.network import Radio, Topology
from h2fdp.network.radio import ratio
from h2fdp.streams import Streams
from tests.costs.plans import tasks_of
from tests.networks import placed

weights = st.floats(-12, 12).map(lambda power: 10.0**power)
NETWORK = Topology(
    "net",
    (placed("a", True, [5.0, 40.0, 300.0], [24.0, 24.0, 30.0]), placed("b", False, [20.0, 90.0], [24.0, 10.0])),
    Radio(),
)


def log_cost(rule, dbm, own_dbm, snr):
    """The logarithm of (w1 p + w2) / ln(1 + g p), but for a constant; safe for any ratio."""
    share = np.log(snr) + (dbm - own_dbm) * np.log(10) / 10
    rate = np.where(share < -30, share, np.log(np.log1p(np.exp(np.clip(share, -30, 700)))))
    return np.logaddexp(np.log(rule.per_joule) + (dbm - 30) * np.log(10) / 10, np.log(rule.per_second)) - rate


@given(st.floats(-290, 290), weights, weights, st.floats(-100, 60), st.floats(0.5, 120))
def test_no_power_of_the_range_costs_less(snr_exponent, per_joule, per_second, own_dbm, width):
    rule, snr = PowerRule(own_dbm - width, per_joule, per_second), 10.0**snr_exponent
    chosen = rule.chosen_dbm(np.array([own_dbm]), np.array([snr]))
    assert rule.least_dbm <= chosen[0] <= own_dbm
    grid = np.linspace(rule.least_dbm, own_dbm, 2001)
    assert log_cost(rule, chosen, own_dbm, snr)[0] <= log_cost(rule, grid, own_dbm, snr).min() + 1e-9


@given(st.floats(-3, 6), st.floats(-3, 3))
def test_it_is_the_closed_form_where_that_has_its_digits(snr_exponent, worth):
    """p = (e^u - 1) / g, u = 1 + W0((w2 g / w1 - 1) / e), with own power 1 W so that g is the ratio."""
    snr, second = 10.0**snr_exponent, 10.0**worth
    u = 1 + lambertw((second * snr - 1) / np.e).real
    wanted = 30 + 10 * np.log10(np.expm1(u) / snr)
    found = PowerRule(-300.0, 1.0, second).chosen_dbm(np.array([30.0]), np.array([snr]))[0]
    assert found == pytest.approx(min(wanted, 30.0), abs=1e-4 if second * snr < 1e-3 else 1e-9)


def test_a_message_takes_what_the_chosen_power_takes_and_comes_down_as_before():
    rule = PowerRule(0.0, 1.0, 0.5)
    plain, costs = (NetworkCosts(NETWORK, 7840, Streams(1), power).drawn(3) for power in (None, rule))
    own = np.array([24.0, 24.0, 30.0, 24.0, 10.0])
    assert plain.power_dbm.tolist() == own.tolist()
    assert costs.power_dbm == pytest.approx(rule.chosen_dbm(own, plain.snr), abs=1e-12)
    assert (costs.power_dbm < own).any(), "or nothing is tested"
    assert costs.snr == pytest.approx(plain.snr * ratio(costs.power_dbm - own), rel=1e-12)
    assert costs.joules == pytest.approx(10 ** (costs.power_dbm / 10 - 3) * costs.seconds, rel=1e-12)
    for same in ("down_seconds", "down_snr"):
        assert getattr(costs, same).tolist() == getattr(plain, same).tolist()
    assert plain.down_seconds.tolist() == plain.seconds.tolist()
    assert (costs.joules + 0.5 * costs.seconds <= plain.joules + 0.5 * plain.seconds).all()


@pytest.mark.parametrize("fading", ["rayleigh", "none"])
@pytest.mark.parametrize("rule", [PowerRule(0.0, 1.0, 0.5), PowerRule(-10.0, 1.0, 0.0), PowerRule(9.0, 0.0, 1.0)])
def test_expected_costs_are_the_mean_of_drawn_ones(rule, fading):
    """5 standard errors of 1,500 draws for 10 means in 3 cases: a false alarm once in 58,000. Else all are equal."""
    network = Topology("net", NETWORK.subnets, Radio(fading=fading))
    costs, draws = NetworkCosts(network, 7840, Streams(2), rule), 1500 if fading == "rayleigh" else 2
    drawn = [costs.drawn(interval) for interval in range(draws)]
    for name in ("seconds", "joules"):
        values = np.array([getattr(each, name) for each in drawn])
        error = 5 * values.std(axis=0) / draws**0.5 + 1e-3 * values.mean(axis=0)  # quadrature has three digits
        assert (np.abs(getattr(costs.expected(), name) - values.mean(axis=0)) <= error).all()
    assert costs.expected().down_seconds.tolist() == NetworkCosts(network, 7840, Streams(2)).expected().seconds.tolist()


def test_an_interval_costs_uplinks_at_chosen_power_and_downlinks_as_before():
    """Two local aggregations and the global one: three messages up (two one way in the delay, as the paper has it)."""
    plain, costs = (NetworkCosts(NETWORK, 7840, Streams(1), rule).drawn(0) for rule in (None, PowerRule(0.0, 1.0, 0.0)))
    tasks = tasks_of([0, 1], [range(3), range(2)], [(1, 1, 1)] * 2)
    before, after = (interval_cost(each, NETWORK, tasks) for each in (plain, costs))
    wires = 2 * (3 * costs.link_seconds[0] + 2 * costs.link_seconds[1])
    assert after.delay_s == pytest.approx((3 * costs.seconds + plain.seconds).sum() + wires, rel=1e-12)
    assert after.energy_j == pytest.approx(3 * costs.joules.sum() + costs.link_joules.sum(), rel=1e-12)
    assert before.delay_s == pytest.approx(4 * plain.seconds.sum() + wires, rel=1e-12)
    clock = (
        max(3 * (costs.seconds[rows].sum() + plain.seconds[rows].max()) for rows in (slice(0, 3), slice(3, 5)))
        + 2 * costs.link_seconds[0]
    )
    assert after.clock_s == pytest.approx(clock, rel=1e-12)
