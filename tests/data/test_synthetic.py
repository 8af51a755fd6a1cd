"""Synthetic data of Li et al. 2020."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.data.federate import DATA_SETS, load
from h2fdp.data.federated import FederatedData
from h2fdp.data.synthetic import DrawnData, Synthetic, draw_subnet
from h2fdp.streams import Streams

SMALL = {"records": 40}


def synthetic(devices: int = 30, seed: int = 1, groups: Any = None, **keys: object) -> FederatedData:
    section = DATA_SETS.read({"name": "synthetic", **SMALL, **keys})
    return load(section, devices, Streams(seed), groups=groups)


def test_a_tenth_of_each_device_rounded_up_is_test_data():
    subnet = draw_subnet(Synthetic(records=51), "a", 4, Streams(1))
    assert subnet.sizes.tolist() == [45] * 4  # of 51, as the authors' program splits
    assert len(subnet.test) == 24


def test_sizes_are_log_normal_above_the_smallest():
    sizes = draw_subnet(Synthetic(features=1, test=1e-9), "a", 2000, Streams(1)).sizes + 1
    logs = np.log(sizes[sizes > 60] - 50)
    assert sizes.min() >= 50
    # Half of all devices have more than exp(4) above the smallest: a binomial count of 2,000, within 5 deviations.
    assert abs((logs > 4).sum() - 1000) < 5 * np.sqrt(500)


def test_inputs_spread_as_the_recipe_says():
    subnet = draw_subnet(Synthetic(partition="iid", features=5, records=51), "a", 400, Streams(1))
    variances = subnet.train.x.var(axis=0)
    assert np.allclose(variances, np.arange(1, 6) ** -1.2, rtol=0.05)  # 18,000 records: five standard errors
    assert np.abs(subnet.train.x.mean(axis=0)).max() < 5 / np.sqrt(18_000)


def test_with_iid_all_devices_share_one_linear_model():
    data = synthetic(partition="iid", classes=3, features=4, devices=40)
    x = np.hstack([data.train.x, np.ones((len(data.train), 1))])
    wrong = np.argmax(x @ np.linalg.lstsq(x, np.eye(3)[data.train.y], rcond=None)[0], axis=1) != data.train.y
    assert wrong.mean() < 0.2  # a regression on all devices' records at once nearly separates them


@pytest.mark.parametrize("iid", [False, True])
def test_labels_of_devices_of_one_size_are_those_of_each_by_itself(iid, monkeypatch):
    """All at once where sizes are equal: the same as device by device, to the bit."""
    recipe = Synthetic(partition="iid" if iid else None, records=41)
    at_once = draw_subnet(recipe, "a", 25, Streams(4))
    calls = []

    def one_by_one(x, weights, out):
        calls.append(len(x))
        for own, weight, scores in zip(x, weights, out, strict=True):
            matmul(own, weight, out=scores)

    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", one_by_one)
    alone = draw_subnet(recipe, "a", 25, Streams(4))
    assert calls == [25]
    assert len(set(alone.train.y.tolist())) > 3
    for one, other in ((at_once.train, alone.train), (at_once.test, alone.test)):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)


GROUPS = [("a", 3), ("b", 1), ("c", 4), ("d", 2)]
SECTION = DATA_SETS.read({"name": "synthetic"})


@pytest.fixture(scope="module")
def both():
    held = load(SECTION, 10, Streams(3), groups=GROUPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("h2fdp.data.federate"), "LARGEST_HELD", 0)
        drawn = load(SECTION, 10, Streams(3), groups=GROUPS)
    assert isinstance(drawn, DrawnData)
    return held, drawn


def test_sizes_and_properties_agree(both):
    held, drawn = both
    assert held.sizes.tolist() == drawn.sizes.tolist()
    for name in ("name", "classes", "shape", "scaling", "values", "validation"):
        assert getattr(held, name) == getattr(drawn, name), name


@given(first=st.integers(0, 9), count=st.integers(1, 10))
def test_every_range_of_devices_has_the_same_records(both, first, count):
    held, drawn = both
    count = min(count, 10 - first)
    (one, offsets), (other, same) = held.subnet(first, count), drawn.subnet(first, count)
    assert offsets.tolist() == same.tolist()
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.y, other.y)
