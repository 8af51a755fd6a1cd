"""Averages with equal weights are made together: to the bit what each aggregator makes alone, under its own noise."""

import numpy as np
import pytest
import torch

from h2fdp.protocol import aggregator
from h2fdp.protocol.aggregator import Average, in_step
from h2fdp.streams import Streams, generator_of

PARAMETERS, CHILDREN = 1003, 3
WEIGHTS = np.array([0.5, 0.3, 0.2]), np.full(CHILDREN, 1 / CHILDREN)


def asked(number):
    """Of eight aggregators: two kinds of weights, some with noise of a level and a stream of their own."""
    rng = np.random.default_rng(number)
    noise = (0.1 + number, Streams(1).key(f"edge-{number}", "noise-local")) if number % 4 < 2 else None
    model, updates = (
        torch.from_numpy(rng.standard_normal(shape, np.float32)) for shape in (PARAMETERS, (3, PARAMETERS))
    )
    return Average(model, updates, WEIGHTS[number % 2], noise)


def less_averages(averages):
    """Name -> the model less the average, of aggregators that run side by side."""

    def interval(average):
        return (yield average)

    return in_step({name: interval(each) for name, each in averages.items()}, lambda calls: {})


@pytest.mark.parametrize("most", [1, 2 * CHILDREN * PARAMETERS, 1 << 22])  # one by one, two by two, all at once
def test_together_as_alone_and_each_under_its_own_noise(monkeypatch, most):
    monkeypatch.setattr(aggregator, "_MOST_VALUES", most)
    averages = {f"edge-{number}": asked(number) for number in range(8)}
    together = less_averages(averages)
    assert list(together) == list(averages)
    for name, each in averages.items():
        assert torch.equal(together[name], less_averages({name: each})[name])
        plain = each.model.double() - torch.from_numpy(each.weights) @ each.updates.double()
        level, key = each.noise or (0.0, 0)
        noise = torch.from_numpy(generator_of(key).standard_normal(PARAMETERS, dtype=np.float32))
        torch.testing.assert_close(together[name].double(), plain - level * noise, rtol=1e-5, atol=1e-5)
