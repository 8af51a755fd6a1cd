"""Do two checkouts compute the same runs, to the bit? `python -m benchmarks.same_bits BASE [HEAD] [--only NAME ...]`.

A redesign is meant to leave every case equal: methods, placements of noise, trees, secure sums, neighbours, defaults,
schedules, faults, engines, a kill and a resume, placements on Ray, twenty random trees, a sweep, an audit. Each
checkout computes all cases in a process of its own, through its own command line, with the libraries of the Python that
runs this. `git worktree add ../base COMMIT` makes BASE. The exit code is 1 where a case differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

NETWORK = (
    "{name: n, trust: {probability: 0.5}, edges: [{name: a, trusted: true, devices: {count: 4, distance_m: 20}}, "
    "{name: b, trusted: false, devices: {count: 3, distance_m: 50}}, {name: c, devices: {count: 5, distance_m: 35}}]}"
)
TIERS = (
    "{edges: [{name: top, trusted: true, edges: [{name: a, trusted: false, devices: {count: 3}}, "
    "{name: b, trusted: true, devices: {count: 2}}]}, {name: low, trusted: false, edges: [{name: c, trusted: true, "
    "devices: {count: 2}}, {name: d, trusted: false, devices: {count: 3}}]}]}"
)
BASE = {
    "name": "same",
    "topology": NETWORK,
    "data": "{name: digits, partition: {labels_per_device: 3}}",
    "model": "softmax",
    "method": "h2fdp",
    "training": "{intervals: 3, local_steps: 6, aggregate_every: 2, batch_size: 4}",
    "privacy": "{epsilon: 8, delta: 1.0e-5, calibration: paper, accountant: rdp}",
    "runtime": "{backend: inline}",
    "seed": "3",
}
KEYED = ("--set", "privacy.noise_key=seed")  # by default the noise of each run has a key of its own
CLOUD_SUMS = "{cloud: {trust: secure-sum}, "
SYNTHETIC = "{name: synthetic, alpha: 0.5, beta: 0.5}"
RANDOM_TREES = 20
KILLED_AFTER = 5  # intervals, of a run that is then resumed

PLAIN = ("hfl", "hfl-dp", "pedpfl", "fedavg", "fedavgm", "fedprox", "scaffold", "feddyn", "pfedme", "fedyogi")
UPCYCLED = ("upcycled-h2fdp", "upcycled-fedavg", "upcycled-scaffold")
STEPS = ("fedavg-dp", "pe-dpfl", "adap-dpfl", "ali-dpfl", "ali-dpfl-v1")
STUDIES = {  # schedules of studies, which a checkout may have in its package
    "adap-dpfl": '{extends: fedavg-dp, schedule: "experiments.noise_decay:NoiseDecay"}',
    "ali-dpfl": "{extends: fedavg-dp, privacy: {name: dp-sgd, noise_multiplier: 1.1}, "
    'schedule: "experiments.ali_dpfl:AliDpfl"}',
    "ali-dpfl-v1": "{extends: fedavg-dp, privacy: {name: dp-sgd, noise_multiplier: 1.1}, "
    'schedule: "experiments.ali_dpfl:AliDpflFirst"}',
    "adaptive-fl": '{extends: fedavg, schedule: {name: "experiments.resource_budget:ResourceBudgetSchedule", '
    "units: 1000, step_cost: 1, aggregation_cost: 5}}",
}


def training(**changes: Any) -> str:
    """A `training:` section."""
    return json.dumps({"intervals": 3, "local_steps": 4, "aggregate_every": 2, "batch_size": 4} | changes)


def runs() -> Iterator[tuple[str, dict[str, str]]]:
    """Cases that are one `h2fdp run` each: a name, and what differs from `BASE`."""
    yield "plain", {}
    yield from ((method, {"method": method}) for method in (*PLAIN, *UPCYCLED, "h2fdp-adaptive"))
    synthetic = {"data": SYNTHETIC, "model": "logistic"}
    paper = "calibration: paper, accountant: rdp"
    yield from ((method, {"method": method, "privacy": f"{{epsilon: 40, {paper}}}", **synthetic}) for method in STEPS)
    yield "adaptive-fl", {"method": "adaptive-fl", **synthetic}
    yield "sensitivity-tight", {"privacy": f"{{epsilon: 8, sensitivity: tight, {paper}}}"}
    yield "accounted", {"privacy": "{epsilon: 8, calibration: accounted, accountant: rdp}"}
    yield "clip-record", {"training": training(clip_scope="record")}
    yield "participation", {"training": training(intervals=4, participation=0.5, weights="by-size")}
    yield "fixed-batches", {"training": training(sampling="fixed")}
    yield "momentum", {"training": training(momentum=0.5)}
    straggler = "straggler: {probability: 0.3, fraction: [0.3, 0.7]}"
    faults = f"{{device_dropout: 0.2, {straggler}, edge_outage: {{probability: 0.2, intervals: 1}}}}"
    yield "faults", {"faults": faults}
    yield "control", {"control": "{enabled: true, alpha1: 1, alpha2: 1, alpha3: 1, tau_max: 12}"}
    yield "control-faults", {"control": "{enabled: true, tau_max: 8}", "faults": "{device_dropout: 0.2}"}
    yield "mlp", {"model": "mlp"}
    yield "engine-loop", {"runtime": "{backend: inline, engine: loop}"}
    yield "engine-loop-scaffold", {"method": "scaffold", "runtime": "{backend: inline, engine: loop}"}
    compiled = "{backend: inline, engine: compiled}"
    yield "engine-compiled", {"runtime": compiled}
    yield "engine-compiled-clip-record", {"training": training(clip_scope="record"), "runtime": compiled}
    yield "engine-compiled-mlp-scaffold", {"method": "scaffold", "model": "mlp", "runtime": compiled}
    yield "engine-compiled-dp-sgd", {"method": "{privacy: dp-sgd}", "runtime": compiled}
    yield "engine-compiled-threads", {"runtime": "{backend: inline, engine: compiled, hosts: 2}"}
    yield "central", {"method": "{extends: fedavg, privacy: central}"}
    yield "central-tree", {"method": "{privacy: central}", "training": training(aggregate_every=4)}
    yield "dp-sgd-tree", {"method": "{privacy: dp-sgd}"}
    bounded = "{extends: fedavg, privacy: {name: objective, input_bound: 100}, objective: proximal}"
    two = "{name: synthetic, alpha: 0.5, beta: 0.5, classes: 2}"
    yield "objective", {"method": bounded, "model": "logistic", "data": two}
    yield "star", {"method": "{extends: h2fdp, topology: star}"}
    yield "pfedme-tree", {"method": "{extends: pfedme, topology: tree}"}
    yield "epochs", {"method": "fedavg", "training": "{intervals: 2, local_epochs: 1, batch_size: 8}"}
    yield "threads", {"runtime": "{backend: inline, hosts: 2}"}
    sums = {
        "topology": NETWORK.replace("trusted: false", "trust: secure-sum"),
        "training": training(clip_scope="record"),
    }
    colluding = "{extends: h2fdp, privacy: {name: hierarchical, secure_sum: {colluding: 1, dropouts: 1}}}"
    integers = "{extends: h2fdp, privacy: {name: hierarchical, secure_sum: {rounding: 24}}}"
    local = "{extends: h2fdp, privacy: local}"
    for key, value in (("quantise", "8"), ("top_k", "0.1"), ("rand_k", "0.1")):
        yield key, {"method": local, "compression": f"{{device: {{{key}: {value}}}}}"}
    feedback = "{top_k: 0.1, error_feedback: true}"
    yield "feedback", {"method": local, "compression": f"{{device: {feedback}, edge: {feedback}}}"}
    yield "processor", {"topology": "{devices: {cycles_per_record: 2.4e6}, " + NETWORK.removeprefix("{")}
    yield "sums", sums
    yield "sums-colluding", {**sums, "method": colluding, "faults": "{device_dropout: 0.1}"}
    yield "sums-integers", {**sums, "method": integers}
    yield "sums-cloud", {"topology": NETWORK.replace("{", CLOUD_SUMS, 1), "training": training(aggregate_every=4)}
    yield "tiers", {"topology": TIERS, "training": training(aggregate_every=[1, 2])}
    yield "tiers-record", {"topology": TIERS, "training": training(aggregate_every=[1, 2], clip_scope="record")}
    yield "tiers-faults", {"topology": TIERS, "training": training(aggregate_every=[1, 2]), "faults": faults}
    pld = {"privacy": "{epsilon: 2, calibration: accounted, accountant: pld}", "training": "{extends: auto}"}
    noise = "correlated: {kind: banded-inverse, bands: 3}"
    pasts = {"privacy": f"{{epsilon: 8, calibration: accounted, accountant: rdp, {noise}}}"}
    pasts["training"] = json.dumps({"intervals": 5, "local_steps": 4, "aggregate_every": 2, "sampling_rate": 1.0})
    yield "correlated", pasts
    yield "correlated-sums", {**pasts, "topology": sums["topology"], "method": colluding, "faults": faults}
    turns = '{"extends": "auto", "device_turns": 3, "intervals": 12}'
    trusted = NETWORK.replace("trusted: false, ", "trusted: true, ")
    yield "correlated-chosen", {**pld, "topology": trusted, "training": turns, "model": "softmax"}
    for adjacency in ("add-remove", "replace"):
        accounted = f"{{epsilon: 8, calibration: accounted, accountant: rdp, adjacency: {adjacency}}}"
        yield adjacency, {"privacy": accounted, "training": training(clip_scope="record")}
    yield "defaults", {**pld, "model": "auto"}
    yield "defaults-table", {**pld, "model": "auto", "data": SYNTHETIC}
    yield "defaults-secure-sums", {**pld, "topology": sums["topology"], "model": "auto"}
    yield "defaults-mlp", {**pld, "model": "{name: mlp, hidden: 16}"}
    yield "defaults-joules", {**pld, "model": "auto", "control": "{joules: 0.05}"}
    trace = "[[2, a/1, b], [2, c/2, a, 44], [3, a/1, '-'], [3, c/2, c]]"
    accounted = {"privacy": "{epsilon: 8, calibration: accounted, accountant: rdp}", "model": "mlp"}
    for name, part in {
        "moves": f"mobility: {{trace: {trace}}}",
        "handovers": f"mobility: {{trace: {trace}, handover: {{rate_mbps: 10}}}}",
        "sign-flip": "adversaries: {devices: 0.3, attack: sign-flip}",
        "label-flip": "adversaries: {devices: [c/1, b/2], attack: label-flip}",
        "backdoor": "adversaries: {devices: [b/1], attack: {name: backdoor, target: 3, factor: 2}}",
        "lying-edge": "adversaries: {edges: [b], attack: scaling}",
        "carbon": "carbon: {trace: [[hour, de], [0, 400], [12, 200]]}",
    }.items():
        yield name, {"topology": NETWORK.replace("{", f"{{{part}, ", 1), **accounted}
        yield f"{name}-star", {"topology": NETWORK.replace("{", f"{{{part}, ", 1), "method": "fedavg"}
    informed = "{adversaries: {devices: [b/1], edges: [a], attack: alie}, "
    yield "informed-liars", {"topology": NETWORK.replace("true", "false").replace("{", informed, 1), **accounted}
    lying = "{adversaries: {edges: [low], devices: [a/1, d/2], attack: {name: scaling, factor: -3}}, "
    deep = {"topology": TIERS.replace("{", lying, 1), "training": training(aggregate_every=[1, 2])}
    yield "tiers-liars", deep | {"privacy": accounted["privacy"]}
    for placement in ("packed", "subnet", "entity"):
        hosts = "hosts: 2, " if placement == "packed" else ""  # the others have as many as nodes
        yield f"ray-{placement}", {"runtime": f"{{backend: ray, placement: {placement}, {hosts}cpus_per_host: 0.1}}"}
    yield from ((f"random-tree-{number}", random_tree(random.Random(number))) for number in range(RANDOM_TREES))


def random_tree(draw: random.Random) -> dict[str, str]:
    """A tree of one to four tiers with mixed trust, secure sums and settings, whose ledger is compared row by row."""
    names = (f"n{number}" for number in itertools.count())

    def tier(height: int) -> list[dict[str, Any]]:
        edges: list[dict[str, Any]] = []
        for name in itertools.islice(names, draw.randint(1, 3)):
            inner = height > 1 and draw.random() < 0.7
            below = {"edges": tier(height - 1)} if inner else {"devices": {"count": draw.randint(2, 4)}}
            trust = {"trusted": True} if draw.random() < 0.5 else {"trust": draw.choice(["untrusted", "secure-sum"])}
            edges.append({"name": name, **trust, **below})
        return edges

    edges = tier(draw.randint(1, 4))
    rhythms = [1, 2, 3, [1, 2], [2, 6]] if any("edges" in edge for edge in edges) else [1, 2, 3]
    cloud = draw.choice(["untrusted", "untrusted", "secure-sum"])
    faults = {"device_dropout": 0.3, "edge_outage": {"probability": 0.2}} if draw.random() < 0.3 else {}
    stated = {"extends": "paper", "weights": draw.choice(["uniform", "by-size"])}
    stated["participation"] = draw.choice([1.0, 0.6])
    return {
        "topology": json.dumps({"cloud": {"trust": cloud}, "edges": edges}),
        "data": "{name: digits, partition: {labels_per_device: 3}}",
        "training": training(**stated, local_steps=6, aggregate_every=draw.choice(rhythms)),
        "privacy": json.dumps({"epsilon": 8, "accountant": "rdp", "sensitivity": draw.choice(["tight", "paper"])}),
        "faults": json.dumps(faults),
    }


def digest(run: Path) -> dict[str, Any]:
    """What a run directory holds, but for wall time."""
    import pandas as pd
    import torch

    metrics = pd.read_parquet(run / "metrics.parquet").drop(columns=["wall_s"])
    model = torch.load(run / "model.pt", weights_only=True)
    ledger = run / "privacy.jsonl"
    rows = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return {
        "metrics": _hash(metrics.to_csv()),
        "devices": _hash(pd.read_parquet(run / "devices.parquet").to_csv()),
        "model": hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.values())).hexdigest(),
        "noises": _hash("\n".join(sorted(str(row.get("noise_std")) for row in rows))),
        "ledger": _hash("\n".join(sorted(json.dumps(row, sort_keys=True) for row in rows))),
        "releases": len(rows),
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def command(*arguments: str) -> tuple[int, str]:
    """Exit code and output of `h2fdp`, in this process."""
    from h2fdp.cli.main import main

    before, out = sys.argv, io.StringIO()
    sys.argv = ["h2fdp", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main()
        return 0, out.getvalue()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    finally:
        sys.argv = before


def experiment(folder: Path, name: str, change: Mapping[str, str]) -> Path:
    """The experiment file of a case."""
    from h2fdp.experiment.training_section import TrainingSection
    from h2fdp.network.schema import CloudSection

    file = folder / f"{name}.yaml"
    values = {**BASE, **change}
    if "extends" in TrainingSection.model_fields:  # a checkout that chooses what is not stated, unless this is
        stated = "extends" in values["training"]
        values["training"] = values["training"].replace("{", "{" if stated else "{extends: paper, ", 1)
    if CLOUD_SUMS in values["topology"] and "trust" not in CloudSection.model_fields:  # a method says it there
        values["topology"] = values["topology"].replace(CLOUD_SUMS, "{")
        values["method"] = "{extends: h2fdp, privacy: {name: hierarchical, secure_sum: {cloud: true}}}"
    values["method"] = of_a_study(values["method"])
    file.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    return file


def of_a_study(method: str) -> str:
    """A method of a study as this checkout has it: by name, or with the study's schedule."""
    from h2fdp.methods import METHODS

    return method if method in METHODS else STUDIES.get(method, method)


