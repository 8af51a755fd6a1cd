"""A user's own arrays from an archive."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from h2fdp.data.federate import DATA_SETS, load
from h2fdp.data.federated import FederatedData
from h2fdp.errors import UserError
from h2fdp.streams import Streams


def read(path: Path, devices: int, **keys: object) -> FederatedData:
    return load(DATA_SETS.read({"name": "npz", "path": str(path), **keys}), devices, Streams(1))


def arrays(records: int = 12, **changes: Any) -> dict[str, Any]:
    x = np.arange(records * 3, dtype=np.float64).reshape(records, 3)
    whole = {"x_train": x, "y_train": np.arange(records) % 4, "x_test": x[:4], "y_test": np.arange(4), **changes}
    return {name: array for name, array in whole.items() if array is not None}


def saved(folder: Path, **changes: Any) -> Path:
    path = folder / "points.npz"
    np.savez(path, **arrays(**changes))
    return path


def test_owners_in_the_archive_decide(tmp_path):
    data = read(saved(tmp_path, device_train=np.repeat([7, 3, 5], 4)), devices=3)
    assert data.sizes.tolist() == [4, 4, 4]
    assert data.device(0).x[0, 0] == 12  # identifier 3 comes first
    assert (data.classes, data.shape, data.rounded.train.x.dtype) == (4, (3,), np.float32)


def test_bytes_of_two_sides_are_grey_images_and_numbers_are_not(tmp_path):
    x = np.arange(12 * 16).reshape(12, 4, 4).astype(np.uint8)
    grey = read(saved(tmp_path, x_train=x, x_test=x[:4]), devices=2)
    assert grey.shape == (1, 4, 4)
    assert np.array_equal(grey.test.x[:, 0], x[:4])
    assert read(saved(tmp_path, x_train=x.astype(float), x_test=x[:4] / 1.0), devices=2).shape == (4, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "the arrays x_test, y_test are missing"),
        ({"devices_train": np.zeros(12)}, "array: expected one of x_train, .* did you mean `device_train`"),
        (
            {"device_train": np.zeros(12, dtype=int)},
            "data.partition: the records have 1 owners, but the topology has 2 devices$",
        ),
        ({"device_train": np.zeros(11, dtype=int)}, "one whole number for each of the 12 records"),
        ({"x_test": np.zeros((4, 2))}, "training and test inputs must be alike"),
        ({"x_train": np.array([[{}]] * 12, dtype=object)}, "cannot be read as a NumPy archive of plain arrays"),
    ],
)
def test_a_wrong_archive_is_told(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read(saved(tmp_path, **changes), devices=2)


def test_the_number_of_classes_does_not_depend_on_a_record_of_a_device(tmp_path):
    """Were it the largest label, the one record of the last class would be seen from the model's shape."""
    labels = arrays()["y_train"]
    without = read(saved(tmp_path, y_train=np.minimum(labels, 2)), devices=2)
    assert read(saved(tmp_path), devices=2).classes == without.classes == 4


def test_labels_of_devices_beyond_those_of_the_test_data_ask_for_a_public_number(tmp_path):
    few = {"y_test": np.zeros(4, dtype=np.int64)}
    with pytest.raises(
        UserError,
        match=r"data\.classes: .*test labels, which are public, go up to 0, those .* to 3; .* state it, .*task: regr",
    ):
        read(saved(tmp_path, **few), devices=2)
    assert read(saved(tmp_path, **few), devices=2, classes=4).classes == 4


def test_more_owners_than_devices_are_dealt_out_whole(tmp_path):
    path = saved(
        tmp_path, records=70, device_train=np.repeat([*range(10, 17)], 10), device_test=np.array([10, 16, 12, 12])
    )
    data = read(path, devices=3)
    assert sorted(data.sizes.tolist()) == [20, 20, 30]
    device_of = {owner: device for device in range(3) for owner in 10 + data.device(device).x[:, 0] // 30}
    assert sorted(device_of) == [*range(10, 17)]
    assert data.test_owners.tolist() == [device_of[owner] for owner in (10, 16, 12, 12)]
    assert sum(data.device(device).x.size for device in range(3)) == 70 * 3
    with pytest.raises(UserError, match=r"7 owners, but the topology has 8 devices$"):
        read(path, devices=8, partition="natural")
    other = load(DATA_SETS.read({"name": "npz", "path": str(path), "partition": "natural"}), 3, Streams(2))
    assert other.test_owners.tolist() != data.test_owners.tolist()


def test_what_is_no_archive_is_told(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("x_train: 1")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({"x_train": 1}))
    (tmp_path / "cut.npz").write_bytes(saved(tmp_path).read_bytes()[:400])
    for name in ("one.npy", "text.npz", "empty.npz", "pickle.npz", "cut.npz", "missing.npz", "."):
        with pytest.raises(UserError, match=r"data\.path"):
            read(tmp_path / name, devices=2)


def test_validation_records_of_an_archive_are_used_while_no_share_is_held_out(tmp_path):
    own = {"x_validation": np.full((2, 3), 99.0), "y_validation": np.array([0, 3])}
    data = read(saved(tmp_path, **own), devices=2)
    assert data.validation.x.tolist() == [[99.0] * 3] * 2
    assert len(read(saved(tmp_path, **own), devices=1, validation=0.25).validation) == 3  # of the training records
    with pytest.raises(UserError, match=r"expected both x_validation and y_validation"):
        read(saved(tmp_path, x_validation=own["x_validation"]), devices=2)
    with pytest.raises(UserError, match="validation and test inputs must be alike"):
        read(saved(tmp_path, **own | {"x_validation": np.ones((2, 5))}), devices=2)
