"""How near the controlled runs of controlled.yaml come to one who knows all channels beforehand.

    python -m experiments.clairvoyant --data-root DIR [--seeds 5] [--page]

Plans alone, nothing is trained: who has turns when depends on channels and on the file only. Prints the table of
docs/control.md; `--page` writes it there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import h2fdp
from experiments.sections import between_markers
from h2fdp import Experiment
from h2fdp.confidence import means_with_intervals
from h2fdp.schedules.hindsight import Hindsight

FILE = Path(__file__).parent / "controlled.yaml"
PAGE = Path(__file__).parents[1] / "docs" / "control.md"
SECTION = "python -m experiments.clairvoyant --page"
CONTROL = "{enabled: true, turns: %s, trust: weighed, tau_max: 20, target: {accuracy: 0.75, noise: 0.2}}"
NETWORKS = {"paper": "the paper's network", "config2-25": "`config2` at I = 50", "paper-three-tier": "three tiers"}
SHARES = (0.5, 0.2)


def found(network: str, share: float, seed: int, data_root: Path | None) -> Hindsight:
    """Of the controlled run of a network, with this share of turns."""
    settings = [f"topology={FILE.parents[1] / 'topologies' / network}.yaml", f"control={CONTROL % share}"]
    told = h2fdp.plan(Experiment.from_file(FILE, settings, seed), data_root=data_root).hindsight
    assert told is not None, "the controller gives turns"
    return told


def lines(seeds: int, data_root: Path | None) -> Iterator[str]:
    """The table."""
    heads = "network, `turns`", "intervals", "J regardless of channels", "control", "clairvoyant", "control above it, %"
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|---|---|"
    for network, name in NETWORKS.items():
        for share in SHARES:
            if network == "config2-25" and share == min(SHARES):
                continue  # it has two edge servers
            runs = [found(network, share, seed, data_root) for seed in range(1, seeds + 1)]
            joules = np.array([[each.expected_joules, each.joules, each.least_joules] for each in runs])
            numbers = np.column_stack([joules, 100 * (joules[:, 1] / joules[:, 2] - 1)])
            of = means_with_intervals(numbers)
            triples = zip(of.mean, of.low, (3, 3, 3, 1), strict=True)
            cells = [f"{mean:.{digits}f} ± {mean - low:.{digits}f}" for mean, low, digits in triples]
            intervals = sorted({each.intervals for each in runs})
            yield f"| {name}, {share:g} | {', '.join(map(str, intervals))} | {' | '.join(cells)} |"


def main() -> None:
    """Print, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    table = list(lines(asked.seeds, asked.data_root))
    print("\n".join(table))
    if asked.page:
        PAGE.write_text(between_markers(PAGE.read_text(), SECTION, table))


if __name__ == "__main__":
    main()
