"""Records of arrays by their rows."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.data.records import Rows


@dataclass(frozen=True)
class Inner(Rows):
    values: np.ndarray


@dataclass(frozen=True)
class Whole(Rows):
    unit: str
    pair: tuple[float, float]
    names: list[str]
    numbers: np.ndarray
    vectors: torch.Tensor
    inner: Inner | None
    absent: torch.Tensor | None = None


def whole(size, inner=True):
    names = [str(number) for number in range(size)]
    numbers = np.arange(size)
    vectors = torch.arange(2.0 * size).view(size, 2)
    return Whole("m", (1.0, 2.0), names, numbers, vectors, Inner(numbers * 10) if inner else None)


def rows_of(found):
    """What each row holds."""
    inner = [None] * len(found.names) if found.inner is None else found.inner.values.tolist()
    return list(zip(found.names, found.numbers.tolist(), found.vectors.tolist(), inner, strict=True))


@given(st.lists(st.integers(0, 6), max_size=9), st.booleans())
def test_numbers_of_rows_choose_them_in_their_order(chosen, inner):
    every = whole(7, inner)
    part = every.part(np.array(chosen, dtype=np.int64))
    assert rows_of(part) == [rows_of(every)[row] for row in chosen]
    assert (part.unit, part.pair, part.absent) == ("m", (1.0, 2.0), None)


@given(st.lists(st.integers(0, 7), max_size=4).map(sorted), st.booleans())
def test_slices_joined_are_the_whole(cuts, inner):
    every = whole(7, inner)
    parts = [every.part(slice(begin, end)) for begin, end in zip([0, *cuts], [*cuts, 7], strict=True)]
    assert rows_of(Whole.joined(parts)) == rows_of(every)


def test_a_slice_shares_memory_and_numbers_of_rows_do_not():
    every = whole(4)
    assert np.shares_memory(every.part(slice(1, 3)).numbers, every.numbers)
    assert not np.shares_memory(every.part(np.array([1, 2])).numbers, every.numbers)
    assert every.part(slice(1, 3)).vectors.data_ptr() == every.vectors[1:].data_ptr()


@pytest.mark.parametrize("order", [1, -1])
def test_a_field_that_some_parts_lack_is_nobodys_to_guess(order):
    with pytest.raises(AssertionError, match="of all parts or of none"):
        Whole.joined([whole(2), whole(3, inner=False)][::order])