def one_run(folder: Path, name: str, change: Mapping[str, str]) -> dict[str, Any]:
    """A run from beginning to end."""
    target = folder / name
    code, text = command("run", str(experiment(folder, name, change)), *KEYED, "--out", str(target))
    return {"refused": text.replace(str(folder), "").splitlines()[-1:]} if code else digest(target)


def killed_and_resumed(folder: Path) -> dict[str, Any]:
    """SIGKILL in the middle, then `h2fdp resume`."""
    change = {"training": training(intervals=400), "runtime": "{backend: inline, checkpoint_every: 3}"}
    target, file = folder / "killed", experiment(folder, "killed", change)
    line = [sys.executable, "-m", "h2fdp", "run", str(file), *KEYED, "--out", str(target)]
    run = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ledger = target / "privacy.jsonl"
    while not ledger.exists() or f'"interval": {KILLED_AFTER}' not in ledger.read_text():
        assert run.poll() is None, "the run ended before it was killed"
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    run.wait()
    code, text = command("resume", str(target))
    assert code == 0, text
    return digest(target)


def swept(folder: Path) -> dict[str, Any]:
    """A sweep over trust and seeds."""
    sweep = {"sweep": "{seed: [1, 2], topology.trust.probability: [0, 1]}"}
    target = folder / "swept"
    code, text = command("sweep", str(experiment(folder, "swept", sweep)), *KEYED, "--out", str(target), "--jobs", "1")
    assert code == 0, text
    found = sorted(file.parent for file in target.rglob("model.pt"))
    return {str(run.relative_to(target)): digest(run) for run in found}


