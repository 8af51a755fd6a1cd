"""Partitioners: who holds which record."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from h2fdp.data.partition import (
    PartitionSection,
    by_dirichlet,
    by_labels,
    choose,
    gather,
    natural,
    partition,
    proportional,
    sizes_of,
)
from h2fdp.errors import UserError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def section(**keys: object) -> PartitionSection:
    return PartitionSection.model_validate(keys)


SIZES = st.none() | st.floats(0, 3).map(lambda spread: {"lognormal": spread})
SECTIONS = st.one_of(
    st.integers(1, 4).map(lambda count: {"labels_per_device": count}),
    st.sampled_from([1e-4, 0.05, 0.5, 10, 1e6]).map(lambda a: {"dirichlet": a}),
    st.tuples(st.integers(1, 60), st.integers(1, 4)).map(lambda two: {"shards": two[0], "per_device": two[1]}),
    st.just({"sizes": {"lognormal": 0.0}}),
)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many small draws cannot be partitioned
@given(SECTIONS, SIZES, st.lists(st.integers(0, 6), min_size=1, max_size=200), st.integers(1, 30), st.integers(0, 99))
def test_every_device_gets_a_record_and_no_record_is_given_twice(kind, sizes, labels, devices, seed):
    try:
        owners = partition(section(**{"sizes": sizes} | kind), np.array(labels), devices, rng(seed))
    except UserError:
        assume(False)  # told instead; what is told has its own test
    order, offsets = gather(owners, devices)
    assert len(np.unique(order)) == len(order) == offsets[-1] <= len(labels)
    assert offsets[0] == 0
    assert (np.diff(offsets) >= 1).all()


@given(st.integers(1, 12), st.integers(2, 12), st.integers(1, 60), st.integers(0, 99))
def test_balanced_labels_give_each_device_exactly_l_labels_and_each_label_equally_many_devices(
    per_device, kinds, devices, seed
):
    per_device = min(per_device, kinds)
    labels = np.repeat(np.arange(kinds), 64)
    owners = by_labels(labels, np.ones(devices), rng(seed), per_device)
    held = np.zeros((devices, kinds), dtype=bool)
    held[owners[owners >= 0], labels[owners >= 0]] = True
    assert (held.sum(axis=1) == per_device).all()
    assert np.ptp(held.sum(axis=0)) <= 1


def test_dirichlet_proportions_have_the_mean_and_variance_of_the_distribution():
    devices, concentration, labels = 4, 0.5, np.repeat(np.arange(400), 1000)
    owners = by_dirichlet(labels, np.ones(devices), rng(), concentration)
    shares = np.zeros((400, devices))
    np.add.at(shares, (labels, owners), 1e-3)
    expected = (1 / devices) * (1 - 1 / devices) / (devices * concentration + 1)  # 0.0625
    # Over 1,600 shares the standard error of the variance is about 0.002; five of them.
    assert abs(shares.var() - expected) < 0.01
    assert np.abs(shares.mean(axis=0) - 1 / devices).max() < 5 * np.sqrt(expected / 400)


EDGES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def held_by(owners, labels, groups):
    """(devices, labels) records of each label that each device has, and the devices of each edge server."""
    counts = np.zeros((sum(groups), labels.max() + 1), dtype=int)
    np.add.at(counts, (owners[owners >= 0], labels[owners >= 0]), 1)
    return np.split(counts, np.cumsum(groups)[:-1])


@given(EDGES, st.integers(1, 10), st.integers(0, 99))
def test_edge_servers_have_so_many_labels_and_their_devices_equal_mixes_of_them(groups, labels_of_each, seed):
    labels = np.repeat(np.arange(10), 300)
    named = [(f"e{at}", size) for at, size in enumerate(groups)]
    kind = section(by_edge={"labels": labels_of_each})
    owners = partition(kind, labels, sum(groups), rng(seed), named)
    for devices in held_by(owners, labels, groups):
        assert (devices.sum(axis=0) > 0).sum() == labels_of_each
        assert np.ptp(devices.sum(axis=1)) <= 1
        # Drawn without replacement: variances are below those of a binomial law; six of its standard deviations.
        mean = devices.mean(axis=0)
        assert (np.abs(devices - mean) <= 6 * np.sqrt(mean + 1)).all()


@given(EDGES, st.none() | st.integers(1, 10), st.integers(0, 99))
def test_devices_of_one_label_under_edge_servers_of_all_or_of_some(groups, labels_of_each, seed):
    """HierFAVG's edge-IID and edge-NIID."""
    labels = np.repeat(np.arange(10), 300)
    named = [(f"e{at}", size) for at, size in enumerate(groups)]
    stated = {} if labels_of_each is None else {"labels": labels_of_each}
    kind = section(by_edge={**stated, "devices": {"labels_per_device": 1}})
    owners = partition(kind, labels, sum(groups), rng(seed), named)
    for devices in held_by(owners, labels, groups):
        assert ((devices > 0).sum(axis=1) == 1).all()
        kinds = (devices > 0).sum(axis=0)
        assert (kinds > 0).sum() == min(len(devices), labels_of_each or 10)


