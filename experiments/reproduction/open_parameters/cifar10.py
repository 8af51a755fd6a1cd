"""What the paper leaves open of its CIFAR-10 runs, searched once on a validation split for softmax on public features.

    python -m experiments.reproduction.open_parameters.cifar10 --data-root DIR [--jobs 2] [--out sweeps/open-cifar10]

`open_cifar10.yaml`: clip norm and step size. The best is the highest mean validation accuracy of the last 20 intervals
of h2fdp with p_c = 0.5, under a seed that no figure uses; no other method is looked at. Writes open_cifar10.json; a
test compares figures.yaml with it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import h2fdp
from experiments.reproduction.open_parameters.fashion_mnist import FOLDER, OPEN, Table, best_of, scores

RESULT = FOLDER / "open_cifar10.json"


def main() -> None:
    """Search, then write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/open-cifar10"))
    asked = parser.parse_args()
    file = FOLDER / "open_cifar10.yaml"
    done = h2fdp.sweep(file, out=asked.out, data_root=asked.data_root, jobs=asked.jobs)
    assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
    searched = Table(done.table, f"{len(done.runs)} of {len(done.names)}")
    found = {
        "chosen": best_of(searched),
        "runs": searched.runs,
        "validation_accuracy": scores(searched.rows, OPEN).round(4).to_dict("records"),
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
