"""Other libraries find the same epsilons: of DP-SGD within 0.5 %, of whole devices within the bounds that they state.

From the settings of a file to the account.
"""

import pytest

from experiments.accounts.libraries import (
    DEVICE_RUNS,
    RUNS,
    bounds_of_opacus,
    of_devices,
    of_dp_accounting,
    of_h2fdp,
    of_opacus,
)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS[2:], ids=str)  # the longer ones take Opacus a minute: the command has them
def test_epsilons_are_those_of_dp_accounting_and_of_opacus(run):
    """TensorFlow Privacy and JAX Privacy account by dp-accounting. Opacus adds its own error of 0.2 %."""
    found = of_h2fdp(run)
    assert found == pytest.approx(of_dp_accounting(run), rel=2e-3)
    assert found == pytest.approx(of_opacus(run), rel=5e-3)


@pytest.mark.parametrize("run", RUNS[2:4], ids=str)
def test_epsilons_by_renyi_divergences_are_theirs_where_whole_orders_suffice(run):
    """The other libraries also try fractional orders below 11: an advantage of at most half a per cent here."""
    assert of_h2fdp(run, "rdp") == pytest.approx(of_opacus(run, "rdp"), rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("run", DEVICE_RUNS, ids=str)
def test_epsilons_of_devices_are_those_of_dp_accounting_and_within_the_bounds_of_opacus(run):
    """Secret draws, several releases of an interval, turns, whole sums; deltas of 1e-12 to 1e-2. Opacus bounds epsilon
    from both sides, some 0.4 % apart: ours, an upper bound, is never below the lower one nor above the upper one. It is
    within 0.4 % of dp-accounting, whose grid costs 0.2 % at 1e-12, and not above accounts by Renyi divergences.

    At 1e-12 the transforms of both libraries round by a tenth of delta, which processors do differently: they get 0.5 %
    more room. (Importance sampling of 120,000 sums finds (1.02 +- 0.014) 1e-12 at our epsilon of 1,500 intervals.)"""
    found, same = of_devices(run), run.equivalent
    low, high = bounds_of_opacus(same)
    room = 5e-3 if run.delta < 1e-10 else 0.0
    assert low * (1 - room) <= found <= high * (1 + room) <= low * 1.006 * (1 + 2 * room)
    assert found == pytest.approx(of_dp_accounting(same), rel=4e-3 + room)
    assert found <= of_opacus(same, "rdp")
