"""What the controller chooses as the weights of problem P change (H2FDP, Figs. 8 and 10), on Fashion-MNIST.

`python -m experiments.control.weights --data-root DIR [--seeds 3] [--train] [--tight]`

tau_max = 40 and 15 devices in each of 10 subnets, as in the paper. tau_k and s_c^k depend on the channels, the slot and
the constants of the noise, on nothing that is learned: so they are computed without training. With --train, one value
of each weight is also trained for every seed and must give the same decisions. --tight takes the setting in which
Figure 5 holds (`experiments.control.savings`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from h2fdp import Experiment, Topology
from h2fdp.run.setup import RunSetup

BASE = {"alpha1": 1.0, "alpha2": 0.01, "alpha3": 1.0}
VALUES = {
    "alpha1": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0),
    "alpha2": (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0),
    "alpha3": (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
}
TIGHT_BASE = {"alpha1": 0.3, "alpha2": 0.01, "alpha3": 1.0}
TIGHT = {"batch_size": 8, "step_size": 0.05, "sensitivity": "tight"}
RISES = {"alpha1": "tau", "alpha2": "tau", "alpha3": "devices"}  # the other one falls, says the paper
INTERVALS = 200


def experiment(seed: int, settings: dict[str, Any], control: dict[str, Any]) -> Experiment:
    """The paper's network with 15 devices a subnet, under control."""
    return Experiment(
        topology=Topology.regular(edges=10, devices=15, trust=0.5, seed=seed),
        data={"name": "fashion-mnist", "partition": {"labels_per_device": 3}},
        model="softmax",
        training="paper",
        seed=seed,
        intervals=INTERVALS,
        local_steps=20,
        aggregate_every=None,
        aggregations_per_interval=1,
        evaluate_every=INTERVALS,
        control={"enabled": True, "tau_max": 40, **control},
        **settings,
    )


def decided(run: RunSetup, weight: str, value: float) -> list[tuple[int, list[int]]]:
    """(tau_k, s_c^k) of all intervals with another weight, without training; no weight changes data, model or noise."""
    control = run.config.control.model_copy(update={weight: value})
    schedule, slot, found = replace(run, config=run.config.model_copy(update={"control": control})).schedule(), 0, []
    for interval in range(INTERVALS):
        if schedule.ends(slot):
            break
        decision = schedule.decide(interval, slot)
        slot += decision.local_steps
        schedule.skipped(interval, decision.local_steps, {})
        found.append((decision.local_steps, decision.participation.tolist()))
    return found


def trained(of: Experiment, data_root: Path | None) -> list[tuple[int, list[int]]]:
    """The same from the decisions that a run wrote down."""
    with tempfile.TemporaryDirectory() as folder:
        run = of.run(Path(folder) / "run", data_root=data_root)
        rows = [json.loads(line) for line in (run.directory / "control.jsonl").read_text().splitlines()]
    return [(row["tau"], list(row["participation"].values())) for row in rows]


def main() -> None:
    """Print means of tau and of devices a subnet, and whether they move as the paper says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--tight", action="store_true")
    asked = parser.parse_args()
    base, settings = (TIGHT_BASE, TIGHT) if asked.tight else (BASE, {})
    rows = []
    for seed in range(1, asked.seeds + 1):
        run = experiment(seed, settings, base).prepare(asked.data_root)
        for weight, values in VALUES.items():
            for value in values:
                found = decided(run, weight, value)
                if asked.train and value == values[len(values) // 2]:
                    of = experiment(seed, settings, {**base, weight: value})
                    assert found == trained(of, asked.data_root), (seed, weight, value)
                    print(f"seed {seed}, {weight} {value:g}: a trained run decides the same {len(found)} times")
                tau, devices = [np.mean([each[part] for each in found]) for part in (0, 1)]
                rows.append({"weight": weight, "value": value, "seed": seed, "tau": tau, "devices": devices})
    table = pd.DataFrame(rows)
    means = table.groupby(["weight", "value"])[["tau", "devices"]].agg(["mean", "min", "max"]).round(2)
    print(means.to_string())
    for weight, part in table.groupby("weight"):
        for column in ("tau", "devices"):
            sign = 1 if RISES[str(weight)] == column else -1
            steps = [sign * np.diff(one.sort_values("value")[column]) for _, one in part.groupby("seed")]
            wrong = [float(values) for values, step in zip(VALUES[str(weight)][1:], np.min(steps, axis=0), strict=True)
                     if step < -1e-9]  # fmt: skip
            verdict = "in every step of every seed" if not wrong else f"not at the step(s) to {wrong}"
            print(f"{weight}: mean {column} {'rises' if sign > 0 else 'falls'} (or stays) {verdict}")


if __name__ == "__main__":
    main()
