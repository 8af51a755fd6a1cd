"""The four shapes whose times FLUTE publishes, in h2fdp: `python -m benchmarks.published --shape lr-mnist`.

1,000, 3,400, 500 and 715 devices, ten of which train for one epoch in each round, by federated averaging without
privacy; the test records are evaluated as often as theirs. `--rounds N` runs a part and says what all rounds would take
at that pace. Records are drawn in the shape of theirs (lengths of an epoch are means over devices), for no time depends
on their values; `lr-mnist --data-root DIR` has MNIST's own. Sources of rounds, sizes and times: README.md and
experiments/cv_* and nlp_* of github.com/microsoft/msrflute, read in November 2026; Dimitriadis et al. 2022 (FLUTE);
their machines are described as "CPU" and as GPUs without a name there.
"""

# ruff: noqa: E402
from __future__ import annotations

import time

BEGAN = time.perf_counter()  # before torch is imported, which counts

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

import h2fdp
from benchmarks.side_by_side import machine
from h2fdp.run import model_scores

EACH_ROUND, WARM_UP = 10, 2  # devices; rounds that no pace counts


class Logistic(nn.Sequential):
    """FLUTE's model of MNIST: cross-entropy of the sigmoids of a linear layer."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, 10), nn.Sigmoid())


class Cnn(nn.Sequential):
    """FLUTE's model of FEMNIST (Reddi et al. 2021), without its dropout: 1,206,590 parameters."""

    def __init__(self) -> None:
        convolutions = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)
        super().__init__(*convolutions, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 62))


