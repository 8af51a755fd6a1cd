"""Networks that a study never saw: what its curve says of each, and what a run of it measures.

python -m experiments.study.held_out --data-root DIR --out OUT    # continues; --judge prints the stored table's numbers

For each of three data sets one study of the paper's network (10 x 5 devices, records at random) makes a curve. Then
networks are drawn: 3 to 25 edge servers of 2 to 10 devices each, no two alike, a trust from 0 to 1, records by a
Dirichlet of 0.1 to 10 or at random, an epsilon from 0.1 to 10, a seed. Each is planned, read from the curve and run.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np

import h2fdp
from experiments.programs import append_row, told
from h2fdp.config import empty_document
from h2fdp.run.network_plan import plan_of
from h2fdp.sweeps.plan import SharedInputs

COUNTS = {"fashion-mnist": 20, "mnist": 20, "table": 10}
TABLE = Path(__file__).with_name("held-out.csv")
NEAR = 0.01  # a point
_EDGES = [[3, 4], [25, 10]]  # of the studies: about the ends of what is drawn


def base(data: str, out: Path) -> dict[str, Any]:
    """The experiment whose networks make the curve."""
    edges = [{"name": "edge-{i}", "repeat": 10, "devices": {"count": 5}}]
    section = {"name": "table", "path": str(table(out)), "label": "y"} if data == "table" else {"name": data}
    return {"topology": {"edges": edges}, "data": section | {"partition": "iid"}, "method": "h2fdp"}


def table(out: Path) -> Path:
    """A table of 24,000 rows, 25 columns and five classes, always the same, whose columns state no ranges."""
    from sklearn.datasets import make_classification

    path = out.absolute() / "table.csv"
    if not path.exists():
        shape = {"n_samples": 24_000, "n_features": 25, "n_informative": 12, "n_classes": 5}
        x, y = make_classification(**shape, random_state=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        names = ",".join([*(f"c{at}" for at in range(x.shape[1])), "y"])
        np.savetxt(
            path, np.column_stack([x, y]), fmt=["%.5g"] * x.shape[1] + ["k%d"], delimiter=",", header=names, comments=""
        )
    return path


def drawn(data: str, number: int, out: Path) -> dict[str, Any]:
    """The number-th held-out experiment."""
    known = base(data, out)
    rng = np.random.default_rng([60, number, len(data)])
    count, trust = int(rng.integers(3, 26)), float(rng.uniform())
    sizes = rng.integers(2, 11, size=count).tolist()
    alpha, even = float(10 ** rng.uniform(-1, 1)), bool(rng.uniform() < 0.2)
    epsilon, seed = float(f"{10 ** rng.uniform(-1, 1):.3g}"), int(rng.integers(100, 10_000))
    edges = [{"name": f"edge-{at}", "devices": {"count": size}} for at, size in enumerate(sizes)]
    topology = {"trust": {"trusted": round(trust, 2), "exact": True}, "edges": edges}
    partition = "iid" if even else {"dirichlet": round(alpha, 2)}
    privacy = {"epsilon": epsilon}
    own = {"topology": topology, "data": known["data"] | {"partition": partition}, "privacy": privacy, "seed": seed}
    return known | own


def measured(data: str, number: int, curve: Any, shared: SharedInputs, out: Path) -> dict[str, Any]:
    """A row of the table."""
    values = drawn(data, number, out)
    config, topology = shared.experiment(empty_document("held out", Path.cwd(), values), [])
    began = time.perf_counter()
    plan = plan_of(shared.planned(config, topology))
    seconds = time.perf_counter() - began
    predicted, half = float(curve(plan.noise)), float(curve.band(plan.noise))
    own = {key: each for key, each in values.items() if key not in ("topology", "data", "method")}
    experiment = h2fdp.Experiment(values["topology"], values["data"], method=values["method"], **own)
    began = time.perf_counter()
    run = experiment.run(out / "runs" / f"{data}-{number}", data_root=shared.root, overwrite=True, progress=False)
    accuracy = float(run.metrics["accuracy"].iloc[-1])
    partition = values["data"]["partition"]
    return {
        "data": data,
        "number": number,
        "edges": topology.edges,
        "devices": topology.devices,
        "trust": values["topology"]["trust"]["trusted"],
        "alpha": "iid" if partition == "iid" else partition["dirichlet"],
        "epsilon": values["privacy"]["epsilon"],
        "noise": f"{plan.noise:.4g}",
        "predicted": f"{predicted:.4f}",
        "half": f"{half:.4f}",
        "measured": f"{accuracy:.4f}",
        "plan_s": f"{seconds:.2f}",
        "run_s": f"{time.perf_counter() - began:.2f}",
        "depends": plan.depends,
    }


def judge(rows: list[dict[str, str]]) -> list[str]:
    """The bar of the study, in words: how many are within a point and within their band, by data set and in all."""
    lines = []
    for data in (*COUNTS, "all"):
        of = [row for row in rows if data in (row["data"], "all")]
        errors = np.array([float(row["measured"]) - float(row["predicted"]) for row in of])
        halves = np.array([float(row["half"]) for row in of])
        near, inside = int((abs(errors) <= NEAR).sum()), int((abs(errors) <= halves).sum())
        moved = f"mean error {100 * errors.mean():+.2f}, largest {100 * abs(errors).max():.2f} points"
        lines.append(f"{data}: {near} of {len(of)} within one point, {inside} within the band; {moved}")
    plans, runs = (sum(float(row[key]) for row in rows) for key in ("plan_s", "run_s"))
    return [*lines, f"plans {plans:.0f} s, runs {runs:.0f} s"]


def main() -> None:
    """Draw, plan, run and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("held-out"))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--judge", action="store_true", help="judge the stored table alone")
    arguments = parser.parse_args()
    done: set[tuple[str, str]] = set()
    if arguments.table.exists():
        with arguments.table.open() as file:
            done = {(row["data"], row["number"]) for row in csv.DictReader(file)}
    for data, count in {} if arguments.judge else COUNTS.items():
        began = time.perf_counter()
        experiment = h2fdp.Experiment(**base(data, arguments.out))
        asked = {"trust": [0, 1], "epsilon": [0.1, 10], "edges": _EDGES}
        studied = h2fdp.study(experiment, out=arguments.out / data, data_root=arguments.data_root, **asked)
        print(f"study of {data}: {time.perf_counter() - began:.0f} s", flush=True)
        shared = SharedInputs(arguments.data_root)
        for number in range(count):
            if (data, str(number)) not in done:
                append_row(arguments.table, measured(data, number, studied.curve, shared, arguments.out))
    with arguments.table.open() as file:
        print("\n".join(judge(list(csv.DictReader(file)))))


if __name__ == "__main__":
    told(main)
