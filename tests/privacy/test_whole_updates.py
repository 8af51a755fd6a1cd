"""Whole updates that are cut or normalised."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy import Moment
from h2fdp.privacy.mechanisms.device_unit import LongestUpload
from h2fdp.privacy.mechanisms.stages import ClippedUpdate
from h2fdp.privacy.places import Segment
from h2fdp.streams import Streams

SEEDS, STREAMS = st.integers(0, 10**6), Streams(seed=4)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.floats(1e-12, 1e6), st.sampled_from([None, 0.01, 1.0]))
def test_a_whole_update_is_never_longer_than_the_norm_cut_or_normalised(seed, norm, length, gamma):
    direction = np.random.default_rng(seed).normal(size=50)
    update = torch.from_numpy(np.stack([length * direction / np.linalg.norm(direction), np.zeros(50)])).float()
    update = torch.cat([update, torch.full((1, 50), torch.inf)])
    before, quiet = (
        update.clone(),
        Moment(streams=STREAMS, nodes=[], levels=np.empty(0), segment=Segment(0, 0, 1, step_size=1.0)),
    )
    ClippedUpdate(LongestUpload(norm, 1.0), gamma).encode(update, torch.zeros(50), quiet)
    lengths = torch.linalg.vector_norm(update.double(), dim=1)
    assert lengths.max() <= norm
    assert lengths[1:].max() == 0
    expected = min(length, norm) if gamma is None else norm * length / (length + gamma)
    assert float(lengths[0]) == pytest.approx(expected, rel=1e-5, abs=1e-30)
    towards = float(update[0].double() @ before[0].double()) / (length * float(lengths[0]))
    assert towards == pytest.approx(1, rel=1e-5)
