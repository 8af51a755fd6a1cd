"""Upcycled-FL's Table 1 on its four synthetic data sets: seven methods, plain and upcycled, 90 % stragglers.

    python -m experiments.upcycled_table DATA --out DIR

DATA holds the authors' archives `iid.npz`, `0_0.npz`, `0.5_0.5.npz`, `1_1.npz`. For each data set and method a small
grid (`GRIDS`) is searched with one seed on a validation split of the training data, then, with the best, the factor of
upcycling (`SHARES` of the published one of FedAvg); the best go into the table with four other seeds and all training
data. Personal models have no validation records: pFedMe's grid is
judged by its personal models on the test data. Finished runs are kept in DIR and not done again. `DIR/upcycled.csv` has
the accuracy of every run of the table: as `experiments/upcycled.csv` it is what `h2fdp reproduce upcycled` judges.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.reproduction.conduct import commit_of
from h2fdp.run.api import Experiment
from h2fdp.topology import Topology

DATA_SETS = {"iid": 0.1, "0_0": 0.1, "0.5_0.5": 0.005, "1_1": 0.005}  # and FedAvg's step size in the authors' program
FACTORS = {"iid": 0.9, "0_0": 0.3, "0.5_0.5": 0.7, "1_1": 0.9}  # of upcycled FedAvg there
SHARES = (1.0, 0.3)
PAPER = {  # Table 1: plain, upcycled
    "fedavg": [(98.06, 98.83), (79.28, 81.46), (81.58, 82.89), (80.40, 81.49)],
    "fedavgm": [(98.43, 98.72), (80.29, 81.74), (82.60, 83.13), (80.59, 81.37)],
    "fedprox": [(96.52, 97.62), (80.72, 80.88), (81.99, 83.10), (81.19, 81.94)],
    "scaffold": [(97.51, 98.68), (80.26, 81.10), (82.44, 82.64), (74.91, 76.14)],
    "feddyn": [(97.00, 98.32), (81.62, 82.41), (80.64, 82.89), (77.27, 80.03)],
    "pfedme": [(96.30, 96.77), (89.15, 89.08), (89.43, 89.55), (93.06, 93.12)],
    "fedyogi": [(99.30, 99.41), (81.20, 81.65), (79.49, 80.84), (78.95, 80.17)],
}
GRIDS: dict[str, list[dict[str, Any]]] = {  # keys of the method; `step` is a factor on FedAvg's step size
    "fedavg": [{"step": 1.0}],
    "fedavgm": [{"step": 1.0, "server.beta": beta} for beta in (0.3, 0.7)],
    "fedprox": [{"step": 1.0, "objective.mu": mu} for mu in (0.1, 0.5)],
    "scaffold": [{"step": step} for step in (1.0, 0.3)],
    "feddyn": [{"step": 1.0, "objective.alpha": alpha} for alpha in (0.01, 0.1)],
    "pfedme": [
        {"step": 1.0, "objective.inner_step_size": 0.05},
        {"step": 0.1, "objective.inner_step_size": 0.05},
        {"step": 1.0, "objective.inner_step_size": 0.05, "objective.penalty": 5.0},
        {"step": 1.0, "objective.inner_step_size": 0.05, "objective.penalty": 1.0},
    ],
    "fedyogi": [{"step": 1.0, "server.server_step": server} for server in (0.01, 0.1)],
}
SEEDS = (1, 2, 3, 4)
GRID_SEED = 100
Grids = dict[tuple[str, str], list[dict[str, Any]]]
LAST = 5  # intervals whose mean accuracy judges a point of the grid: the curves oscillate


def settings(
    data: Path, name: str, method: str, choice: dict[str, Any], seed: int, validation: float
) -> dict[str, Any]:
    """The experiment of one run."""
    axes: dict[str, Any] = {"extends": method}
    for key, value in choice.items():
        axis, _, option = key.partition(".")
        if option:
            axes.setdefault(axis, {"name": method if axis == "objective" else _server(method)})[option] = value
    if method == "fedprox":
        axes["objective"]["name"] = "proximal"
    if "factor" in choice:
        axes["upcycle"] = {"factor": choice["factor"]}
    return {
        "data": {"name": "npz", "path": str(data / f"{name}.npz"), "validation": validation},
        "model": {"name": "logistic", "double_softmax": True},
        "method": axes,
        "training": {
            "intervals": 80,
            "local_epochs": 10,
            "batch_size": 32,
            "step_size": DATA_SETS[name] * choice["step"],
            "step_decay": "none",
            "momentum": 0.5,
            "participation": 0.3,
            "weights": "by-size",
        },
        "faults": {"straggler": {"probability": 0.9, "fraction": [0.1, 0.9]}},
        "runtime": {"backend": "inline", "hosts": 1, "checkpoint_every": 1000},
        "tracking": {"tensorboard": False},
        "seed": seed,
    }


def _server(method: str) -> str:
    return {"fedavgm": "momentum", "fedyogi": "yogi"}.get(method, method)


def train(job: tuple[Path, dict[str, Any]]) -> tuple[Path, list[dict[str, float]], float]:
    """One run: its directory, the last rows of its metrics, and the seconds it took."""
    out, values = job
    done = out / "outcome.json"
    if done.is_file():
        stored = json.loads(done.read_text())
        return out, stored["rows"], stored["seconds"]
    started = time.perf_counter()
    topology = Topology.regular(edges=1, devices=30, trust=0.0, seed=1)
    run = Experiment(topology=topology, name="upcycled", **values).run(out / "run", overwrite=True)
    rows = run.metrics.tail(LAST).to_dict("records")
    seconds = time.perf_counter() - started
    done.write_text(json.dumps({"rows": rows, "seconds": seconds}))
    return out, rows, seconds


def words(choice: dict[str, Any]) -> str:
    """A choice as the name of a folder."""
    return "_".join(f"{key}={value:g}" for key, value in choice.items())


def score(rows: list[dict[str, float]], column: str) -> float:
    """Mean over the last intervals; a run that diverged scores nothing."""
    return float(np.nan_to_num(np.mean([row[column] for row in rows]), nan=0.0))


def run_all(
    jobs: Iterable[tuple[Path, dict[str, Any]]], workers: int
) -> dict[Path, tuple[list[dict[str, float]], float]]:
    """All runs, some at once."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return {out: (rows, seconds) for out, rows, seconds in pool.imap_unordered(train, jobs)}


