"""Trust: stated or drawn from the seed and the edge server's name (H2FDP, Eq. 27)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.network import Topology
from h2fdp.network.files import yaml_text
from h2fdp.network.network import TRUSTS, TrustSection
from h2fdp.network.schema import TopologyFile
from h2fdp.network.templates import expand
from h2fdp.streams import Streams

probabilities, halves = st.floats(0, 1), st.floats(0, 0.5)
names = st.text(min_size=1, max_size=20)
seeds = st.integers(0, 2**31 - 1)
TWO = {"devices": {"count": 2}}


def draw(names, seed, trusted, secure_sum=0.0, exact=False, relay=0.0):
    given = {"trusted": trusted, "secure-sum": secure_sum, "relay": relay, "exact": exact}
    section = TrustSection.model_validate(given)
    return section.draw(names, Streams(seed))


@given(names, seeds, probabilities, probabilities)
def test_raising_the_probability_never_untrusts(name, seed, one, other):
    low, high = sorted((one, other))
    before, after = (draw([name], seed, each)[name] for each in (low, high))
    assert TRUSTS.index(before) <= TRUSTS.index(after)


@given(names, seeds, halves, halves, halves)
def test_secure_sums_are_taken_from_the_untrusted_alone(name, seed, trusted, one, other):
    low, high = sorted((one, other))
    before, after = (draw([name], seed, trusted, each)[name] for each in (low, high))
    assert after == before or (before, after) == ("untrusted", "secure-sum")
    assert (draw([name], seed, trusted)[name] == "trusted") == (after == "trusted")


@given(names, seeds, st.lists(st.floats(0, 1 / 3), min_size=3, max_size=3))
def test_relays_are_taken_from_the_untrusted_alone(name, seed, three):
    before, after = (draw([name], seed, *three[:2], relay=each)[name] for each in (0.0, three[2]))
    assert after == before or (before, after) == ("untrusted", "relay")


def test_a_file_of_relays_needs_one_number_and_is_written_as_it_was_drawn():
    network = Topology(
        **expand(TopologyFile.model_validate({"trust": {"relay": 1}, "edges": [dict(TWO, name="e-{i}", repeat=3)]}), 3)
    )
    assert network.relayed
    assert yaml_text(network).count("trust: relay") == 3
    assert TrustSection.model_validate({"relay": 0.5, "trusted": 0.5}).bounds == (0.5, 0.5, 1.0)
    with pytest.raises(ValueError, match=r"at most 1, found 0\.3 and 0\.8"):
        TrustSection.model_validate({"relay": 0.8, "trusted": 0.3})


@pytest.mark.slow
def test_the_shares_of_three_levels_are_their_probabilities():
    # binomials of 4,000 with 0.3 and 0.2: deviations 29.0 and 25.3; five of them fail once in a million
    network = Topology.regular(edges=4_000, devices=1, trust=0.3, secure_sum=0.2, seed=1)
    levels = [subnet.trust for subnet in network.subnets]
    assert abs(levels.count("trusted") - 1200) < 145
    assert abs(levels.count("secure-sum") - 800) < 126


@pytest.mark.slow
def test_seeds_draw_trust_independently():
    # agreement of two fair coins over 4,000 edge servers: mean 2,000, deviation 31.6; five of them
    first, second = (Topology.regular(edges=4_000, devices=1, trust=0.5, seed=seed) for seed in (1, 2))
    pairs = zip(first.subnets, second.subnets, strict=True)
    assert abs(sum(one.trusted == other.trusted for one, other in pairs) - 2_000) < 158


@given(st.sets(names, min_size=1, max_size=12), seeds, st.lists(st.floats(0, 0.5), min_size=3, max_size=3))
def test_shares_are_exact_and_raising_one_takes_no_trust_away(servers, seed, three):
    low, high, secure = *sorted(three[:2]), three[2]
    before, after = (draw(servers, seed, each, secure, exact=True) for each in (low, high))
    for share, drawn in ((low, before), (high, after)):
        levels, total = list(drawn.values()), len(servers)
        assert abs(levels.count("trusted") - share * total) <= 0.5 + 1e-9
        assert abs(levels.count("trusted") + levels.count("secure-sum") - (share + secure) * total) <= 0.5 + 1e-9
    assert all(TRUSTS.index(before[name]) <= TRUSTS.index(after[name]) for name in servers)


def test_shares_of_a_file_leave_stated_trust_alone_and_count_each_kind_of_edge_server_by_itself():
    lower = [{"name": "{parent}-{i}", "repeat": 3}, {"name": "{parent}-known", "trusted": True}]
    lower = [{**each, "devices": {"count": 1}} for each in lower]
    upper = [{"name": "region-{i}", "repeat": 4, "edges": lower}]
    trust = {"trusted": 0.5, "exact": True}
    network = Topology(**expand(TopologyFile.model_validate({"trust": trust, "edges": upper}), 3))
    assert sum(subnet.trust == "trusted" for subnet in network.subnets) == 4 + 6
    assert sum(each.trust == "trusted" for each in network.aggregators) == 2
    assert network.trust_probability is None
