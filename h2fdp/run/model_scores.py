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
from h2fdp.data.records import Records
from h2fdp.data.targets import CLASS
from h2fdp.network import Topology
from h2fdp.network.devices import OF_STEPS
from h2fdp.protocol import Cloud
from h2fdp.records.tables import device_schema
from h2fdp.run.devices import scored
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.lockstep import blocks
from h2fdp.runtime.placement import chosen_backend, inline_workers, usable_cpus
from h2fdp.training.device_records import DeviceRecords, Evaluator, device_records, measures_of
from h2fdp.wording import SCORES

MOST_DEVICES_SCORED = 100_000


class ModelScores:
    """Evaluates models on the test data, and on the validation split where there is one.

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
        scores = [run.blueprint.scores() for _ in range(at_once)]
        self._evaluator = Evaluator(scores, run.blueprint.loss, threads, run.data.target)
        self._sets = {"": device_records(run.data, run.data.test, cut=False).to(self._device)}
        if run.data.validation is not None:
            self._sets["validation_"] = device_records(run.data, run.data.validation, cut=False).to(self._device)
        if (replacing := run.drawn.replacing) is not None and replacing.scored:
            self._sets[replacing.scored] = device_records(run.data, scored(replacing, run)).to(self._device)
        self.steering_loss = "validation_loss" if run.data.validation is not None and run.noise is None else "loss"
        by_device = run.personal or run.config.training.evaluate_devices
        self._devices = DeviceScores(run) if by_device else None

    def scores(self, cloud: Cloud) -> dict[str, float]:
        """Metrics columns: measures and loss of the global model on each set, of the devices' own models, and how
        accuracy is spread over devices."""
        return self.scores_of(cloud.model) | ({} if self._devices is None else self._devices.scores(cloud))

    def scores_of(self, model: Tensor) -> dict[str, float]:
        """The scores of any global model (M,) on each set of records."""
        scores: dict[str, float] = {}
        for prefix, records in self._sets.items():
            found = self._evaluator.evaluate(model.to(self._device), records).measures
            scores |= {f"{prefix}{name}": value for name, value in found.items()}
        return scores


def device_scores(run: RunSetup, model: Tensor, energy_j: np.ndarray) -> dict[str, list[Any]]:
    """Columns of a row for each device: accuracy (or RMSE) and loss of the global model on its own records, its
    subnet's means, what it spent in the run (I,), and the numbers of its processor.

    Empty in networks of more than `MOST_DEVICES_SCORED`: to evaluate all their records takes longer than to train.
    """
    read, target, name_of = computing(run.topology), run.data.target, run.data.target.of_devices
    columns: dict[str, list[Any]] = {name: [] for name in device_schema(read, name_of).names}
    if run.topology.devices > MOST_DEVICES_SCORED:
        return columns
    firsts = run.blueprint.first_devices
    evaluator = Evaluator([run.blueprint.scores()], run.blueprint.loss, target=target)
    if (membership := run.topology.membership) is not None:  # of each device at all its edge servers
        energy_j = np.bincount(membership.device, weights=energy_j)[membership.device]
    homes = run.drawn.sizes if membership is not None else run.topology.sizes  # further rows come after
    for numbers in blocks(run.topology.sizes, range(run.topology.edges), workers=1):
        first, last = int(firsts[numbers.start]), int(firsts[numbers.stop])
        records = device_records(run.data, *run.data.subnet(first, last - first), cut=False).to(run.blueprint.device)
        means = evaluator.evaluate(model.to(run.blueprint.device), records).by_device
        score, loss = target.measures(means[:-1])[name_of], means[-1]
        for number in numbers:
            subnet, size = run.topology.subnets[number], int(homes[number])
            begin = int(firsts[number]) - first
            own = slice(begin, begin + size)
            columns["records"] += run.data.sizes[first:last][own].tolist()
            columns["energy_j"] += energy_j[first:last][own].tolist()
            columns[name_of] += score[own].tolist()
            columns["loss"] += loss[own].tolist()
            columns["device"] += subnet.device_names()[:size]
            for name in read:
                columns[name] += subnet.column(name)[:size].tolist()
            columns["edge"] += [subnet.name] * size
            columns["trust"] += [subnet.trust] * size
            columns[f"subnet_{name_of}"] += [float(np.mean(score[own]))] * size
            columns["subnet_loss"] += [float(np.mean(loss[own]))] * size
    return columns


def computing(topology: Topology) -> list[str]:
    """The columns of the processors that a network states."""
    return [name for name in topology.table.columns if name in OF_STEPS]


def columns_of_spread(score: str) -> tuple[str, ...]:
    """The columns of the deciles of a score over devices, and of the mean of the worst tenth."""
    return (*(f"device_{score}_p{each}0" for each in range(1, 10)), f"device_{score}_worst_tenth")


def spread(values: np.ndarray, score: str = "accuracy") -> dict[str, float]:
    """Metrics columns: the deciles of (I,) scores of devices, and the mean of the worst tenth of them, rounded up.

    >>> found = spread(np.arange(11) / 10)
    >>> round(found["device_accuracy_p10"], 3), round(found["device_accuracy_worst_tenth"], 3)
    (0.1, 0.05)
    """
    deciles = np.quantile(values, np.arange(1, 10) / 10).tolist()
    tenth = -(-len(values) // 10)
    ordered = np.sort(values)
    worst = ordered[-tenth:] if SCORES[score].falls else ordered[:tenth]
    return dict(zip(columns_of_spread(score), [*deciles, float(worst.mean())], strict=True))


class DeviceScores:
    """Evaluates the model of each device: its personal one, or the global one where it has none.

    Where the data say whose each test record is, a model is evaluated on those of its device, and all records count
    alike. Elsewhere on all test records, weighted so that classes are as frequent as in the device's own training
    records (those that the test data lack are left out; of other labels all test records count), and all devices count
    alike.
    """

    def __init__(self, run: RunSetup) -> None:
        self._run = run
        self._target = run.data.target
        self._evaluator = Evaluator([run.blueprint.scores()], run.blueprint.loss, target=self._target)
        self._device = run.blueprint.device
        test, owners = run.data.test, run.data.test_owners
        if owners is None:  # a class's records are evaluated as if a device's
            groups = test.y if self._target == CLASS else np.zeros(len(test), np.int64)
            labels, sizes = np.unique(groups, return_counts=True)
            self._mixes = _label_mixes(run, labels) if self._target == CLASS else np.ones((run.topology.devices, 1))
        else:
            groups, sizes = owners, np.bincount(owners, minlength=run.topology.devices)
        ordered, offsets = test.part(np.argsort(groups, kind="stable")), np.concatenate([[0], np.cumsum(sizes)])
        self._everyones = device_records(run.data, ordered, np.unique(offsets), cut=False).to(self._device)
        self._own = None if owners is None else [self._records(ordered, *ends) for ends in itertools.pairwise(offsets)]

    def _records(self, ordered: Records, first: int, stop: int) -> DeviceRecords | None:
        """The records of one device; None where it has none."""
        if first == stop:
            return None
        return device_records(self._run.data, ordered.part(slice(first, stop)), cut=False).to(self._device)

    def scores(self, cloud: Cloud) -> dict[str, float]:
        """Metrics columns: measures and loss of personal models, and how accuracy (or RMSE) is spread."""
        columns, means = self._personal(cloud) if self._run.personal else ({}, self._of(cloud))
        if not self._run.config.training.evaluate_devices:
            return columns
        score = self._target.of_devices
        return columns | spread(self._target.measures(means[:-1])[score], score)

    def _of(self, cloud: Cloud) -> np.ndarray:
        """(points + 1, I) means of the global model, of devices that have test records."""
        means = self._evaluator.evaluate(cloud.model.to(self._device), self._everyones).by_device
        return means if self._own is not None else np.stack([self._mixes @ each for each in means])

    def _personal(self, cloud: Cloud) -> tuple[dict[str, float], np.ndarray]:
        means, weights = [], []
        firsts = self._run.blueprint.first_devices
        for number, subnet in enumerate(self._run.topology.subnets):
            memories = cloud.memories(subnet.name)
            for row in range(subnet.size):
                weight, own = self._score(int(firsts[number]) + row, memories.get(row, cloud.model_of(subnet.name)))
                means.append(own)
                weights.append(weight)
        found = measures_of(self._target, np.average(np.array(means), axis=0, weights=weights))
        of_each = np.array(means)[np.array(weights) > 0].T
        return {f"personal_{name}": value for name, value in found.items()}, of_each

    def _score(self, device: int, model: torch.Tensor) -> tuple[float, np.ndarray]:
        """Weight and (points + 1,) means of a device."""
        model = model.to(self._device)
        if self._own is not None:
            records = self._own[device]
            if records is None:
                return 0.0, np.zeros(self._target.numbers + 1)
            return float(len(records.y)), self._evaluator.evaluate(model, records).whole
        result = self._evaluator.evaluate(model, self._everyones)
        return 1.0, np.array([self._mixes[device] @ each for each in result.by_device])


def _label_mixes(run: RunSetup, labels: np.ndarray) -> np.ndarray:
    """(I, labels) how frequent each of these labels is among a device's records."""
    counts, membership = label_counts(run.data)[:, labels], run.topology.membership
    if membership is not None:
        counts = counts[membership.home]
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals > 0, counts / np.maximum(totals, 1), 1 / len(labels))
