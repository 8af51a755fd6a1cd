"""Clipping bounds everything that enters an update."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import Descent, gain
from h2fdp.training.loop import LoopEngine
from h2fdp.training.stacked import StackedEngine


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


def brute_gain(momentum, steps, first=1):
    """How much a device moves when each gradient from step `first` on is one longer."""
    velocity = moved = 0.0
    for step in range(1, steps + 1):
        velocity = momentum * velocity + (step >= first)
        moved += velocity
    return moved


@given(st.floats(0, 0.99), st.integers(1, 60))
def test_the_gain_is_what_unit_gradients_add_up_to(momentum, steps):
    assert gain(momentum, steps) == pytest.approx(brute_gain(momentum, steps), rel=1e-9)


@given(st.floats(0, 0.99), st.integers(1, 40), st.data())
def test_a_record_first_drawn_later_moves_no_more_than_its_share_of_the_gain(momentum, steps, data):
    first = data.draw(st.integers(1, steps))
    share = (steps - first + 1) / steps
    assert brute_gain(momentum, steps, first) <= gain(momentum, steps) * share * (1 + 1e-9)


def test_steps_with_momentum_by_hand():
    descent = Descent(Plain(), momentum=0.5)
    state = descent.begin(torch.zeros(1))
    for _ in range(3):
        state = descent.step(state, lambda model: torch.ones_like(model), torch.zeros(1), 0.1, None)
    assert state.models.item() == pytest.approx(-0.1 * (1 + 1.5 + 1.75))


RECORDS, FEATURES, CLASSES, NORM, STEP_SIZE = 40, 6, 3, 0.5, 0.7
ENGINES = {
    "loop": lambda module, clipping: LoopEngine(module, clipping, Descent(Plain())),
    "stacked": lambda module, clipping: StackedEngine(module, clipping, Descent(Plain()), 4),
}


@pytest.mark.parametrize("length", [1.0, 1e3, 1e5])
@pytest.mark.parametrize("name", ENGINES)
def test_a_record_moves_a_rounded_update_by_no_more_than_the_bound_on_rounding(name, length):
    """e = 2^-23 (|w| + 2 eta G): w - eta g, rounded, and the difference to w, with the record and without."""
    random = np.random.default_rng(5)
    module = nn.Linear(FEATURES, CLASSES, bias=False)
    engine = ENGINES[name](module, Clipping(NORM, "record", mean_too=True))
    x = torch.from_numpy(random.normal(size=(RECORDS, FEATURES)).astype(np.float32))
    y = torch.from_numpy(random.integers(0, CLASSES, RECORDS))
    records = DeviceRecords(x, y, np.array([0, RECORDS]), torch.ones(FEATURES), torch.zeros(FEATURES))
    sensitivity, largest = STEP_SIZE * NORM / RECORDS, 0.0
    for _ in range(8):
        start = torch.from_numpy(random.normal(size=FEATURES * CLASSES))
        start = (length * start / start.norm()).float()
        ways = []
        for drawn in (RECORDS, RECORDS - 1):
            batches = Batches(np.arange(drawn)[None, None], np.array([[drawn]]), None, np.array([float(RECORDS)]))
            ways.append(engine.train(start[None], records, np.array([0]), batches, STEP_SIZE).updates[0].double())
        largest = max(largest, float((ways[0] - ways[1]).norm()) - sensitivity)
    assert largest <= 2.0**-23 * (length + 2 * STEP_SIZE * NORM)
    assert largest > (0.05 * sensitivity if length == 1e5 else -1)  # there it is no longer small
