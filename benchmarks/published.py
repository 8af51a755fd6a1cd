"""The four shapes whose times FLUTE publishes, in h2fdp: `python -m benchmarks.published --shape lr-mnist`.

1,000, 3,400, 500 and 715 devices, ten of which train for one epoch in each round, by federated averaging without
privacy; the test records are evaluated as often as theirs. `--rounds N` runs a part and says what all rounds would take
at that pace. Records are drawn in the shape of theirs, for no time depends on their values; `lr-mnist --data-root DIR`
has MNIST's own. Sources are in rivals/shapes.py; the times are of Dimitriadis et al. 2022 (FLUTE), whose machines are
described as "CPU" and as GPUs without a name. `python -m benchmarks.side_by_side --only SHAPE` runs Flower and pfl.
"""

# ruff: noqa: E402
from __future__ import annotations

import time

BEGAN = time.perf_counter()  # before torch is imported, which counts

import argparse
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import h2fdp
from benchmarks.rivals.shapes import EACH_ROUND, SHAPES, Shape, drawn
from benchmarks.side_by_side import machine
from h2fdp.run import model_scores

WARM_UP = 2  # rounds that no pace counts


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
    before, ends, worked = time.perf_counter(), list[float](), list[float]()

    def note(row: Any) -> None:
        ends.append(time.perf_counter())
        worked.append(time.process_time())

    unscored = patch.object(model_scores, "MOST_DEVICES_SCORED", 0)  # theirs score no device's own records in the end
    with tempfile.TemporaryDirectory() as folder, unscored:
        made = experiment(shape, rounds, asked)
        began = time.perf_counter()
        out = Path(folder) / "run"
        run = made.run(out, data_root=asked.data_root, on_interval=note)
        parameters, engine = run.summary["parameters"], run.summary["engine"]
    imports, drawing, done = before - BEGAN, began - before, time.perf_counter()
    paces = np.diff(ends)[WARM_UP - 1 :]  # from the end of a round to the end of the next
    pace, mean, start = statistics.median(paces), statistics.mean(paces), ends[0] - began
    processor = statistics.median(np.diff(worked)[WARM_UP - 1 :])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    taken = done - BEGAN - drawing
    rows = {
        "in all": f"{clock(taken)} ({taken:.1f} s, without {drawing:.1f} s in which the records are drawn)",
        "start": f"{imports:.1f} s of imports, {start:.1f} s to the end of the first round",
        "seconds a round": f"{pace:.4g} (median; mean, with evaluations, {mean:.4g})",
        "... of processors": f"{processor:.4g}",
        "peak memory": f"{memory:,.0f} MB",
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
