"""Records on devices: slices, fingerprints, validation, scaling, user functions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from h2fdp.data.federate import DATA_SETS, from_function, load
from h2fdp.data.federated import FederatedData
from h2fdp.data.records import Records, Scaling
from h2fdp.errors import UserError
from h2fdp.streams import Streams


def digits(devices: int = 20, seed: int = 1, **keys: object) -> FederatedData:
    return load(DATA_SETS.read({"name": "digits", **keys}), devices, Streams(seed))


def test_devices_test_on_their_own_share_of_all_records():
    data, plain = digits(test=0.25), digits()
    held = data.sizes + np.bincount(data.test_owners, minlength=20)
    assert held.sum() == len(plain.train) + len(plain.test)
    np.testing.assert_array_equal(np.bincount(data.test_owners, minlength=20), held // 4)
    assert data.sizes.min() >= 1
    for device in range(20):
        own = data.test.y[data.test_owners == device].tolist() + data.device(device).y.tolist()
        assert len(set(own)) == 3  # labels on a device, by default
    both = np.concatenate([data.train.y[data.order], data.test.y])
    np.testing.assert_array_equal(np.bincount(both), np.bincount(np.concatenate([plain.train.y, plain.test.y])))


def test_neither_validation_nor_public_records_are_tested_on_by_devices():
    data = digits(test=0.25, validation=0.2, public=0.1)
    assert data.validation is not None
    assert data.public is not None
    assert data.test_owners.min() >= 0
    everything = [data.train.x[data.order], data.test.x, data.validation.x, data.public.x]
    plain = digits()
    whole = np.concatenate([plain.train.x, plain.test.x])
    assert sum(map(len, everything)) == len(whole)
    by_rows = [
        np.sort(each.reshape(len(each), -1).astype(float) @ np.arange(64.0))
        for each in (np.concatenate(everything), whole)
    ]
    np.testing.assert_array_equal(*by_rows)


def test_a_subnet_is_its_devices_one_after_another():
    data = digits()
    records, offsets = data.subnet(3, 4)
    assert offsets[0] == 0
    assert len(offsets) == 5
    for device in range(4):
        held = slice(offsets[device], offsets[device + 1])
        assert (records.x[held] == data.device(3 + device).x).all()
        assert (records.y[held] == data.device(3 + device).y).all()
    assert len(records) == data.sizes[3:7].sum()


def test_validation_records_are_on_no_device():
    data = digits(validation=0.1)
    assert data.validation is not None
    assert len(data.validation) == int(0.1 * 1438)
    assert data.sizes.sum() + len(data.validation) == 1438
    used = {record.tobytes() for record in data.train.x[data.order]}
    assert sum(record.tobytes() in used for record in data.validation.x) <= 2  # the data set has few equal images


def test_the_fingerprint_is_stable_over_releases():
    data = from_function(
        lambda name: (np.arange(6, dtype=np.float32).reshape(3, 2), [0, 1, 1]), ["a", "b"], test=(np.zeros((1, 2)), [0])
    )
    assert data.fingerprint() == "8682acd680a5efceb9075af46459c9f9"


def changed_copies(data: FederatedData) -> dict[str, FederatedData]:
    x, y, order = data.train.x.copy(), data.train.y.copy(), data.order.copy()
    x[0, 0, 0, 0] += 1
    y[0] += 1
    order[[0, 1]] = order[[1, 0]]
    offsets = data.offsets.copy()
    offsets[1] += 1
    return {
        "pixel": dataclasses.replace(data, train=Records(x, data.train.y)),
        "label": dataclasses.replace(data, train=Records(data.train.x, y)),
        "test": dataclasses.replace(data, test=data.train),
        "order": dataclasses.replace(data, order=order),
        "offsets": dataclasses.replace(data, offsets=offsets),
        "scaling": dataclasses.replace(data, scaling=Scaling(16.0)),
        "validation": dataclasses.replace(data, validation=data.test),
    }


def test_any_change_changes_the_fingerprint():
    data = digits()
    prints = [copy.fingerprint() for copy in changed_copies(data).values()]
    assert len({data.fingerprint(), *prints}) == 8


def test_a_users_function_gives_each_device_its_own_records():
    sizes = {"a/1": 2, "a/2": 3, "b/1": 1}
    data = from_function(
        lambda name: (np.full((sizes[name], 4), sizes[name]), np.full(sizes[name], 1)),
        list(sizes),
        test=(np.zeros((5, 4)), np.zeros(5, dtype=int)),
    )
    assert data.sizes.tolist() == [2, 3, 1]
    assert (data.device(1).x == 3).all()
    assert (data.classes, data.shape, data.rounded.train.x.dtype) == (2, (4,), np.float32)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1.0, float("nan")]], [0], "the data of device a: inputs must be finite in 32 bits"),
        ([[1.0]], [-1], "labels must be at least 0, found -1"),
        ([[1.0]], [0, 1], r"expected one label for each of the 1 inputs, found labels of shape \(2,\)"),
        ([1.0], [0], r"two dimensions or more\), found shape \(1,\)"),
        ([["a"]], [0], "inputs must be numbers"),
    ],
)
def test_arrays_that_are_no_records_are_told(x, y, message):
    with pytest.raises(UserError, match=message):
        from_function(lambda name: (x, y), ["a"], test=([[0.0]], [0]))