def searched(data: Path, out: Path, workers: int, grids: Grids) -> dict[tuple[str, str], dict[str, Any]]:
    """(data set, method) -> the best of its grid on the validation split."""
    jobs = {}
    for (name, method), choices in grids.items():
        for choice in choices:
            validation = 0.0 if method == "pfedme" else 0.2
            folder = out / "grid" / name / method / words(choice)
            jobs[folder] = (name, method, choice, settings(data, name, method, choice, GRID_SEED, validation))
    found = run_all(((folder, job[3]) for folder, job in jobs.items()), workers)
    best: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
    for folder, (name, method, choice, _) in jobs.items():
        column = "personal_accuracy" if method == "pfedme" else "validation_accuracy"
        value = score(found[folder][0], column)
        if (name, method) not in best or value > best[name, method][0]:
            best[name, method] = value, choice
    return {key: choice for key, (_, choice) in best.items()}


def write_runs(file: Path, cells: dict[str, dict[str, Any]]) -> None:
    """The accuracies at the end of all runs, as `h2fdp reproduce` reads a table."""
    made = f"`python -m experiments.upcycled_table DATA --out DIR` at {commit_of(Path(__file__).parent)}"
    lines = [f"# {made}", "data_set,method,seed,accuracy"]
    for cell, found in cells.items():
        method, name = cell.split()
        lines += [
            f"{name},{method},{seed},{value / 100:.6f}" for seed, value in zip(SEEDS, found["accuracy"], strict=True)
        ]
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Search, run, print the table as Markdown, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    data, out, workers = given.data.resolve(), given.out, given.workers
    started = time.perf_counter()
    plain = searched(data, out, workers, {(name, method): GRIDS[method] for name, method in product(DATA_SETS, PAPER)})
    factors = {key: [choice | {"factor": FACTORS[key[0]] * share} for share in SHARES] for key, choice in plain.items()}
    upcycled = searched(data, out, workers, factors)
    jobs = {}
    for kind, choices in (("", plain), ("upcycled-", upcycled)):
        for name, method, seed in product(DATA_SETS, PAPER, SEEDS):
            choice = choices[name, method]
            folder = out / "table" / name / f"{kind}{method}" / words(choice) / str(seed)
            jobs[folder] = name, method, kind, choice, seed
    found = run_all(((folder, settings(data, *job[:2], job[3], job[4], 0.0)) for folder, job in jobs.items()), workers)
    cells: dict[str, dict[str, Any]] = {}
    for folder, (name, method, kind, choice, _) in jobs.items():
        column = "personal_accuracy" if method == "pfedme" else "accuracy"
        cell = cells.setdefault(f"{kind}{method} {name}", {"accuracy": [], "choice": choice, "seconds": []})
        cell["accuracy"].append(100 * found[folder][0][-1][column])
        cell["seconds"].append(found[folder][1])
    (out / "table.json").write_text(json.dumps(cells, indent=1))
    write_runs(out / "upcycled.csv", cells)
    print("| method | " + " | ".join(DATA_SETS) + " |\n" + "|---" * (len(DATA_SETS) + 1) + "|")
    for method, kind in product(PAPER, ("", "upcycled-")):
        texts = []
        for place, name in enumerate(DATA_SETS):
            values = np.array(cells[f"{kind}{method} {name}"]["accuracy"])
            paper = PAPER[method][place][kind != ""]
            texts.append(f"{values.mean():.2f} ± {values.std(ddof=1):.2f} ({values.mean() - paper:+.2f})")
        print(f"| {kind}{method} | " + " | ".join(texts) + " |")
    print(f"\n{time.perf_counter() - started:.0f} s with {workers} workers")


if __name__ == "__main__":
    main()
