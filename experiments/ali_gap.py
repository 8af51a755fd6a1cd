"""Why ALI-DPFL's accuracy is not reached: its paper's text, its program's differences one by one, and all together.

    python -m experiments.ali_gap --data-root DIR [--out sweeps/ali-gap] [--jobs 1]
    python -m experiments.ali_gap --page

The first runs `ali-gap.yaml`: three seeds of each reading, five of the program's differences together; finished runs
are kept, so the command can be repeated until all are. It writes `OUT/ali-gap.csv`, of those that there are. The second
writes `experiments/ali-gap.csv` as a table into docs/comparisons.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import h2fdp
from experiments.sections import between_markers
from h2fdp.confidence import means_with_intervals
from h2fdp.reproduction.conduct import commit_of

FILE = Path(__file__).parent / "ali-gap.yaml"
PAGE = Path(__file__).parents[1] / "docs" / "comparisons.md"
SECTION = "python -m experiments.ali_gap --page"
KEY = (
    "name, model, data.partition, method.privacy.normalize, data.device_test_share, data.normalize, training.step_size"
)
TOGETHER = "[program, fedavg-cnn, {dirichlet: 1.0}, 64, 0.25, symmetric, 0.5]"
SWEEPS = {"all": (), "together": ("sweep.seed=[4, 5]", f"sweep.{KEY}=[{TOGETHER}]")}
PAPER = 80.17
READINGS = {
    "text": "as the second version's text has it",
    "partition": "Dirichlet(1) instead of Dirichlet(0.05)",
    "divisor": "sums divided by 64 instead of the records drawn",
    "tests": "each device is tested on a quarter of its own records",
    "inputs": "inputs from -1 to 1 instead of standardised",
    "model": "`fedavg-cnn` (582,026 parameters) instead of `ali-cnn-28`",
    "program": "all five: what the program does",
    "first-version": "as the first version's text has it: 400 shards, 40 to each device, sums divided by 75",
    "steps": "the second version's text with ten times the step size",
    "first-version-steps": "the first version's text with ten times the step size",
    "program-steps": "all five with ten times the step size",
}


def runs_of(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each run: what was read how, seed, accuracy at the end, local steps in all."""
    last = table.sort_values("interval").groupby("run").last()
    return pd.DataFrame(
        {
            "data_set": "fashion-mnist",
            "reading": last["name"],
            "seed": last["seed"],
            "accuracy": last["accuracy"],
            "steps": last["slot"],
        }
    )


def table_of(runs: pd.DataFrame) -> Iterator[str]:
    """Means over seeds with 95 % intervals, in per cent, and what is missing to the paper's number."""
    yield "| what is run | accuracy, % | seeds | above the text's, points | missing to the paper's 80.17 |"
    yield "|---|---|---|---|---|"
    by_seed = runs.pivot(index="seed", columns="reading", values="accuracy") * 100
    for reading, words in READINGS.items():
        if reading not in by_seed:
            continue
        own = by_seed[reading].dropna()
        more = (own - by_seed["text"]).dropna()
        gain = "" if reading == "text" or more.empty else _with_interval(more.to_numpy(), "+")
        missing = PAPER - own.mean()
        yield f"| {words} | {_with_interval(own.to_numpy())} | {len(own)} | {gain} | {missing:.1f} |"


def _with_interval(values: np.ndarray, sign: str = "") -> str:
    found = means_with_intervals(values[:, None])
    half = "" if np.isnan(found.low[0]) else f" ± {found.mean[0] - found.low[0]:.1f}"
    return f"{found.mean[0]:{sign}.1f}{half}"


def main() -> None:
    """Run what is left, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("sweeps/ali-gap"))
    parser.add_argument("--page", action="store_true", help="write the page from experiments/ali-gap.csv")
    asked = parser.parse_args()
    if asked.page:
        runs = pd.read_csv(FILE.with_suffix(".csv"), comment="#")
        PAGE.write_text(between_markers(PAGE.read_text(), SECTION, table_of(runs)))
        return
    found = []
    for name, settings in SWEEPS.items():
        done = h2fdp.sweep(FILE, settings, asked.out / name, data_root=asked.data_root, jobs=asked.jobs)
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        found.append(runs_of(done.table))
    file = asked.out / FILE.with_suffix(".csv").name
    made_by = f"# `python -m experiments.ali_gap --data-root DIR` at {commit_of(FILE.parent)}\n"
    file.write_text(made_by + pd.concat(found).to_csv(index=False, float_format="%.6g"))
    print("\n".join(table_of(pd.concat(found))))


if __name__ == "__main__":
    main()
