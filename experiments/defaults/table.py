"""What the defaults reach on tasks, next to what a search finds and to the paper's training (docs/defaults.md).

    python -m experiments.defaults.table --data-root DIR --out runs/defaults            # every task, three seeds
    python -m experiments.defaults.table --data-root DIR --out runs/defaults --tune 30  # and 30 trials for each

Prints a row for each task, and keeps them in `defaults.csv`. Searches are judged on a tenth of the training
records, their best setting on the test records of the same seeds; no epsilon counts what a search learns.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from torch import nn

from h2fdp import Experiment
from h2fdp.streams import Streams

FILE = Path(__file__).with_name("defaults.csv")
COLUMNS = ("task", "epsilon", "default", "spread", "joules", "paper", "tuned", "trials")


def network(edges: int = 10, devices: int = 5) -> dict[str, Any]:
    """Edge servers that are not trusted, with so many devices each."""
    below = {"count": devices, "distance_m": {"uniform": [10, 100]}}
    return {"edges": [{"name": "edge-{i}", "repeat": edges, "trusted": False, "devices": below}]}


def tiers() -> dict[str, Any]:
    """Two regions of five edge servers of five devices."""
    below = network(edges=5)["edges"][0]
    regions = [
        {"name": name, "trusted": False, "edges": [below | {"name": f"{name}-{{i}}"}]} for name in ("east", "west")
    ]
    return {"edges": regions}


@dataclass(frozen=True)
class Task:
    """Data on a network, and what is trained.

    Attributes:
        data: a section, or the name of records that are drawn here.
        epsilon: of every observer, with delta 1e-5.
        looked_at: it had a part when the rule was made.
    """

    data: dict[str, Any] | str
    epsilon: float = 1.0
    topology: dict[str, Any] = field(default_factory=network)
    model: Any = None
    looked_at: bool = False


class Tanh(nn.Sequential):
    """A perceptron of 64 units on 28x28 pixels."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10))


class DigitsTanh(nn.Sequential):
    """A perceptron of 64 units on 8x8 pixels: 4,810 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


class DigitsCnn(nn.Sequential):
    """Two convolutions and one layer on 8x8 pixels: 1,898 parameters."""

    def __init__(self) -> None:
        convolutions = [nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Conv2d(8, 16, 3, stride=2), nn.Tanh()]
        super().__init__(*convolutions, nn.Flatten(), nn.Linear(64, 10))


class SmallCnn(nn.Sequential):
    """Two convolutions and one layer: 6,090 parameters on 28x28 pixels."""

    def __init__(self) -> None:
        first = [nn.Conv2d(1, 8, 5, stride=2), nn.Tanh(), nn.Conv2d(8, 16, 5, stride=2), nn.Tanh()]
        super().__init__(*first, nn.Flatten(), nn.Linear(256, 10))


def _labels(name: str, **partition: Any) -> dict[str, Any]:
    return {"name": name, "partition": partition or {"labels_per_device": 3}}


WORDS = {"name": "lstm", "vocabulary": 200, "embedding": 8, "hidden": 8}
TASKS = {
    "Fashion-MNIST": Task(_labels("fashion-mnist"), looked_at=True),
    "Fashion-MNIST, MLP of 64": Task(_labels("fashion-mnist"), model=Tanh, looked_at=True),
    "Fashion-MNIST, small CNN": Task(_labels("fashion-mnist"), model=SmallCnn),
    "Fashion-MNIST, Dirichlet 0.1": Task(_labels("fashion-mnist", dirichlet=0.1)),
    "Fashion-MNIST, three tiers": Task(_labels("fashion-mnist"), topology=tiers()),
    "Fashion-MNIST, 10 devices": Task(_labels("fashion-mnist"), topology=network(2, 5)),
    "Fashion-MNIST, 500 devices": Task(_labels("fashion-mnist"), topology=network(10, 50)),
    "MNIST": Task(_labels("mnist")),
    "CIFAR-10": Task(_labels("cifar10")),
    "digits, 8 devices": Task(_labels("digits"), epsilon=8.0, topology=network(2, 4)),
    "digits, 8 devices, MLP of 64": Task(_labels("digits"), epsilon=8.0, topology=network(2, 4), model=DigitsTanh),
    "digits, 8 devices, small CNN": Task(_labels("digits"), epsilon=8.0, topology=network(2, 4), model=DigitsCnn),
    "table of 20 columns": Task("table-20", epsilon=2.0, looked_at=True),
    "table of 40 columns": Task("table-40", epsilon=2.0, looked_at=True),
    "synthetic (0.5, 0.5)": Task({"name": "synthetic", "alpha": 0.5, "beta": 0.5}, epsilon=2.0),
    "words, LSTM": Task("words", epsilon=8.0, topology=network(2, 4), model=WORDS),
}


def drawn(name: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and test records of tables and texts that are drawn: columns from 0 to 1, or rows of 8 words of 200."""
    if name == "words":
        rng = Streams(7).open("", name)
        likely = rng.dirichlet(np.full(200, 0.5), size=4)
        y = rng.integers(0, 4, size=6_000)
        x = np.stack([rng.choice(200, size=8, p=likely[each]) for each in y]).astype(np.float32)
    else:
        columns = int(name.removeprefix("table-"))
        some = {20: (20_000, 6, 3, 0.8), 40: (6_000, 10, 2, 0.7)}[columns]
        count, informative, classes, apart = some
        x, y = make_classification(
            count, columns, n_informative=informative, n_redundant=columns // 4, n_classes=classes,
            n_clusters_per_class=1, class_sep=apart, random_state=columns,
        )  # fmt: skip
        x = ((x - x.min(0)) / (x.max(0) - x.min(0))).astype(np.float32)
    first = len(y) * 4 // 5
    return (x[:first], y[:first]), (x[first:], y[first:])


