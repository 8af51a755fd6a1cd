"""Runs that ask for records of equal origin may share them; whatever changes the records changes the origin."""

import numpy as np
import pytest

from h2fdp.data.federate import DATA_SETS
from h2fdp.data.source import DataRequest
from h2fdp.streams import Streams

GROUPS = ([("a", 2), ("b", 3)], [("a", 2), ("b", 2)], [("a", 2), ("c", 3)])


def sections(name, folder):
    if name == "npz":
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(20, 3)), np.arange(20) % 2
        values = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
        np.savez(folder / "a.npz", **values)
        np.savez(folder / "b.npz", **values | {"x_train": x + 1})
        return [{"name": name, "path": str(folder / file)} for file in ("a.npz", "b.npz")] + [
            {"name": name, "path": str(folder / "a.npz"), "classes": 4}
        ]
    if name == "synthetic":
        return [{"name": name, "features": features, "records": 6} for features in (3, 4)]
    return [{"name": name}, {"name": name, "partition": "iid"}, {"name": name, "normalize": "unit"}]


def equal(one, other):
    arrays = [(getattr(one, part), getattr(other, part)) for part in ("train", "test")]
    return (
        one.classes == other.classes
        and np.array_equal(one.owners, other.owners)
        and all(np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) for a, b in arrays)
    )


@pytest.mark.parametrize("name", ["digits", "npz", "synthetic"])
def test_equal_origins_have_equal_records(name, tmp_path):
    requests = [
        DataRequest(options, groups, Streams(seed), None)
        for options in map(DATA_SETS.read, sections(name, tmp_path))
        for groups in GROUPS
        for seed in (1, 2)
    ]
    pools = [request.read() for request in requests]
    for place, request in enumerate(requests):
        for other in range(place):
            if request.origin == requests[other].origin:
                assert equal(pools[place], pools[other])
    assert len({request.origin for request in requests}) == {"digits": 1, "npz": 3, "synthetic": 12}[name]


def test_records_that_are_not_drawn_are_shared_by_all_seeds():
    for name, options_of in DATA_SETS.models.items():
        if options_of.on_disk:
            needed = {"path": "a", "label": "y", "classes": [0, 1]}
            fields = options_of.model_fields
            stated = {key: value for key, value in needed.items() if key in fields and fields[key].is_required()}
            options = DATA_SETS.read({"name": name, **stated})
            assert len({DataRequest(options, GROUPS[0], Streams(seed), None).origin for seed in (1, 2, 3)}) == 1, name
