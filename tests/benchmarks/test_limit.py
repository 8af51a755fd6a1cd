"""The limit of a core's arithmetic."""

import numpy as np
import pytest

from benchmarks.engines import SIDE, SOFTMAX_FLOPS, of_the_limit


def test_a_case_that_computes_as_fast_as_the_product_reaches_the_limit():
    product = np.array([0.5, 1.0, 2.0])
    flops, allowed, share = of_the_limit(100 * SOFTMAX_FLOPS * product / (2 * SIDE**3), product, 100)
    assert (flops, allowed) == pytest.approx((2 * SIDE**3, 2 * SIDE**3 / SOFTMAX_FLOPS))
    assert share == pytest.approx(1)
