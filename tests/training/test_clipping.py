"""Clipping bounds everything that enters an update."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from h2fdp.training.clipping import Clipping


@given(hnp.arrays(np.float32, (3, 5), elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.floats(1e-3, 1e3))
def test_no_vector_is_longer_than_the_norm_and_short_ones_stay(array, norm):
    vectors = torch.from_numpy(array)
    clipped = Clipping(norm).apply(vectors)
    assert (clipped.norm(dim=-1) <= norm * (1 + 1e-5)).all()
    short = vectors.norm(dim=-1) <= norm * (1 - 1e-6)
    torch.testing.assert_close(clipped[short], vectors[short], rtol=1e-6, atol=0)


@given(
    hnp.arrays(np.float32, (3, 5), elements=st.floats(-(2.0**60), 2.0**60, width=32)),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1),
)
def test_normalised_vectors_keep_their_order_and_stay_within_the_norm(array, norm, gamma):
    vectors = torch.from_numpy(array)
    lengths = Clipping(norm, "record", gamma=gamma).apply(vectors).norm(dim=-1)
    assert (lengths <= norm * (1 + 1e-5)).all()
    expected = norm * vectors.norm(dim=-1) / (vectors.norm(dim=-1) + gamma)
    torch.testing.assert_close(lengths, expected, rtol=1e-4, atol=1e-6 * norm)


def test_what_has_no_finite_norm_becomes_zero():
    vectors = torch.tensor([[float("inf"), 1.0], [float("nan"), 1.0], [3.0, 4.0]])
    assert Clipping(1.0).apply(vectors)[:2].abs().sum() == 0
    assert Clipping(1.0, gamma=0.01).apply(vectors)[:2].abs().sum() == 0