def experiment(task: Task, seed: int, validation: float = 0.0, **settings: Any) -> Experiment:
    """The task's shortest experiment, with these settings."""
    given: dict[str, Any] = {"topology": task.topology, "method": "h2fdp", "epsilon": task.epsilon, "seed": seed}
    model = {} if task.model is None else {"model": task.model}
    given |= model | {"tracking": {"tensorboard": False}} | settings
    if isinstance(task.data, str):
        (x, y), test = drawn(task.data)
        if validation:
            held = int(len(y) * validation)
            (x, y), test = (x[held:], y[held:]), (x[:held], y[:held])
        return Experiment(data=(x, y), test_data=test, partition="iid", **given)
    section = task.data | ({"validation": validation} if validation else {})
    return Experiment(data=section, **given)


def accuracy(task: Task, out: Path, data_root: Path, seeds: int, **settings: Any) -> tuple[list[float], float]:
    """Test accuracies of so many seeds, in percent, and the joules of the last."""
    found, joules = [], 0.0
    for seed in range(1, seeds + 1):
        run = experiment(task, seed, **settings).run(out, data_root=data_root, overwrite=True, progress=False)
        found.append(100 * run.summary["accuracy"])
        joules = run.summary["energy_j"]
    return found, joules


def trials(task: Task, number: int, out: Path, data_root: Path) -> dict[str, Any]:
    """The best of so many random settings around the default's, by the accuracy on records that are held out."""
    chosen = experiment(task, 101).prepare(data_root).config.training
    rng = Streams(101).open("", "trials")
    best: tuple[float, dict[str, Any]] = (-1.0, {})
    for trial in range(number):
        norm = chosen.largest_norm
        assert norm is not None, "gradients are clipped under noise"
        scale = 10 ** rng.uniform(-1, 1, size=2) if trial else np.ones(2)
        drawn_values = {
            "step_size": float(chosen.step_size * scale[0]),
            "clip_norm": float(norm * scale[1] ** 0.5),
            "intervals": int(rng.choice([10, 20, 30, 45, 60])) if trial else chosen.intervals,
            "sampling_rate": float(rng.choice([0.2, 0.5, 1.0])) if trial else 1.0,
        }
        settings = {"training": drawn_values | {"evaluate_every": 1_000}}
        score = _validated(task, out, data_root, settings)
        if score > best[0]:
            best = score, settings
    return best[1]


def _validated(task: Task, out: Path, data_root: Path, settings: dict[str, Any]) -> float:
    trial = experiment(task, 101, validation=0.1, **settings)
    if isinstance(task.data, str):  # the held out records are its test records
        return float(trial.run(out, data_root=data_root, overwrite=True, progress=False).summary["accuracy"])
    run = trial.run(out, data_root=data_root, overwrite=True, progress=False)
    return float(run.metrics["validation_accuracy"].dropna().iloc[-1])


def rows(names: list[str], out: Path, data_root: Path, seeds: int, number: int) -> Iterator[dict[str, Any]]:
    """A row for each task."""
    for name in names:
        task = TASKS[name]
        reached, joules = accuracy(task, out, data_root, seeds)
        own = {} if task.model is not None else {"model": "softmax"}
        paper, _ = accuracy(task, out, data_root, 1, training={"extends": "paper", "evaluate_every": 1_000}, **own)
        row = {
            "task": name,
            "epsilon": task.epsilon,
            "default": round(float(np.mean(reached)), 2),
            "spread": round(float(np.std(reached, ddof=1)), 2),
            "joules": round(joules, 2),
            "paper": round(float(np.mean(paper)), 2),
        }
        if number:
            best = trials(task, number, out, data_root)
            row |= {
                "tuned": round(float(np.mean(accuracy(task, out, data_root, seeds, **best)[0])), 2),
                "trials": number,
            }
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"), help="where the last run is left")
    parser.add_argument("--only", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tune", type=int, default=0, metavar="TRIALS")
    asked = parser.parse_args()
    known = {row["task"]: row for row in csv.DictReader(FILE.open())} if FILE.exists() else {}
    for row in rows(asked.only, asked.out, asked.data_root, asked.seeds, asked.tune):
        print(row, flush=True)
        known[row["task"]] = known.get(row["task"], {}) | row
        with FILE.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(known[name] for name in TASKS if name in known)


if __name__ == "__main__":
    main()
