"""The runs of Upcycled-FL's tables: what each data set, method and seed is as an experiment, and how one is made."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from h2fdp.network import Topology
from h2fdp.run.api import Experiment

Choice = Mapping[str, Any]
LAST = 5  # intervals whose mean accuracy judges a point of the grid: the curves oscillate


@dataclass(frozen=True)
class DataSet:
    """A column of the tables.

    Attributes:
        step_size, factor: of FedAvg, plain and upcycled, in the authors' program; ours, where it states none.
        intervals: rounds with devices.
        source: the `data` section, whose `path` is the folder or archive of the user.
    """

    step_size: float
    factor: float
    intervals: int
    devices: int
    model: Mapping[str, Any]
    source: Mapping[str, Any]


def double_softmax() -> nn.Module:
    """Logistic regression as the program of Upcycled-FL's authors trains it: its outputs are probabilities, which the
    cross-entropy takes for scores once more. The first records say how many features there are."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10), nn.Softmax(dim=1))


def _synthetic(step_size: float, factor: float) -> DataSet:
    return DataSet(step_size, factor, 80, 30, {"name": "experiments.upcycled.runs:double_softmax"}, {"name": "npz"})


SYNTHETIC = {
    "iid": _synthetic(0.1, 0.9),
    "0_0": _synthetic(0.1, 0.3),
    "0.5_0.5": _synthetic(0.005, 0.7),
    "1_1": _synthetic(0.005, 0.9),
}
LEAF = {  # the user's own files in LEAF's format, a user of the files for each device; no step sizes are published
    "femnist": DataSet(0.01, 0.5, 150, 50, {"name": "mlp", "hidden": 196}, {"name": "leaf"}),
    "sent140": DataSet(0.1, 0.5, 80, 52, {"name": "lstm", "embedding": 300, "hidden": 256}, {"name": "leaf"}),
}
DATA_SETS = SYNTHETIC | LEAF


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        file: the archive of a synthetic data set, the folder of another.
        stragglers: the share of the devices of a round that stop early.
        every: intervals between evaluations; 0 for the last one alone.
        changes: of sections of the experiment, for runs with noise.
    """

    data_set: str
    method: str
    choice: Choice
    seed: int
    file: Path
    stragglers: float = 0.9
    every: int = 0
    changes: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def column(self) -> str:
        """What its accuracy is called; personal models are what pFedMe is about."""
        return "personal_accuracy" if self.method == "pfedme" else "accuracy"

    @property
    def experiment(self) -> dict[str, Any]:
        """Its sections."""
        of = DATA_SETS[self.data_set]
        found: dict[str, Any] = {
            "data": {**of.source, "path": str(self.file)},
            "model": of.model,
            "method": _axes(self.method, self.choice),
            "training": {
                "extends": "paper",
                "intervals": of.intervals,
                "local_epochs": 10,
                "batch_size": 32,
                "step_size": of.step_size * self.choice["step"],
                "step_decay": "none",
                "momentum": 0.5,
                "participation": 0.3,
                "weights": "by-size",
                "evaluate_every": self.every or of.intervals,
            },
            "faults": {"straggler": {"probability": self.stragglers, "fraction": [0.1, 0.9]}},
            "runtime": {"backend": "inline", "hosts": 1, "checkpoint_every": 1000, "engine": "compiled"},
            "tracking": {"tensorboard": False},
            "seed": self.seed,
        }
        if of.model["name"] == "lstm":
            found["runtime"]["engine"] = "auto"  # there are no compiled steps of it
        for section, values in (self.changes or {}).items():
            found[section] = {**found.get(section, {}), **values}
        return found


def _axes(method: str, choice: Choice) -> dict[str, Any]:
    servers = {"fedavgm": "momentum", "fedyogi": "yogi"}
    objectives = {"fedprox": "proximal"}
    axes: dict[str, Any] = {"extends": method}
    for key, value in choice.items():
        axis, _, option = key.partition(".")
        if option:
            name = servers.get(method, method) if axis == "server" else objectives.get(method, method)
            axes.setdefault(axis, {"name": name})[option] = value
    if "factor" in choice:
        axes["upcycle"] = choice["factor"]
    return axes


def words(choice: Choice) -> str:
    """A choice as the name of a folder."""
    return "_".join(f"{key}={value:g}" for key, value in choice.items())


def train(job: tuple[Path, Job]) -> tuple[Path, dict[str, Any]]:
    """One run: its directory, and what came of it: the last `rows` of its metrics, and the `seconds` of processor time.

    What an earlier command left there is not made again.
    """
    out, of = job
    done = out / "outcome.json"
    if done.is_file():
        return out, json.loads(done.read_text())
    started = time.process_time()
    topology = Topology.regular(edges=1, devices=DATA_SETS[of.data_set].devices, trust=0.0, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        run = Experiment(topology=topology, name="upcycled", **of.experiment).run(Path(folder) / "run")
        rows = run.metrics.tail(LAST).to_dict("records")
    found = {"rows": rows, "seconds": time.process_time() - started}
    out.mkdir(parents=True, exist_ok=True)
    done.write_text(json.dumps(found))
    return out, found


def run_all(jobs: Mapping[Path, Job], workers: int) -> dict[Path, dict[str, Any]]:
    """All runs, some at once; a single worker is this process."""
    if workers == 1:
        return dict(map(train, jobs.items()))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return dict(pool.imap_unordered(train, jobs.items()))


def final(found: Mapping[str, Any], column: str) -> float:
    """Accuracy at the end in per cent; a run that diverged has none."""
    return 100 * float(np.nan_to_num(found["rows"][-1][column] or 0.0))


def score(found: Mapping[str, Any], column: str) -> float:
    """Mean accuracy over the last intervals; a run that diverged scores nothing."""
    return float(np.nan_to_num(np.mean([row[column] for row in found["rows"]]), nan=0.0))


def held_out(archive: Path, copy: Path) -> Path:
    """A copy of an archive whose test records are every fifth training record of each device.

    So a grid can be judged by personal models too, without a look at the test records.
    """
    if copy.is_file():
        return copy
    with np.load(archive) as arrays:
        x, y, devices = (arrays[f"{name}_train"] for name in ("x", "y", "device"))
    place = np.empty(len(devices), dtype=np.int64)  # of a record among those of its device
    for device in np.unique(devices):
        own = devices == device
        place[own] = np.arange(own.sum())
    test = place % 5 == 4
    copy.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        copy,
        x_train=x[~test], y_train=y[~test], device_train=devices[~test],
        x_test=x[test], y_test=y[test], device_test=devices[test],
    )  # fmt: skip
    return copy


def split_leaf(folder: Path, copy: Path) -> Path:
    """The same of a folder in LEAF's format."""
    if (copy / "test" / "all.json").is_file():
        return copy
    home = folder if (folder / "train").is_dir() else folder / "data"
    parts: dict[str, dict[str, Any]] = {"train": {}, "test": {}}
    for file in sorted((home / "train").glob("*.json")):
        for user, held in json.loads(file.read_text(encoding="utf-8"))["user_data"].items():
            for part, chosen in (("train", lambda n: n % 5 != 4), ("test", lambda n: n % 5 == 4)):
                own = parts[part].setdefault(user, {"x": [], "y": []})
                for key in own:
                    own[key] += [each for n, each in enumerate(held[key]) if chosen(n)]
    for part, users in parts.items():
        (copy / part).mkdir(parents=True, exist_ok=True)
        held = {user: own for user, own in users.items() if own["y"]}
        counts = [len(own["y"]) for own in held.values()]
        text = json.dumps({"users": list(held), "num_samples": counts, "user_data": held})
        (copy / part / "all.json").write_text(text, encoding="utf-8")
    return copy


def score_of_grid(jobs: Iterable[tuple[Path, Job]], found: Mapping[Path, Mapping[str, Any]]) -> dict[Path, float]:
    """Folder -> what its point of the grid is worth."""
    return {folder: score(found[folder], job.column) for folder, job in jobs}
