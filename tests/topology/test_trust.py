"""Trust: stated or drawn from the seed and the edge server's name (H2FDP, Eq. 27)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.topology.templates import draw_trust

probabilities = st.floats(0, 1)
names = st.text(min_size=1, max_size=20)
seeds = st.integers(0, 2**31 - 1)


@given(names, seeds, probabilities, probabilities)
def test_raising_the_probability_never_untrusts(name, seed, one, other):
    low, high = sorted((one, other))
    assert draw_trust(name, low, Streams(seed)) <= draw_trust(name, high, Streams(seed))


@given(names, seeds)
def test_certainty_is_certain(name, seed):
    assert draw_trust(name, 1.0, Streams(seed))
    assert not draw_trust(name, 0.0, Streams(seed))


@pytest.mark.slow
def test_the_share_of_trusted_edge_servers_is_the_probability():
    # binomial(20,000, 0.3): standard deviation 64.8; five of them fail once in 1.7 million
    network = Topology.regular(edges=20_000, devices=1, trust=0.3, seed=1)
    assert abs(sum(subnet.trusted for subnet in network.subnets) - 6000) < 324


@pytest.mark.slow
def test_seeds_draw_trust_independently():
    # agreement of two fair coins over 20,000 edge servers: mean 10,000, deviation 70.7; five of them
    first, second = (Topology.regular(edges=20_000, devices=1, trust=0.5, seed=seed) for seed in (1, 2))
    pairs = zip(first.subnets, second.subnets, strict=True)
    assert abs(sum(one.trusted == other.trusted for one, other in pairs) - 10_000) < 354
