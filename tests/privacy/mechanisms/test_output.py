"""Output perturbation: Theorem 6.2 forwards and backwards, and the account that the theorem's proof does not give."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import Accounts, AggregationCounts
from h2fdp.privacy.mechanisms.perturbations import OutputPerturbation, spent_of, theorem_6_2
from tests.privacy.mechanisms.settings import RATES, RECORDS, by_observer, setting, upload
from tests.privacy.uploads import levels_of, rows_of

GIVEN = OutputPerturbation(noise_multiplier=0.2).mechanism(setting(clip_norm=2.0))


def levels(mechanism):
    return levels_of(mechanism, "device", np.array([0.5, 0.3, 0.2]), RATES, RECORDS)


def accounts(mechanism, intervals, levels):
    found = Accounts({"a": 3})
    for interval in range(1, intervals + 1):
        found.add(rows_of(mechanism, upload("device", levels, interval=interval)))
    return found


@given(st.floats(1e-3, 1e3), st.floats(1e-9, 0.5))
def test_the_theorem_read_backwards(epsilon, delta):
    assert theorem_6_2(spent_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


def test_calibrated_noises_fall_with_the_records():
    (calibrated,) = levels(OutputPerturbation().mechanism(setting(clip_norm=2.0)))
    for level, records in zip(calibrated, RECORDS, strict=True):
        # a = M tau^2 / (2 sigma^2 D^2), M = 10 intervals.
        spent = 10 * 4.0 / (2 * level**2 * records**2)
        assert 2.0 * (1 - 1e-4) < 2 * math.sqrt(spent * math.log(1e5)) + spent <= 2.0


def test_local_aggregations_are_releases_too():
    twice = levels(OutputPerturbation().mechanism(setting(local_aggregations=10)))
    once = levels(OutputPerturbation().mechanism(setting()))
    np.testing.assert_allclose(twice / once, math.sqrt(2))


def test_the_claim_is_the_theorem_of_the_device_with_the_fewest_records():
    spent = 7 * 4.0 / (2 * 0.8**2 * 100**2)
    expected = 2 * math.sqrt(spent * math.log(1e5)) + spent
    assert GIVEN.claimed(accounts(GIVEN, 7, [0.8] * 3), AggregationCounts(0, 7)) == pytest.approx(expected, rel=1e-4)
    assert GIVEN.claimed(Accounts({"a": 3}), AggregationCounts(0, 0)) == 0.0


def test_the_edge_server_sees_single_models_at_twice_their_norm_and_the_others_averages():
    seen = by_observer(rows_of(GIVEN, upload("device", [0.8] * 3)))
    assert seen["edge"] == {(12, "1-3"): (4.0, 0.8, 1, 1.0, "fixed")}
    noise = 0.8 * math.sqrt(0.25 + 0.09 + 0.04)
    for observer in ("cloud", "public"):
        assert seen[observer] == {
            (12, str(device)): (pytest.approx(4.0 * weight), pytest.approx(noise), 1, 1.0, "fixed")
            for device, weight in ((1, 0.5), (2, 0.3), (3, 0.2))
        }
    # The worst peer of devices 2 and 3 is device 1, of device 1 device 2.
    assert seen["peer"][(12, "1")][1] == pytest.approx(0.8 * math.sqrt(0.25 + 0.04))
    assert seen["peer"][(12, "2")][1] == pytest.approx(0.8 * math.sqrt(0.09 + 0.04))
