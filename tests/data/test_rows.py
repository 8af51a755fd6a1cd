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


@pytest.mark.parametrize("order", [1, -1])
def test_a_field_that_some_parts_lack_is_nobodys_to_guess(order):
    with pytest.raises(AssertionError, match="of all parts or of none"):
        Whole.joined([whole(2), whole(3, inner=False)][::order])
