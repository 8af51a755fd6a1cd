"""Ten devices that ask for epsilon 0.3 among 90 that ask for 3: what the model has of it.

    python -m experiments.frontier.own_epsilons --data-root DIR --seeds 3     # what is not stored yet, then the page
    python -m experiments.frontier.own_epsilons                               # the table of the page again

Fashion-MNIST by the defaults on 100 devices under ten edge servers, three labels on each device; at each edge server
one device asks. Compared are targets of devices' own, one epsilon for all (the smallest, and the largest, which gives
the ten less than they ask for), and a run without the ten, who ask for so little there that they weigh 1/3000.
Appends to `own-epsilons.csv`, seed by seed.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import h2fdp
from experiments.frontier.page import Mean
from experiments.programs import append_row, between_markers

CSV, PAGE = Path(__file__).with_name("own-epsilons.csv"), Path(__file__).with_name("README.md")
COMMAND = "python -m experiments.frontier.own_epsilons"
COLUMNS = ("trust", "asked", "seed", "accuracy", "of_ten", "of_others")
SMALL, LARGE, NOTHING = 0.3, 3.0, 0.001
ASKED = {  # by the ten, by all others
    "own epsilons": (SMALL, LARGE),
    "0.3 for all": (SMALL, SMALL),
    "without the ten": (NOTHING, LARGE),
    "3 for all": (LARGE, LARGE),
}
TRUST: dict[str, dict[str, Any]] = {
    "all edge servers trusted": {"trust": {"trusted": 1}},
    "none trusted": {"trust": {"trusted": 0}},
    "central (whole devices)": {"trust": {"trusted": 1}, "method": {"extends": "h2fdp", "privacy": "central"}},
}


def measured(trust: str, asked: str, seed: int, out: Path, data_root: Path | None) -> dict[str, Any]:
    """The row of a run."""
    small, large = ASKED[asked]
    stated = dict(TRUST[trust])
    edges = [{"name": "edge-{i}", "repeat": 10, "devices": {"count": 10, "epsilon": [small] + [1e9] * 9}}]
    experiment = h2fdp.Experiment(
        {"edges": edges, "trust": stated.pop("trust")},
        {"name": "fashion-mnist", "partition": {"labels_per_device": 3}},
        **{"method": "h2fdp", "training": {"extends": "auto"}, "epsilon": large, "seed": seed, **stated},
    )
    run = experiment.run(out, data_root=data_root, overwrite=True, progress=False)
    worst = max(each["pld"] for each in run.summary["privacy"]["worst"].values())
    groups = run.summary["privacy"].get("targets", [])
    of_groups = [max(each["accounted"].values()) for each in groups] or [worst, worst]
    found = (round(run.summary["accuracy"], 4), *(f"{each:.4g}" for each in of_groups))
    return dict(zip(COLUMNS, (trust, asked, seed, *found), strict=True))


def run_what_is_left(out: Path, data_root: Path | None, seeds: int) -> None:
    """A row in the table for each point that has none."""
    known = set()
    if CSV.exists():
        known = set(pd.read_csv(CSV)[list(COLUMNS[:3])].itertuples(index=False, name=None))
    for seed, trust, asked in itertools.product(range(1, seeds + 1), TRUST, ASKED):
        if (trust, asked, seed) in known:
            continue
        row = measured(trust, asked, seed, out, data_root)
        append_row(CSV, row)


def table(rows: pd.DataFrame) -> Iterator[str]:
    """Accuracy, by trust and by who asks for what; the epsilons of the ten and of the others."""
    yield "| edge servers | epsilon | accuracy (%) | accounted: the ten, the others |"
    yield "|---" * 4 + "|"
    for trust, asked in itertools.product(TRUST, ASKED):
        own = rows[(rows["trust"] == trust) & (rows["asked"] == asked)]
        if len(own):
            accounted = ", ".join(f"{own[name].max():.3g}" for name in COLUMNS[-2:])
            yield f"| {trust} | {asked} | {Mean.of((100 * own['accuracy']).tolist())} | {accounted} |"


def main() -> None:
    """The runs, where a number of seeds is given; then the part of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs") / "own-epsilons", help="of the run at work")
    arguments = parser.parse_args()
    run_what_is_left(arguments.out, arguments.data_root, arguments.seeds)
    PAGE.write_text(between_markers(PAGE.read_text(), COMMAND, table(pd.read_csv(CSV))))


if __name__ == "__main__":
    main()
