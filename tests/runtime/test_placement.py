"""Packed placement: whole subnets, every subnet once, no host empty, even loads."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.runtime.placement import packed


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_every_subnet_is_placed_once_and_neighbours_stay_together(sizes, hosts):
    parts = packed(np.array(sizes), hosts)
    assert [number for part in parts for number in part] == list(range(len(sizes)))
    assert 1 <= len(parts) <= hosts
    assert all(parts)


def test_loads_are_even_where_they_can_be():
    parts = packed(np.full(100, 5), 4)
    assert [len(part) for part in parts] == [25] * 4
