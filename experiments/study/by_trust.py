"""Accuracy over the share of trusted edge servers, p_c, as the paper shows it: read from one curve, and simulated.

    python -m experiments.study.by_trust --data-root DIR --out OUT      # one study of README's network, and ten runs

Writes `figures/by-trust.png`: for each epsilon a line with its band by the curve, and a point for each network that was
run (epsilons are accounted ones, not those of the paper's formula).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import h2fdp
from experiments.reproduction.panels import COLOURS

FILE = Path(__file__).with_name("trust.yaml")
PICTURE = FILE.parent / "figures" / "by-trust.png"
TRUST, EPSILONS = [0, 0.25, 0.5, 0.75, 1], [0.3, 1]


def drawn(studied: h2fdp.Studied) -> Figure:
    """The figure of a study by trust and epsilon, all of whose networks were run."""
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    for colour, epsilon in zip(COLOURS, EPSILONS, strict=False):
        networks = sorted(
            (each for each in studied.networks if each.values["epsilon"] == epsilon),
            key=lambda each: each.values["trust"],
        )
        shares = [each.values["trust"] for each in networks]
        low, middle, high = ([100 * (each.score + side * each.half) for each in networks] for side in (-1, 0, 1))
        axes.fill_between(shares, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(shares, middle, color=colour, label=f"epsilon {epsilon:g}, by the curve")
        measured = [100 * each.measured for each in networks]
        axes.plot(shares, measured, "x", color=colour, label=f"epsilon {epsilon:g}, simulated")
    axes.set(xlabel="share of trusted edge servers, $p_c$", ylabel="test accuracy, %")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.3)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    every = len(TRUST) * len(EPSILONS)
    studied = h2fdp.study(FILE, out=asked.out, verify=every, data_root=asked.data_root, trust=TRUST, epsilon=EPSILONS)
    figure = drawn(studied)
    FigureCanvasAgg(figure)
    figure.savefig(PICTURE, dpi=200)
    for each in studied.networks:
        print(each.values, f"{100 * each.score:.2f} ± {100 * each.half:.2f}", f"{100 * each.measured:.2f}")


if __name__ == "__main__":
    main()
