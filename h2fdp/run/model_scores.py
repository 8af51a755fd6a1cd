"""What a model is worth: on the test data as a run goes on, and for each device at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from h2fdp.protocol import Cloud
from h2fdp.records import DEVICE_SCHEMA
from h2fdp.run.personalized_scores import PersonalScores
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.blueprint import device_records
from h2fdp.runtime.local_hosts import blocks
from h2fdp.training import evaluate

MOST_DEVICES_SCORED = 100_000


def score_prefixes(run: RunSetup) -> list[str]:
    """What accuracy and loss are measured of beside the global model on the test data, as prefixes of their columns."""
    validated = ["validation_"] if run.data.validation is not None else []
    return validated + (["personal_"] if run.blueprint.objective.personal else [])


class Scoreboard:
    """Evaluates models on the test data, and on the validation split where one is held out."""

    def __init__(self, run: RunSetup) -> None:
        self._device = run.blueprint.device
        self._module = run.blueprint.module().to(self._device)
        self._sets = {"": device_records(run.data, run.data.test).to(self._device)}
        if run.data.validation is not None:
            self._sets["validation_"] = device_records(run.data, run.data.validation).to(self._device)
        self._personal = PersonalScores(run, self._module) if run.blueprint.objective.personal else None

    def scores(self, cloud: Cloud) -> dict[str, float]:
        """Metrics columns: accuracy and loss of the global model on each set, and of the devices' own models."""
        return self.scores_of(cloud.model) | ({} if self._personal is None else self._personal.scores(cloud))

    def scores_of(self, model: Tensor) -> dict[str, float]:
        """The same of any global model (M,)."""
        found = {}
        for prefix, records in self._sets.items():
            result = evaluate(self._module, model.to(self._device), records)
            found[f"{prefix}accuracy"], found[f"{prefix}loss"] = result.accuracy_whole, result.loss_whole
        return found


def device_scores(run: RunSetup, model: Tensor) -> dict[str, list[Any]]:
    """Columns of a row for each device: accuracy and loss of the global model on its own records, its subnet's means.

    Empty in networks of more than `MOST_DEVICES_SCORED`: to evaluate all their records takes longer than to train.
    """
    columns: dict[str, list[Any]] = {name: [] for name in DEVICE_SCHEMA.names}
    if run.topology.devices > MOST_DEVICES_SCORED:
        return columns
    module, firsts = run.blueprint.module(), run.blueprint.first_devices
    for numbers in blocks(run.topology.sizes, range(run.topology.edges), workers=1):
        first, last = int(firsts[numbers.start]), int(firsts[numbers.stop])
        result = evaluate(module, model, device_records(run.data, *run.data.subnet(first, last - first)))
        columns["records"] += run.data.sizes[first:last].tolist()
        columns["accuracy"] += result.accuracy.tolist()
        columns["loss"] += result.loss.tolist()
        for number in numbers:
            subnet = run.topology.subnets[number]
            own = slice(int(firsts[number]) - first, int(firsts[number + 1]) - first)
            columns["device"] += subnet.device_names()
            columns["edge"] += [subnet.name] * subnet.size
            columns["trusted"] += [subnet.trusted] * subnet.size
            columns["subnet_accuracy"] += [float(np.mean(result.accuracy[own]))] * subnet.size
            columns["subnet_loss"] += [float(np.mean(result.loss[own]))] * subnet.size
    return columns
