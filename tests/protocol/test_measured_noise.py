"""What an observer learns of neighbouring runs, in units of the noise that they add, against the ledger.

All observers of random networks, after each interval; see `tests.protocol.measured`. `H2FDP_TREES=210` measures as many
networks. Errors that are planted here are found.
"""

import math
import os

import numpy as np
import pytest

from tests.protocol.measured import FREE
from tests.protocol.measured_networks import COMPRESSED, FAMILIES, OWN, RULES, drawn, measured

NETWORKS = int(os.environ.get("H2FDP_TREES", "14"))


@pytest.fixture(scope="module", params=range(NETWORKS))
def network(request):
    with pytest.MonkeyPatch.context() as patch:
        return measured(request.param, patch)


def test_no_distance_is_above_what_the_ledger_charges(network):
    assert network.learned
    assert not network.above(), network.family


def test_draws_have_the_variance_of_their_levels(network):
    """Right noise fails in one of ten million; see below for two thirds and three halves of it."""
    draws = network.run.draws
    assert not draws.values or abs(draws.variance - 1) < 5.3 * math.sqrt(2 / draws.values)


def test_neighbours_have_one_ledger(network):
    for other in network.others.values():
        assert other.heard.rows == network.rows


# Networks of each family in which every observer learns what its rows say, so that no error is small enough.
TIGHT = {
    91: "correlated",
    22: "tree",
    44: "own models",
    24: "relay",
    45: "relay",  # with correlated noise
    46: "compressed",
    26: "turns",
    20: "robust",
    48: "robust",  # where devices lie
}
by_family = pytest.mark.parametrize("number", TIGHT, ids=lambda number: f"{TIGHT[number]}-{number}")
UNTRUSTED, TURNS = 7, 91  # devices that upload for themselves; trusted edge servers whose devices take turns


@pytest.fixture(scope="module")
def tight():
    """Number -> that network, measured."""
    with pytest.MonkeyPatch.context() as patch:
        return {number: measured(number, patch) for number in TIGHT}


@by_family
def test_here_the_ledger_has_nothing_to_spare(tight, number):
    assert tight[number].family == TIGHT[number]
    assert max(tight[number].ratios().values()) == pytest.approx(1.0, rel=1e-3)
    assert not tight[number].above()


@by_family
def test_one_row_less_is_found(tight, number):
    for row in tight[number].rows:
        assert tight[number].above(left_out=row), row


@by_family
def test_two_thirds_of_the_noise_of_one_node_are_found(tight, number, monkeypatch):
    nodes = sorted(set(tight[number].run.draws.owners.values()))
    assert measured(number, monkeypatch, scale={nodes[0]: 2 / 3}).above()
    more = measured(number, monkeypatch, scale=dict.fromkeys(nodes, 3 / 2))
    assert max(more.ratios().values()) == pytest.approx(2 / 3, rel=1e-3)


@by_family
def test_a_node_that_adds_no_noise_is_found(tight, number, monkeypatch):
    found = measured(number, monkeypatch, scale=dict.fromkeys(tight[number].run.draws.owners.values(), 0.0))
    assert max(found.learned.values()) == math.inf


def test_draws_of_two_thirds_or_three_halves_have_another_variance(tight):
    draws = tight[46].run.draws
    assert all(abs(draws.variance * scale**2 - 1) > 10 * math.sqrt(2 / draws.values) for scale in (2 / 3, 3 / 2))


def test_a_second_upload_under_noise_of_its_own_is_found(monkeypatch):
    """A vector that no row is about: what a device uploaded, once more under another draw of the same level."""
    found, name, fresh = measured(UNTRUSTED, monkeypatch), "e0/1", FREE[-1]
    assert not found.above()
    for run in (found.run, *found.others.values()):
        again = run.uploads[name][0].copy()
        (place,) = (place for place in run.draws.owners if again[place])
        again[fresh], again[place] = again[place], 0.0
        run.heard.received["e0"].append(again)
        run.draws.owners[fresh] = name
        run.ends[-1]["received", "e0"] += 1
    del found.learned
    assert {observer for _, observer, _ in found.above()} == {"edge"}


def test_a_draw_that_comes_twice_is_found(monkeypatch):
    """The first one of each correlated stream, in the place of the second too."""
    assert not measured(TURNS, monkeypatch).above()
    assert max(measured(TURNS, monkeypatch, reused={(0, 2): (0, 1)}).learned.values()) == math.inf


def test_numbers_draw_every_family_and_every_part_of_it():
    """So that the tests above mean something."""
    seen = {family: [] for family in FAMILIES}
    for number in range(210):
        family, network, settings = drawn(number)
        seen[family].append((network, settings))
    every = [settings for of_family in seen.values() for _, settings in of_family]
    assert {each["correlated"]["kind"] for _, each in seen["correlated"]} == {"banded", "banded-inverse"}
    assert {str(each["method"]["objective"]) for _, each in seen["own models"]} == set(map(str, OWN))
    assert {str(each["compression"]["device"]) for _, each in seen["compressed"]} == set(map(str, COMPRESSED))
    assert {str(each["method"]["aggregation"]["device"]) for _, each in seen["robust"]} == set(map(str, RULES))
    lying = [family for family, drawings in seen.items() for network, _ in drawings if network.adversaries is not None]
    assert set(lying) == set(FAMILIES)
    assert {network.depth for network, _ in seen["tree"]} >= {1, 2, 3}
    assert {network.depth for network, _ in seen["relay"]} == {1, 2}
    for key, values in (
        ("clip_scope", {"batch", "record"}),
        ("budget_decay", {"none", "linear", "sqrt"}),
        ("device_turns", {None, 2, 3}),
        ("participation", {None, 0.6}),
        ("adjacency", {"null-record", "replace"}),
    ):
        assert {each.get(key) for each in every} == values
    assert np.mean([len(each) for each in seen.values()]) == 30