def test_what_edge_servers_cannot_share_is_told_with_their_name():
    groups = [("here", 3), ("there", 2)]
    labels = np.arange(20) % 4
    cases = {
        "each edge server is to hold 5 labels, but the data have 4": {"labels": 5},
        "edge server here: each device is to hold 3 labels, but the data have 2": {
            "labels": 2,
            "devices": {"labels_per_device": 3},
        },
    }
    for words, stated in cases.items():
        with pytest.raises(UserError, match=f"data.partition.by_edge.*{words}"):
            partition(section(by_edge=stated), labels, 5, rng(), groups)
    with pytest.raises(UserError, match="edge server there: 3 training records are too few for 4 devices"):
        partition(section(by_edge={"labels": 1}), np.repeat([0, 1], 3), 5, rng(), [("here", 1), ("there", 4)])


def test_equal_generators_give_equal_partitions_and_others_differ():
    labels = np.repeat(np.arange(10), 60)
    kind = section(dirichlet=0.5)
    assert (partition(kind, labels, 9, rng(1)) == partition(kind, labels, 9, rng(1))).all()
    assert (partition(kind, labels, 9, rng(1)) != partition(kind, labels, 9, rng(2))).any()


@pytest.mark.parametrize(
    ("kind", "labels", "devices", "message"),
    [
        ({"shards": 400, "per_device": 40}, 1000, 50, "400 shards are too few for 50 devices x 40 shards = 2000"),
        ({"shards": 400, "per_device": 1}, 100, 5, "100 records cannot be cut into 400 shards"),
        ({"labels_per_device": 11}, 100, 5, "each device is to hold 11 labels, but the data have 10"),
        ({"labels_per_device": 10}, 100, 11, "label 0 has 10 records, too few for the 11 devices"),
        ({"sizes": {"lognormal": 0.0}}, 100, 101, "100 training records are too few for 101 devices"),
    ],
)
def test_what_cannot_be_cut_is_told(kind, labels, devices, message):
    with pytest.raises(UserError, match=message):
        partition(section(**kind), np.arange(labels) % 10, devices, rng())


@given(st.integers(0, 500), st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_proportional_parts_add_up_and_none_is_empty(spare, weights):
    total = len(weights) + spare
    parts = proportional(total, np.array(weights))
    assert parts.sum() == total
    assert parts.min() >= 1


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=60), st.integers(0, 99))
def test_choose_takes_so_many_of_each_device(owners, seed):
    held = np.array(owners)
    counts = sizes_of(held, 6) // 2
    chosen = choose(held, counts, rng(seed))
    assert (sizes_of(np.where(chosen, held, -1), 6) == counts).all()


def check_section_fails(value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        PartitionSection.model_validate(value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "expected exactly one of labels_per_device, dirichlet, shards, by_edge, found none"),
        ({"dirichlet": 1, "labels_per_device": 3}, "found labels_per_device, dirichlet"),
        ({"iid": True}, "`iid` is a word and no key; write partition: iid; with sizes, {sizes: {lognormal: 1}} alone"),
        ({"natural": True}, "`natural` is a word and no key; write partition: natural"),
        ({"shards": 4}, "belong together"),
        ({"dirichlet": 1, "per_device": 4}, "belong together"),
    ],
)
def test_a_wrong_section_is_refused(value, message):
    assert message in check_section_fails(value)


HOSPITALS = ("Mercy", "St. Anna", "Uni")


def dealt_to(owners, devices):
    """The device of each owner."""
    given, _ = natural(np.arange(len(owners)), None, len(devices), np.random.default_rng(0), owners, devices)
    return [devices[device] for device in given]


def test_owners_have_the_device_of_their_name_whatever_its_place():
    assert dealt_to(HOSPITALS, ["St. Anna", "Uni", "Mercy"]) == list(HOSPITALS)
    assert dealt_to(HOSPITALS, ["St. Anna/1", "Uni/1", "Mercy/1"]) == ["Mercy/1", "St. Anna/1", "Uni/1"]
    assert dealt_to(("10", "9"), ["9", "10"]) == ["10", "9"]


@pytest.mark.parametrize("devices", [["a/1", "a/2", "b/1"], ["a/1", "a/2"]])
@pytest.mark.parametrize("owners", [HOSPITALS, ("0", "1", "2")])
def test_owners_are_dealt_where_devices_have_no_names_of_their_own(owners, devices):
    found = dealt_to(owners, devices)
    assert set(found) == set(devices)
    if len(devices) == 3:
        assert found == devices


@pytest.mark.parametrize(
    "devices",
    [
        ["St. Anna", "Uni", "Merci"],
        ["St. Anna", "Uni"],
        ["St. Anna", "Uni", "Mercy", "fourth"],
        ["st anna", "uni", "mercy"],
        ["Uni/1", "b/1", "c/1"],
        ["north", "south", "east"],
        ["north", "south/1", "south/2"],
    ],
    ids=["one other", "too few", "too many", "case", "an edge server's", "other names", "one name"],
)
def test_names_that_agree_in_part_are_refused(devices):
    with pytest.raises(UserError, match=r"data.partition: no (device|owner) has .*call each device as its owner"):
        dealt_to(HOSPITALS, devices)


def test_numbers_and_many_owners_are_dealt_to_devices_of_other_names():
    assert dealt_to(("0", "1"), ["north", "south"]) == ["north", "south"]
    assert set(dealt_to(HOSPITALS, ["north", "south"])) == {"north", "south"}
