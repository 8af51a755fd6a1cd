"""Momentum: the step by hand, and how far one record can move an upload with it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.algorithms.fedavg import Plain
from h2fdp.training.local_steps import Descent, gain


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
