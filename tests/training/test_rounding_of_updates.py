"""Rounding of models to 32 bits: how much further than its gradient a record may move an update of one step."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.loop import LoopEngine
from h2fdp.training.stacked import StackedEngine

RECORDS, FEATURES, CLASSES, NORM, STEP_SIZE = 40, 6, 3, 0.5, 0.7
ENGINES = {
    "loop": lambda module, clipping: LoopEngine(module, clipping, Plain()),
    "stacked": lambda module, clipping: StackedEngine(module, clipping, Plain(), 4),
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
