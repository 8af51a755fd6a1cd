"""Noise on many vectors at once: to the bit what one after the other gets."""

import numpy as np
import pytest
import torch

import h2fdp.privacy.vectors as mechanism
from h2fdp.privacy.vectors import add_gaussian_noise, add_gaussian_noises
from h2fdp.streams import Streams

STDS = np.array([0.3, 2.5, 1e-7, 40.0, 1 / 3])
KEYS = [Streams(1).key(f"device/{number}", "noise-global", 4, 40) for number in range(5)]


@pytest.mark.parametrize("at_once", [1, 20_000, 4_000_000])
@pytest.mark.parametrize("size", [1, 30, 7841])
def test_rows_get_what_each_would_get_by_itself(monkeypatch, size, at_once):
    monkeypatch.setattr(mechanism, "_VALUES_AT_ONCE", at_once)
    vectors = torch.randn(5, size, generator=torch.Generator().manual_seed(2))
    expected = [
        add_gaussian_noise(vector, std, np.random.Generator(np.random.Philox(key=key)))
        for vector, std, key in zip(vectors, STDS.tolist(), KEYS, strict=True)
    ]
    add_gaussian_noises(vectors, STDS, KEYS)
    assert vectors.numpy().tobytes() == torch.stack(expected).numpy().tobytes()


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf"), 1e-31])
def test_no_row_goes_out_without_noise(std):
    vectors = torch.zeros(2, 3)
    with pytest.raises(AssertionError, match="carries noise"):
        add_gaussian_noises(vectors, np.array([1.0, std]), KEYS[:2])
    assert not vectors.any()


@pytest.mark.parametrize(("stds", "keys"), [(2, 1), (2, 3), (1, 2), (1, 1)])
def test_rows_never_share_noise(stds, keys):
    with pytest.raises(AssertionError, match="of its own"):
        add_gaussian_noises(torch.zeros(2, 3), np.ones(stds), KEYS[:keys])