@dataclass(frozen=True)
class Shape:
    """One of the shapes.

    Attributes:
        records: of a device, the mean of theirs; `tests` of all together.
        record: shape of a record, and of its labels.
        rounds, every: rounds, and rounds from one evaluation to the next.
        published: who, on what -> hours, minutes and seconds.
    """

    devices: int
    records: int
    tests: int
    record: tuple[int, ...]
    label: tuple[int, ...]
    classes: int
    batch: int
    step_size: float
    rounds: int
    every: int
    model: Callable[[], nn.Module] | dict[str, Any]
    published: dict[str, str]

    @property
    def steps(self) -> int:
        """Of a device in a round."""
        return -(-self.records // self.batch)


SHAPES = {
    "lr-mnist": Shape(
        1_000, 60, 10_000, (1, 28, 28), (), 10, 10, 0.03, 100, 20, Logistic,
        {"FLUTE, CPU": "0:03:20", "FLUTE, GPUs": "0:01:35", "Flower 1.0.0, CPU": "0:30:14", "FedML, GPUs": "0:03:09"},
    ),
    "cnn-femnist": Shape(
        3_400, 198, 77_483, (1, 28, 28), (), 62, 20, 0.1, 1_500, 50, Cnn,
        {"FLUTE, GPUs (1,500 rounds in its README, 800 in its file)": "0:08:22", "FedML, GPUs": "5:49:52"},
    ),
    "resnet-cifar100": Shape(
        500, 100, 10_000, (3, 32, 32), (), 100, 20, 0.1, 4_000, 50, {"name": "torchvision:resnet18"},
        {"FLUTE, GPUs": "1:42:01", "FedML, GPUs": "15:55:36"},
    ),
    "rnn-shakespeare": Shape(
        715, 22, 2_356, (80,), (80,), 90, 4, 0.8, 1_200, 50, {"name": "char-lstm", "vocabulary": 89},
        {"FLUTE, GPUs": "0:21:50", "FedML, GPUs": "6:46:21"},
    ),
}  # fmt: skip


def drawn(shape: Shape, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of a shape: pixels of 8 bits, or numbers of characters."""
    rng = np.random.default_rng(seed)
    if len(shape.record) == 1:
        x = rng.integers(0, shape.classes, (count, *shape.record))
    else:
        x = rng.integers(0, 256, (count, *shape.record), dtype=np.uint8)
    y = rng.integers(0, shape.classes, (count, *shape.label))
    y.reshape(-1)[: shape.classes] = np.arange(shape.classes)[: y.size]  # each class is seen
    return x, y


def experiment(shape: Shape, rounds: int, asked: argparse.Namespace) -> h2fdp.Experiment:
    """The shape as an experiment."""
    data: Any = {"name": "mnist", "partition": "iid"}
    test = None
    if asked.data_root is None:
        data, test = (
            drawn(shape, *each) for each in ((shape.devices * shape.records, 1), (asked.tests or shape.tests, 2))
        )
    settings: dict[str, Any] = {"gpus_per_host": 1} if asked.gpu else {}
    settings |= {"backend": "inline"} if asked.hosts == 1 or not asked.gpu else {}
    return h2fdp.Experiment(
        topology=h2fdp.Topology.regular(edges=asked.hosts, devices=shape.devices // asked.hosts, trust=1.0),
        data=data,
        test_data=test,
        model=shape.model,
        method="fedavg" if asked.hosts == 1 else "hfl",
        training="paper",
        intervals=rounds,
        local_epochs=1,
        batch_size=shape.batch,
        step_size=shape.step_size,
        step_decay="none",
        sampling="fixed",
        participation=EACH_ROUND / shape.devices,
        evaluate_every=min(shape.every, rounds),
        hosts=asked.hosts,
        engine=asked.engine,
        **settings,
    )


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def main() -> None:
    """Run a shape and print its times beside the published ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--rounds", type=int, help="fewer rounds than theirs")
    parser.add_argument("--tests", type=int, help="fewer test records than theirs, each of which a processor evaluates")
    parser.add_argument("--gpu", action="store_true", help="train on a GPU")
    parser.add_argument("--engine", choices=["auto", "stacked", "loop"], default="auto")
    parser.add_argument("--hosts", type=int, default=1, help="threads, each with its own part of the devices")
    parser.add_argument("--data-root", type=Path, help="folder of MNIST/, for lr-mnist")
    asked = parser.parse_args()
    shape = SHAPES[asked.shape]
    if asked.data_root is not None and asked.shape != "lr-mnist":
        parser.error("--data-root: MNIST is for lr-mnist alone")
    rounds = shape.rounds if asked.rounds is None else asked.rounds
    if not rounds > WARM_UP:
        parser.error(f"--rounds: expected more than {WARM_UP}, which are no part of the pace")
    before, ends = time.perf_counter(), list[float]()
    unscored = patch.object(model_scores, "MOST_DEVICES_SCORED", 0)  # theirs score no device's own records in the end
    with tempfile.TemporaryDirectory() as folder, unscored:
        made = experiment(shape, rounds, asked)
        began = time.perf_counter()
        out = Path(folder) / "run"
        run = made.run(out, data_root=asked.data_root, on_interval=lambda row: ends.append(time.perf_counter()))
        parameters, engine = run.summary["parameters"], run.summary["engine"]
    imports, drawing, done = before - BEGAN, began - before, time.perf_counter()
    paces = np.diff(ends)[WARM_UP - 1 :]  # from the end of a round to the end of the next
    pace, mean, start = statistics.median(paces), statistics.mean(paces), ends[0] - began
    taken = done - BEGAN - drawing
    rows = {
        "in all": f"{clock(taken)} ({taken:.1f} s, without {drawing:.1f} s in which the records are drawn)",
        "start": f"{imports:.1f} s of imports, {start:.1f} s to the end of the first round",
        "seconds a round": f"{pace:.4g} (median; mean, with evaluations, {mean:.4g})",
        "device-steps a second": f"{EACH_ROUND * shape.steps / pace:,.0f}",
    }
    if rounds < shape.rounds:
        rows["all rounds at this mean"] = clock(imports + start + mean * (shape.rounds - 1))
    rows |= {f"published: {who}": time_of for who, time_of in shape.published.items()}
    gpu = f"{torch.cuda.get_device_name()}, " if asked.gpu else ""
    rows["machine"] = f"{gpu}{machine()}, torch {torch.__version__}, h2fdp {h2fdp.__version__}, {asked.hosts} host(s)"
    print(
        f"{asked.shape}: {rounds:,} of {shape.rounds:,} rounds of {EACH_ROUND} of {shape.devices:,} devices, "
        f"{shape.steps} steps of {shape.batch} records; {parameters:,} parameters, engine {engine}"
    )
    for name, value in rows.items():
        print(f"  {name:<32} {value}")


if __name__ == "__main__":
    main()
