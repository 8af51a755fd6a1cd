"""Answers of `h2fdp plan --choose trust`, each run: the accuracy that was asked for, as predicted, as measured.

python -m experiments.study.choices --data-root DIR --out OUT

Ten edge servers of 2 to 9 devices, Fashion-MNIST, three labels a device; then a thousand edge servers, of which the
plans and the knapsack are timed alone.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.programs import append_row, told
from h2fdp.config import empty_document
from h2fdp.network.network import TrustSection
from h2fdp.run.loop import start_run
from h2fdp.run.network_plan import noise_of_way
from h2fdp.sweeps.choice import TrustOffer, cheapest, choose_trust
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.sweeps.pool import WorkOptions

TABLE = Path(__file__).with_name("choices.csv")
ASKED = ((1.0, 0.862), (1.0, 0.866), (1.0, 0.87), (0.3, 0.835), (0.3, 0.845))  # epsilon, accuracy


def experiment(edges: int, epsilon: float) -> dict[str, Any]:
    """The file whose trust is for sale."""
    devices = {"count": {"uniform": [2, 9]}, "distance_m": {"uniform": [10, 100]}}
    servers = [{"name": "edge-{i}", "repeat": edges, "devices": devices}]
    prices = {"default": 1.0, "edge-3": 5.0, "edge-7": 0.5}
    data = {"name": "fashion-mnist", "partition": {"labels_per_device": 3}}
    topology = {"trust": {"prices": prices}, "edges": servers}
    return {"topology": topology, "data": data, "method": "h2fdp", "privacy": {"epsilon": epsilon}}


def answered(epsilon: float, accuracy: float, shared: SharedInputs, out: Path) -> dict[str, Any]:
    """A row: the answer, and a run of the chosen network under a seed that the curve did not have."""
    document = empty_document("wards", Path.cwd(), experiment(10, epsilon) | {"name": f"wards-{epsilon:g}"})
    found = choose_trust(
        document, [], shared, WorkOptions(1, overwrite=True), accuracy, out=out / f"epsilon-{epsilon:g}"
    )
    config, topology = shared.experiment(document, [])
    subnets = [replace(each, trust=found.states.get(each.name, "untrusted")) for each in topology.subnets]
    network = replace(topology, subnets=tuple(subnets), trust_probability=None)
    setup = shared.prepare(config.model_copy(update={"seed": 11}), network)
    noise = noise_of_way(setup)
    run = start_run(setup, out / f"chosen-{epsilon:g}-{accuracy:g}", overwrite=True)
    return {
        "epsilon": epsilon,
        "asked": accuracy,
        "answer": found.answer,
        "price": found.price,
        "noise": f"{noise:.4g}",
        "predicted": f"{found.score:.4f}",
        "half": f"{found.half:.4f}",
        "measured": f"{float(run.metrics['accuracy'].iloc[-1]):.4f}",
    }


def thousand(shared: SharedInputs) -> str:
    """The seconds of the plans and of the knapsack of a thousand edge servers."""
    document = empty_document("thousand", Path.cwd(), experiment(1_000, 1.0))
    config, topology = shared.experiment(document, [])
    open_ = tuple(replace(each, trust="untrusted") for each in topology.subnets)
    offer = TrustOffer(config, replace(topology, subnets=open_), TrustSection(prices={"default": 1.0}), shared)
    began = time.perf_counter()
    plan, squares = offer.plan(offer.now)
    _, trusted = offer.plan(offer.all_in("trusted"))
    plans, began = time.perf_counter() - began, time.perf_counter()
    rng = np.random.default_rng(0)
    prices = np.column_stack([np.zeros(1_000), rng.uniform(0.5, 5, size=1_000)])
    both = np.column_stack([squares, trusted])
    choice = cheapest(prices, both, (0.8 * plan.noise) ** 2)
    assert choice is not None, "a fifth less noise is for sale"
    seconds = time.perf_counter() - began
    chosen, _ = offer.plan(["trusted" if each else "untrusted" for each in choice])
    summed = both[np.arange(1_000), choice].sum() ** 0.5
    size = f"1,000 edge servers, {topology.devices:,} devices: two plans {plans:.1f} s, knapsack {seconds:.1f} s"
    return f"{size}, {int(choice.sum())} trusted; noise {chosen.noise:.4f} as planned, {summed:.4f} as a sum"


def main() -> None:
    """Answer, run, time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("choices"))
    parser.add_argument("--table", type=Path, default=TABLE)
    arguments = parser.parse_args()
    shared = SharedInputs(arguments.data_root)
    print(thousand(shared), flush=True)
    arguments.table.unlink(missing_ok=True)
    for epsilon, accuracy in ASKED:
        append_row(arguments.table, answered(epsilon, accuracy, shared, arguments.out))


if __name__ == "__main__":
    told(main)
