"""Does a mixture of methods beat plain h2fdp on the paper's network at equal accounted epsilon?

    python -m experiments.mixtures.table --data-root DIR [--jobs 2] [--out sweeps/mixtures]

1. `mixtures.yaml`: every method at every step size, on a validation split. Each method, plain h2fdp among them, keeps
   the step size with the highest mean validation accuracy of the last 20 intervals.
2. These again with five other seeds. What is compared is the test accuracy, the mean of the last 20 intervals, seed by
   seed: the same network, data and noise streams. An interval of the mean difference is Student's, at 95 % for all
   comparisons together (Bonferroni).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy import stats

import h2fdp
from experiments.reproduction.open_parameters.fashion_mnist import LAST, scores

FILE = Path(__file__).parent / "mixtures.yaml"
STEP = "training.step_size"
SEEDS = (1, 2, 3, 4, 5)


def confirming(best: dict[str, float], methods: dict[str, object]) -> dict[str, object]:
    """The study of each method at its own step size, on fresh seeds."""
    study = yaml.safe_load(FILE.read_text())
    study["topology"] = str((FILE.parent / study["topology"]).resolve())
    study["data"].pop("validation")
    study["sweep"] = {
        f"method, {STEP}": [[methods[name], step] for name, step in best.items()],
        "seed": list(SEEDS),
    }
    return dict(study)


def last_accuracy(table: pd.DataFrame) -> pd.DataFrame:
    """(method, seed) test accuracy in per cent, mean of the last intervals."""
    rows = table.sort_values("interval").groupby(["method", "seed"]).tail(LAST)
    return 100 * rows.groupby(["method", "seed"], sort=False)["accuracy"].mean().unstack("seed")


def main() -> None:
    """Search, confirm, print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/mixtures"))
    asked = parser.parse_args()
    searched = h2fdp.sweep(FILE, (), asked.out / "search", data_root=asked.data_root, jobs=asked.jobs).table
    found = scores(searched, ("method", STEP)).drop_duplicates("method")  # the best first
    best = dict(zip(found["method"], found[STEP], strict=True))
    # The table writes a method as JSON; YAML reads that.
    methods = {name: yaml.safe_load(name) for name in best}
    file = asked.out / "confirm.yaml"
    file.write_text(yaml.safe_dump(confirming(best, methods), sort_keys=False))
    confirmed = h2fdp.sweep(file, (), asked.out / "confirm", data_root=asked.data_root, jobs=asked.jobs).table
    accuracy = last_accuracy(confirmed)
    plain = next(name for name in accuracy.index if methods[name] == "h2fdp")
    others = len(accuracy) - 1
    quantile = stats.t.ppf(1 - 0.05 / (2 * others), len(SEEDS) - 1)
    print("| method | step size | accuracy | against h2fdp | interval |\n|---|---|---|---|---|")
    for name in accuracy.index:
        difference = (accuracy.loc[name] - accuracy.loc[plain]).to_numpy()
        width = quantile * difference.std(ddof=1) / np.sqrt(len(difference))
        against = "" if name == plain else f"{difference.mean():+.2f} | ± {width:.2f}"
        print(f"| `{name}` | {best[name]:g} | {accuracy.loc[name].mean():.2f} | {against or ' | '} |")


if __name__ == "__main__":
    main()