def audited(folder: Path) -> dict[str, Any]:
    """Canaries, as the cloud guesses them."""
    file = experiment(folder, "audited", {"training": training(intervals=6)})
    code, text = command("privacy", "audit", str(file), *KEYED, "--observer", "cloud", "--canaries", "20", "--json")
    return {"code": code, "text": text}


OTHERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "killed and resumed": killed_and_resumed,
    "sweep": swept,
    "audit": audited,
}


def compute(out: Path, only: list[str]) -> None:
    """All cases with the package that this process imports; digests as JSON in `out`."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, change in runs():
            if not only or name in only:
                found[name] = one_run(place, name, change)
        for name, work in OTHERS.items():
            if not only or name in only:
                found[name] = work(place)
    out.write_text(json.dumps(found))


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("base", type=Path)
    parser.add_argument("head", type=Path, nargs="?", default=Path())
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--compute", type=Path, help=argparse.SUPPRESS)  # this process computes, for one checkout
    asked = parser.parse_args()
    if asked.compute is not None:
        compute(asked.compute, asked.only)
        return
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, checkout in enumerate((asked.base, asked.head)):
            out = Path(folder) / f"{number}.json"
            environment = os.environ | {"PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}
            line = [sys.executable, __file__, str(checkout), "--compute", str(out), "--only", *asked.only]
            subprocess.run(line, env=environment, cwd=checkout, check=True)
            found.append(json.loads(out.read_text()))
    base, head = found
    differ = [name for name in base if base[name] != head.get(name)]
    for name in differ:
        print(f"{name}\n  base: {base[name]}\n  head: {head.get(name)}")
    refused = sum("refused" in case for case in base.values())
    print(f"{len(base) - len(differ)} of {len(base)} equal ({refused} of them are refused by the base)")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
