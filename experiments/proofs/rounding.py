"""How far rounding to 32 bits moves one record's part of an update: the table in experiments/proofs/README.md.

    python -m experiments.proofs.rounding

One step of softmax regression on made-up images over all n records, with and without the last one, by `stacked` and
in 64 bits: e is by how much the two differences differ, S = eta G / n how far the record may move the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import Descent
from h2fdp.training.stacked import StackedEngine

PAGE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- begins: python -m experiments.proofs.rounding -->", "<!-- ends -->"
FEATURES, CLASSES, NORM, STEP_SIZE = 784, 10, 3.0, 1.0
SIZES, LENGTHS = (1_200,), (1, 10, 100, 1_000)


def exact(model: Tensor, x: Tensor, y: Tensor, count: int) -> Tensor:
    """(M,) the update over these records in 64 bits; sums are divided by `count`."""
    inputs = x.double()
    errors = torch.softmax(inputs @ model.double().view(CLASSES, FEATURES).T, dim=1)
    errors[torch.arange(len(y)), y] -= 1
    factors = torch.clamp(NORM / (errors.norm(dim=1) * inputs.norm(dim=1)), max=1.0)
    return STEP_SIZE * ((errors * factors[:, None]).T @ inputs / count).flatten()


def trained(engine: StackedEngine, model: Tensor, x: Tensor, y: Tensor, drawn: int) -> Tensor:
    """(M,) the same in 32 bits, over the first records."""
    records = DeviceRecords(x, y, np.array([0, len(y)]), torch.ones(FEATURES), torch.zeros(FEATURES))
    batches = Batches(np.arange(drawn)[None, None], np.array([[drawn]]), None, np.array([float(len(y))]))
    return engine.train(model[None], records, np.array([0]), batches, STEP_SIZE).updates[0].double()


def table() -> Iterator[str]:
    """A row for each number of records and length of the model."""
    yield "| records | norm of the model | bound, in S | e / S, `stacked` |"
    yield "|---|---|---|---|"
    module, clipping = nn.Linear(FEATURES, CLASSES, bias=False), Clipping(NORM, "record", mean_too=True)
    engine = StackedEngine(module, clipping, Descent(Plain()), 1)
    for count in SIZES:
        torch.manual_seed(count)
        x, y = torch.randn(count, FEATURES), torch.randint(CLASSES, (count,))
        sensitivity = STEP_SIZE * NORM / count
        for length in LENGTHS:
            model = torch.randn(FEATURES * CLASSES)
            model *= length / model.norm()
            part = exact(model, x, y, count) - exact(model, x[:-1], y[:-1], count)
            moved = trained(engine, model, x, y, count) - trained(engine, model, x, y, count - 1)
            share = float((moved - part).norm()) / sensitivity
            bound = 2.0**-23 * (length + 2 * STEP_SIZE * NORM) / sensitivity
            yield f"| {count:,} | {length:,} | {bound:.1e} | {share:.1e} |"


def main() -> None:
    """Write the table."""
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(table()) + "\n" + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
