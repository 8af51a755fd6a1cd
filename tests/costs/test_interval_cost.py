"""What an interval costs: by hand, and against the formulas written out device by device."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.costs import Failing, fading_power
from h2fdp.network import Link, Topology
from h2fdp.streams import Streams
from tests.costs.plans import PLAIN, THREE, cost, everybody, failures, plans, written_out
from tests.networks import placed


def two_devices(access="tdma", powers=(THREE, THREE), **of_steps):
    link = Link(rate_bps=8.0, power_dbm=30.0)  # one watt
    network = Topology("net", (placed("a", True, [1.0, 1.0], powers, link),), replace(PLAIN, access=access))
    return network.with_devices(**of_steps)


def test_by_hand():
    """8 bits: t = 4 s and e = 0.003 W * 4 s; tbar = 1 s and ebar = 1 J. One local and one global aggregation."""
    found = everybody(two_devices(seconds_per_step=0.5, joules_per_step=0.25), (3, 2))
    e = 0.012
    assert found.local_energy_j == pytest.approx([2 * e])
    assert found.global_energy_j == pytest.approx([2 * e + 1])
    assert found.compute_energy_j == pytest.approx([0.25 * 5 * 2])
    assert found.wired_energy_j == pytest.approx([1])
    assert found.device_energy_j == pytest.approx([2 * e + 1.25] * 2)
    assert found.energy_j == pytest.approx(4 * e + 1 + 2.5)
    assert found.local_delay_s == pytest.approx([8])
    assert found.global_delay_s == pytest.approx([2 * (5 + 5)])  # tbar counts once for each active device
    assert found.device_delay_s == pytest.approx([14, 14])
    assert found.delay_s == pytest.approx(28)
    assert found.clock_s == pytest.approx(5 * 0.5 + 2 * (8 + 4) + 2)


def test_shared_bandwidth_by_hand():
    """Two devices on half a hertz each see half the noise: R = 1/2 log2(1 + 6)."""
    found = everybody(two_devices("ofdma"), (1, 1))
    assert found.clock_s == pytest.approx(2 * (8 / (0.5 * log2(7)) + 4) + 2, rel=1e-12)


def test_devices_that_fail_by_hand():
    """Device 1 does 4 of 5 steps and is gone before the global aggregation; device 2 is slow and does 2."""
    of_steps = {"seconds_per_step": 0.5, "joules_per_step": 0.25}
    failing = [Failing(np.array([[True, True], [False, True]]), np.array([4, 2]))]
    found = cost(two_devices(**of_steps), [0], [[0, 1]], [(3, 2)], failing=failing)
    e = 0.012
    assert found.local_energy_j == pytest.approx([2 * e])
    assert found.global_energy_j == pytest.approx([e + 1])
    assert found.compute_energy_j == pytest.approx([0.25 * 6])
    assert found.device_energy_j == pytest.approx([e + 1, 2 * e + 0.5])
    assert found.local_delay_s == pytest.approx([8])
    assert found.global_delay_s == pytest.approx([2 * 5])
    # All slots pass; two uploads and a broadcast, then one upload and a broadcast; the wire there and back.
    assert found.clock_s == pytest.approx(5 * 0.5 + (8 + 4) + (4 + 4) + 2)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    plan=plans(),
    seed=st.integers(0, 2**32),
    interval=st.integers(0, 1000),
    bits=st.integers(1, 10**8),
    faults=st.data() | st.none(),
)
def test_agrees_with_the_formulas_written_out(plan, seed, interval, bits, faults):
    topology, subnets, rows, segments = plan
    failing = None if faults is None else faults.draw(failures(rows, segments))
    found = cost(topology, subnets, rows, segments, bits, seed, interval, failing)
    fading = fading_power(topology, Streams(seed), interval)
    written = written_out(topology, subnets, rows, segments, bits, fading, failing)
    for name, value in written.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=0), name
    assert found.energy_j == pytest.approx(found.device_energy_j.sum() + found.wired_energy_j.sum(), rel=1e-9)
    parts = found.local_energy_j + found.global_energy_j + found.compute_energy_j
    assert found.energy_j == pytest.approx(parts.sum(), rel=1e-9)
    assert found.delay_s == pytest.approx(found.device_delay_s.sum(), rel=1e-9)
    assert found.delay_s == pytest.approx((found.local_delay_s + found.global_delay_s).sum(), rel=1e-9)
