"""Trust: stated or drawn from the seed and the edge server's name (H2FDP, Eq. 27)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.topology.trust import TRUSTS, TrustProbabilities

probabilities = st.floats(0, 1)
names = st.text(min_size=1, max_size=20)
seeds = st.integers(0, 2**31 - 1)


def draw(name, seed, trusted, secure_sum=0.0):
    return TrustProbabilities(trusted, secure_sum).draw(name, Streams(seed))


@given(names, seeds, probabilities, probabilities)
def test_raising_the_probability_never_untrusts(name, seed, one, other):
    low, high = sorted((one, other))
    assert TRUSTS.index(draw(name, seed, low)) <= TRUSTS.index(draw(name, seed, high))


@given(names, seeds)
def test_certainty_is_certain(name, seed):
    assert draw(name, seed, 1.0) == "trusted"
    assert draw(name, seed, 0.0) == "untrusted"
    assert draw(name, seed, 0.0, 1.0) == "secure-sum"


@given(names, seeds, probabilities, probabilities, probabilities)
def test_secure_sums_are_taken_from_the_untrusted_alone(name, seed, trusted, one, other):
    low, high = sorted((one, other))
    before, after = draw(name, seed, trusted, low), draw(name, seed, trusted, high)
    assert after == before or (before, after) == ("untrusted", "secure-sum")
    assert (draw(name, seed, trusted) == "trusted") == (after == "trusted")


@given(names, seeds, probabilities, probabilities)
def test_levels_follow_one_number_for_each_edge_server(name, seed, trusted, secure_sum):
    drawn = Streams(seed).open(name, "trust").random()
    expected = "trusted" if drawn < trusted else "secure-sum" if drawn < trusted + secure_sum else "untrusted"
    assert draw(name, seed, trusted, secure_sum) == expected


@pytest.mark.slow
def test_the_share_of_trusted_edge_servers_is_the_probability():
    # binomial(20,000, 0.3): standard deviation 64.8; five of them fail once in 1.7 million
    network = Topology.regular(edges=20_000, devices=1, trust=0.3, seed=1)
    assert abs(sum(subnet.trusted for subnet in network.subnets) - 6000) < 324


@pytest.mark.slow
def test_the_shares_of_three_levels_are_their_probabilities():
    # binomials of 20,000 with 0.3 and 0.2: deviations 64.8 and 56.6; five of them fail once in a million
    network = Topology.regular(edges=20_000, devices=1, trust=0.3, secure_sum=0.2, seed=1)
    levels = [subnet.trust for subnet in network.subnets]
    assert abs(levels.count("trusted") - 6000) < 324
    assert abs(levels.count("secure-sum") - 4000) < 283


@pytest.mark.slow
def test_seeds_draw_trust_independently():
    # agreement of two fair coins over 20,000 edge servers: mean 10,000, deviation 70.7; five of them
    first, second = (Topology.regular(edges=20_000, devices=1, trust=0.5, seed=seed) for seed in (1, 2))
    pairs = zip(first.subnets, second.subnets, strict=True)
    assert abs(sum(one.trusted == other.trusted for one, other in pairs) - 10_000) < 354
