"""Renyi to (epsilon, delta), against dp-accounting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy.accounting import ORDERS, ReleaseType, epsilon_at_order, epsilon_from_rdp, rdp_of
from h2fdp.privacy.accounting.renyi import classic_epsilon_from_rdp

RELEASES = st.builds(ReleaseType, st.floats(0.3, 100), st.integers(1, 20), st.floats(1e-4, 1))


@given(RELEASES, st.integers(1, 10**6), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_it_is_the_conversion_of_dp_accounting(release, count, delta):
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    rdp = count * rdp_of(release)
    assert float(epsilon_from_rdp(rdp, delta)) == pytest.approx(compute_epsilon(ORDERS, rdp, delta)[0], rel=1e-12)


@given(RELEASES, st.integers(1, 1000))
def test_the_best_fixed_order_is_the_epsilon_and_no_other_is_below(release, count):
    rdp = count * rdp_of(release)
    fixed = [float(epsilon_at_order(rdp, index, 1e-5)) for index in range(ORDERS.size)]
    assert min(fixed) == float(epsilon_from_rdp(rdp, 1e-5))


def test_the_classic_conversion_by_hand():
    rdp = ORDERS / 200.0
    by_hand = min(order / 200 + np.log(1e5) / (order - 1) for order in range(2, 65))
    assert float(classic_epsilon_from_rdp(rdp, 1e-5)) == pytest.approx(by_hand, rel=1e-14)
