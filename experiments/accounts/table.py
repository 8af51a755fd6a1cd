"""The tables of experiments/accounts/README.md: claimed, accounted and audited epsilon, and accuracy at an honest one.

    python -m experiments.accounts.table --data-root DIR [--workers 2] [--intervals 200]

Writes them between the markers in experiments/accounts/README.md. Two workers on two cores take about half an hour.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from h2fdp.audit.run_audit import audits
from h2fdp.privacy import OBSERVERS
from h2fdp.run import Experiment
from h2fdp.run.preview import privacy_report

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("README.md")
FILE = ROOT / "experiments" / "fashion-mnist.yaml"
BEGIN, END = "<!-- table begins: python -m experiments.accounts.table writes it -->", "<!-- table ends -->"
TRUST = (0, 0.5, 1)
BATCHES = (2, 8, 32)
CANARIES = 1000
FEARED = {
    "cloud": ["cloud"],
    "cloud, peer and public": ["cloud", "peer", "public"],
    "edge": ["edge"],
    "all four": list(OBSERVERS),
}
HONEST = [(batch, every, step) for batch in (2, 4) for every in (5, 10) for step in (0.03, 0.1)]
Settings = tuple[str, ...]


def accuracy(job: tuple[Settings, str]) -> dict[str, float]:
    """Mean of the last 20 intervals' accuracy on test and validation data."""
    settings, data_root = job
    with TemporaryDirectory() as folder:
        run = Experiment.from_file(FILE, settings).run(Path(folder) / "run", data_root=data_root)
        last = run.metrics.tail(20)
        held = last["validation_accuracy"] if "validation_accuracy" in last else last["accuracy"]
        return {"test": float(last["accuracy"].mean()), "validation": float(held.mean())}


def audited(job: tuple[Settings, str]) -> dict[str, Any]:
    """The report of a setting before it runs, and one audited run of it."""
    settings, data_root = job
    run = Experiment.from_file(FILE, settings).prepare(data_root)
    found = {each.observer: each for each in audits(run, OBSERVERS, CANARIES, "dominating")}
    return {"report": privacy_report(run), "audit": {name: each.epsilon_lower for name, each in found.items()}}


def paper_settings(intervals: int) -> dict[tuple[float, int], Settings]:
    """The paper's own setting at each trust probability and batch size."""
    return {
        (trust, batch): (
            f"topology.trust.probability={trust}",
            f"training.batch_size={batch}",
            f"training.intervals={intervals}",
        )
        for trust in TRUST
        for batch in BATCHES
    }


def honest_settings(intervals: int) -> dict[tuple[str, tuple[int, int, float]], Settings]:
    """Noise calibrated to the account (pld, epsilon 1) of each observer set, over a small grid."""
    return {
        (name, (batch, every, step)): (
            "privacy.calibration=accounted",
            "privacy.accountant=pld",
            "privacy.sensitivity=tight",
            f"privacy.target_observers=[{', '.join(feared)}]",
            f"training.batch_size={batch}",
            f"training.aggregate_every={every}",
            f"training.step_size={step}",
            f"training.intervals={intervals}",
            "data.validation=0.1",
        )
        for name, feared in FEARED.items()
        for batch, every, step in HONEST
    }


def first_table(results: Iterable[tuple[tuple[float, int], dict[str, float], dict[str, Any]]]) -> Iterator[str]:
    """Accuracy and the epsilons of every observer in the paper's own setting."""
    yield "| p_c | batch | accuracy | observer | claimed | rdp | pld | audited | verdict |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (trust, batch), scores, found in results:
        for observer, numbers in found["report"]["observers"].items():
            words = [f"{numbers[key]:.3f}" if numbers[key] is not None else "-" for key in ("claimed", "rdp", "pld")]
            lower = found["audit"].get(observer)
            words.append("-" if lower is None else f"{lower:.3f}")
            yield (
                f"| {trust:g} | {batch} | {scores['test']:.3f} | `{observer}` | "
                + " | ".join(words)
                + f" | {numbers['verdict']} |"
            )


def second_table(results: dict[tuple[str, tuple[int, int, float]], dict[str, float]]) -> Iterator[str]:
    """The best accuracy at accounted epsilon 1 for each observer set, chosen on the validation split."""
    yield "| observers held to epsilon 1 | accuracy | batch | aggregate every | step size |"
    yield "|---|---|---|---|---|"
    for name in FEARED:
        grid = {choice: scores for (feared, choice), scores in results.items() if feared == name}
        (batch, every, step), scores = max(grid.items(), key=lambda item: item[1]["validation"])
        yield f"| {name} | {scores['test']:.3f} | {batch} | {every} | {step} |"


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--intervals", type=int, default=200)
    options = parser.parse_args()
    paper, honest = paper_settings(options.intervals), honest_settings(options.intervals)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = [(settings, options.data_root) for settings in paper.values()]
        epsilons, scores = pool.map(audited, jobs), pool.map(accuracy, jobs)
        honest_scores = pool.map(accuracy, [(settings, options.data_root) for settings in honest.values()])
        lines = [
            f"The paper's setting ({FILE.name}, {options.intervals} intervals, seed 1): mean accuracy of the last 20 "
            f"intervals, epsilon at delta 1e-5 of the worst device, audited with {CANARIES:,} dominating canaries "
            "(95 % confidence, one run for all observers).",
            "",
            *first_table(zip(paper, scores, epsilons, strict=True)),
            "",
            f"Best of {len(HONEST)} settings at p_c = 0.5, with the accounted epsilon (`pld`) of the observers in the "
            "first column held to 1. Settings were chosen on a validation split of 10 %; test accuracy is shown.",
            "",
            *second_table(dict(zip(honest, honest_scores, strict=True))),
        ]
    text = PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail)


if __name__ == "__main__":
    main()
