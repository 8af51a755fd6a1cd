"""Scores of models: on the test data during a run, for each device at its end; and of devices' own models."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.arithmetic import worker_threads
from h2fdp.data.federated import label_counts
from h2fdp.network import Topology
from h2fdp.network.devices import OF_STEPS
from h2fdp.protocol import Cloud
from h2fdp.records import DEVICE_SCHEMA
from h2fdp.run.devices import backdoor_of, triggered
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.lockstep import blocks
from h2fdp.runtime.placement import chosen_backend, inline_workers, usable_cpus
from h2fdp.training.device_records import Evaluator, device_records

MOST_DEVICES_SCORED = 100_000


class ModelScores:
    """Evaluates models on the test data, and on the validation split where one is held out.

    Args:
        stack: has threads while a run is under way; None: the caller's thread alone. Inline, those that train wait
            meanwhile, so one for each CPU evaluates.

    Attributes:
        steering_loss: the column by which a schedule judges models. That of the validation split where there is one; it
            is held out of devices' records, though, and under noise nothing may depend on these outside the account:
            then it is the test data's.
    """

    def __init__(self, run: RunSetup, stack: ExitStack | None = None) -> None:
        self._device, section = run.blueprint.device, run.config.runtime
        inline = stack is not None and chosen_backend(section) == "inline" and self._device.type == "cpu"
        at_once = min(inline_workers(section), usable_cpus()) if inline else 1
        threads = None if stack is None else stack.enter_context(worker_threads(at_once))
        self._evaluator = Evaluator([run.blueprint.scores() for _ in range(at_once)], run.blueprint.loss, threads)
        self._sets = {"": device_records(run.data, run.data.test).to(self._device)}
        if run.data.validation is not None:
            self._sets["validation_"] = device_records(run.data, run.data.validation).to(self._device)
        if (backdoor := backdoor_of(run.drawn)) is not None:
            self._sets["backdoor_"] = device_records(run.data, triggered(run, backdoor)).to(self._device)
        self.steering_loss = "validation_loss" if run.data.validation is not None and run.noise is None else "loss"
        by_device = run.personal or run.config.training.evaluate_devices
        self._devices = DeviceScores(run) if by_device else None

    def scores(self, cloud: Cloud) -> dict[str, float]:
        """Metrics columns: accuracy and loss of the global model on each set, of the devices' own models, and how
        accuracy is spread over devices."""
        return self.scores_of(cloud.model) | ({} if self._devices is None else self._devices.scores(cloud))

    def scores_of(self, model: Tensor) -> dict[str, float]:
        """The same of any global model (M,)."""
        scores = {}
        for prefix, records in self._sets.items():
            result = self._evaluator.evaluate(model.to(self._device), records)
            scores[f"{prefix}accuracy"], scores[f"{prefix}loss"] = result.accuracy_whole, result.loss_whole
        return scores


def device_scores(run: RunSetup, model: Tensor, energy_j: np.ndarray) -> dict[str, list[Any]]:
    """Columns of a row for each device: accuracy and loss of the global model on its own records, its subnet's means,
    what it spent in the run (I,), and the numbers of its processor.

    Empty in networks of more than `MOST_DEVICES_SCORED`: to evaluate all their records takes longer than to train.
    """
    read = computing(run.topology)
    columns: dict[str, list[Any]] = {name: [] for name in (*DEVICE_SCHEMA.names, *read)}
    if run.topology.devices > MOST_DEVICES_SCORED:
        return columns
    firsts = run.blueprint.first_devices
    evaluator = Evaluator([run.blueprint.scores()], run.blueprint.loss)
    if (visits := run.topology.visits) is not None:  # of each device at all its edge servers
        energy_j = np.bincount(visits.device, weights=energy_j)[visits.device]
    homes = run.drawn.sizes if run.topology.visits is not None else run.topology.sizes  # rows of visits come after
    for numbers in blocks(run.topology.sizes, range(run.topology.edges), workers=1):
        first, last = int(firsts[numbers.start]), int(firsts[numbers.stop])
        records = device_records(run.data, *run.data.subnet(first, last - first)).to(run.blueprint.device)
        result = evaluator.evaluate(model.to(run.blueprint.device), records)
        for number in numbers:
            subnet, size = run.topology.subnets[number], int(homes[number])
            begin = int(firsts[number]) - first
            own = slice(begin, begin + size)
            columns["records"] += run.data.sizes[first:last][own].tolist()
            columns["energy_j"] += energy_j[first:last][own].tolist()
            columns["accuracy"] += result.accuracy[own].tolist()
            columns["loss"] += result.loss[own].tolist()
            columns["device"] += subnet.device_names()[:size]
            for name in read:
                columns[name] += subnet.column(name)[:size].tolist()
            columns["edge"] += [subnet.name] * size
            columns["trust"] += [subnet.trust] * size
            columns["subnet_accuracy"] += [float(np.mean(result.accuracy[own]))] * size
            columns["subnet_loss"] += [float(np.mean(result.loss[own]))] * size
    return columns


def computing(topology: Topology) -> list[str]:
    """The columns of the processors that a network states."""
    return [name for name in topology.table.columns if name in OF_STEPS]


DECILES = tuple(f"device_accuracy_p{each}0" for each in range(1, 10))
WORST = "device_accuracy_worst_tenth"


def spread(accuracy: np.ndarray) -> dict[str, float]:
    """Metrics columns: the deciles of (I,) accuracies, and the mean of the lowest tenth of them, rounded up.

    >>> found = spread(np.arange(11) / 10)
    >>> round(found["device_accuracy_p10"], 3), round(found["device_accuracy_worst_tenth"], 3)
    (0.1, 0.05)
    """
    deciles = np.quantile(accuracy, np.arange(1, 10) / 10).tolist()
    worst = np.sort(accuracy)[: -(-len(accuracy) // 10)]
    return dict(zip(DECILES, deciles, strict=True)) | {WORST: float(worst.mean())}


class DeviceScores:
    """Evaluates the model of each device: its personal one, or the global one where it has none.

    Where the data say whose each test record is, a model is evaluated on those of its device, and all records count
    alike. Elsewhere on all test records, weighted so that labels are as frequent as in the device's own training
    records (labels that the test data lack are left out), and all devices count alike.
    """

    def __init__(self, run: RunSetup) -> None:
        self._run = run
        self._evaluator = Evaluator([run.blueprint.scores()], run.blueprint.loss)
        self._device = run.blueprint.device
        test, owners = run.data.test, run.data.test_owners
        if owners is None:
            labels, sizes = np.unique(test.y, return_counts=True)
            ordered = test.part(np.argsort(test.y, kind="stable"))
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            self._own = None
            self._everyones = device_records(run.data, ordered, offsets).to(self._device)  # a label's, as if a device's
            self._mixes = _label_mixes(run, labels)
        else:
            order = np.argsort(owners, kind="stable")
            sizes = np.bincount(owners, minlength=run.topology.devices)
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            self._everyones = device_records(run.data, test.part(order), np.unique(offsets)).to(self._device)
            self._own = [
                device_records(run.data, test.part(order[first:stop])).to(self._device) if stop > first else None
                for first, stop in itertools.pairwise(offsets)
            ]

    def scores(self, cloud: Cloud) -> dict[str, float]:
        """Metrics columns: accuracy and loss of personal models, and how accuracy is spread."""
        columns, accuracy = self._personal(cloud) if self._run.personal else ({}, self._of(cloud))
        return columns | (spread(accuracy) if self._run.config.training.evaluate_devices else {})

    def _of(self, cloud: Cloud) -> np.ndarray:
        """(I,) the accuracy of the global model, of devices that have test records."""
        accuracy = self._evaluator.evaluate(cloud.model.to(self._device), self._everyones).accuracy
        return accuracy if self._own is not None else np.asarray(self._mixes @ accuracy)

    def _personal(self, cloud: Cloud) -> tuple[dict[str, float], np.ndarray]:
        accuracies, weights = [], []
        firsts = self._run.blueprint.first_devices
        for number, subnet in enumerate(self._run.topology.subnets):
            memories = cloud.memories(subnet.name)
            for row in range(subnet.size):
                weight, *scores = self._score(int(firsts[number]) + row, memories.get(row, cloud.model_of(subnet.name)))
                accuracies.append(scores)
                weights.append(weight)
        accuracy, loss = np.average(np.array(accuracies), axis=0, weights=weights)
        of_each = np.array(accuracies)[np.array(weights) > 0, 0]
        return {"personal_accuracy": float(accuracy), "personal_loss": float(loss)}, of_each

    def _score(self, device: int, model: torch.Tensor) -> tuple[float, float, float]:
        """Weight, accuracy and loss of a device."""
        model = model.to(self._device)
        if self._own is not None:
            records = self._own[device]
            if records is None:
                return 0.0, 0.0, 0.0
            result = self._evaluator.evaluate(model, records)
            return float(len(records.y)), result.accuracy_whole, result.loss_whole
        result = self._evaluator.evaluate(model, self._everyones)
        mix = self._mixes[device]
        return 1.0, float(mix @ result.accuracy), float(mix @ result.loss)


def _label_mixes(run: RunSetup, labels: np.ndarray) -> np.ndarray:
    """(I, labels) how frequent each of these labels is among a device's records."""
    counts, visits = label_counts(run.data)[:, labels], run.topology.visits
    if visits is not None:
        counts = counts[visits.home]
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals > 0, counts / np.maximum(totals, 1), 1 / len(labels))
