"""Upcycled-FL under noise (its Figs. 3 and 4): private methods, plain and upcycled, by claim and by account.

    python -m experiments.upcycled.private DATA --out DIR

DATA and DIR are those of `experiments.upcycled.table`, whose grids state the step sizes. There are no stragglers. A
plain method has 80 rounds with devices and an upcycled one 40, so that both have 80 updates.

- `output, claim`: clipped models plus noise of a standard deviation of 1.0, upcycled 0.8, as in Fig. 3. With models of
  norm 4 and delta = 1e-5, Theorem 6.2 gives 1.58 and 1.39 as the mean over the devices of the i.i.d. data (all of them
  in every round). The paper prints 1.59 and 1.40 and no norm, so we take 4.
- `output, account`: noise for an accounted epsilon of 1.59 of every device.
- `objective, claim`: FedProx with a random linear term of rate 10, upcycled 20, as in Fig. 4. Theorem 6.3 wants inputs
  no longer than 1: they are divided by 11, and the step size is 1. There is no account.

Writes `DIR/upcycled-private.csv`; in this folder it is what `experiments.upcycled.page` reads.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from experiments.programs import told
from experiments.reproduction.conduct import commit_of
from experiments.upcycled.runs import SYNTHETIC, Choice, Job, final, run_all, words
from experiments.upcycled.stored import UPCYCLED, Cell
from experiments.upcycled.table import searched

SEEDS = range(1, 9)
ROUNDS = {"": 80, UPCYCLED: 40}
NORM, LONGEST, EPSILON = 4.0, 11.0, 1.59
OUTPUT_METHODS = ("fedavg", "fedavgm", "fedprox", "fedyogi")  # the others remember, which output perturbation excludes
SETTINGS: dict[str, tuple[str, ...]] = {
    "output, claim": OUTPUT_METHODS,
    "output, account": OUTPUT_METHODS,
    "objective, claim": ("fedprox",),
}


def noise_of(setting: str, prefix: str) -> dict[str, Any]:
    """The sections of an experiment that make it private."""
    plain = prefix == ""
    if setting == "output, claim":
        mechanism: dict[str, Any] = {"name": "output", "noise_multiplier": (1.0 if plain else 0.8) / (2 * NORM)}
    elif setting == "output, account":
        mechanism = {"name": "output"}
    else:
        mechanism = {"name": "objective", "noise_multiplier": 1 / (10 if plain else 20), "input_bound": LONGEST}
    calibration = "accounted" if setting == "output, account" else "paper"
    return {
        "method": {"privacy": mechanism},
        "privacy": {"epsilon": EPSILON, "delta": 1e-5, "calibration": calibration, "noise_key": "seed"},
        "training": {"intervals": ROUNDS[prefix], **({"clip_norm": NORM} if setting.startswith("output") else {})},
        **({"model": {"name": "logistic"}} if setting.startswith("objective") else {}),
    }


def jobs_of(
    files: Mapping[str, Path], choices: Mapping[str, Mapping[Cell, Choice]], out: Path
) -> Iterator[tuple[Path, tuple[str, str, Job]]]:
    """Folder -> setting, prefix and run."""
    for (setting, methods), name, prefix in product(SETTINGS.items(), files, ROUNDS):
        for method, seed in product(methods, SEEDS):
            choice = dict(choices[prefix][name, method])
            if setting.startswith("objective"):
                choice["step"] = 1 / SYNTHETIC[name].step_size
            job = Job(name, method, choice, seed, files[name], stragglers=0.0, changes=noise_of(setting, prefix))
            place = out / "private" / setting.replace(", ", "-") / name / f"{prefix}{method}" / words(choice)
            yield place / str(seed), (setting, prefix, job)


def main() -> None:
    """Run, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    files = {name: asked.data.resolve() / f"{name}.npz" for name in SYNTHETIC}
    plain, upcycled = searched(files, asked.out, asked.workers, 0.9)
    jobs = dict(jobs_of(files, {"": plain, UPCYCLED: upcycled}, asked.out))
    found = run_all({folder: job for folder, (_, _, job) in jobs.items()}, asked.workers)
    made = f"`python -m experiments.upcycled.private DATA --out DIR` at {commit_of(Path(__file__).parent)}"
    lines = [f"# {made}", "setting,data_set,method,seed,accuracy,loss,claimed,accounted"]
    for folder, (setting, prefix, job) in jobs.items():
        last = found[folder]["rows"][-1]
        numbers = (final(found[folder], "accuracy") / 100, last["loss"], last["epsilon_claimed"], last["epsilon_cloud"])
        text = ",".join("" if each is None or math.isnan(each) else f"{each:.6g}" for each in numbers)
        lines.append(f'"{setting}",{job.data_set},{prefix}{job.method},{job.seed},{text}')
    (asked.out / "upcycled-private.csv").write_text("\n".join(lines) + "\n")
    print(f"{len(jobs)} runs, {sum(each['seconds'] for each in found.values()):.0f} s of processor time")


if __name__ == "__main__":
    told(main)
