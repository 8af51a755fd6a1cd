"""What a model is worth: on the test data as a run goes on, and for each device at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from h2fdp.experiment.preparation import Preparation
from h2fdp.runtime.blueprint import device_records
from h2fdp.training import evaluate


class Scoreboard:
    """Evaluates models on the test data, and on the validation split where one is held out."""

    def __init__(self, run: Preparation) -> None:
        self._module = run.blueprint.module()
        self._sets = {"": device_records(run.data, run.data.test)}
        if run.data.validation is not None:
            self._sets["validation_"] = device_records(run.data, run.data.validation)

    def scores(self, model: Tensor) -> dict[str, float]:
        """Metrics columns: accuracy and loss on each set."""
        found = {}
        for prefix, records in self._sets.items():
            result = evaluate(self._module, model, records)
            found[f"{prefix}accuracy"], found[f"{prefix}loss"] = result.accuracy_whole, result.loss_whole
        return found


def device_scores(run: Preparation, model: Tensor) -> list[dict[str, Any]]:
    """A row for each device: accuracy and loss of the global model on its own records, beside its subnet's means."""
    module = run.blueprint.module()
    rows = []
    for number, subnet in enumerate(run.topology.subnets):
        first = int(run.blueprint.first_devices[number])
        records = device_records(run.data, *run.data.subnet(first, subnet.size))
        result = evaluate(module, model, records)
        means = {"subnet_accuracy": float(np.mean(result.accuracy)), "subnet_loss": float(np.mean(result.loss))}
        rows += [
            {
                "device": subnet.device_name(row),
                "edge": subnet.name,
                "trusted": subnet.trusted,
                "records": int(records.sizes[row]),
                "accuracy": float(result.accuracy[row]),
                "loss": float(result.loss[row]),
                **means,
            }
            for row in range(subnet.size)
        ]
    return rows
