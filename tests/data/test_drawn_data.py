"""Synthetic data that are drawn on demand are the data that would be held."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.data.federate import DATA_SETS, load
from h2fdp.data.synthetic import DrawnData
from h2fdp.streams import Streams

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
