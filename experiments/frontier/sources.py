"""Accuracy by what the features of images were made from, which no account covers and so is declared.

    python -m experiments.frontier.sources --data-root DIR --seeds 3      # what is not stored yet
    python -m experiments.frontier.sources --data-root DIR --seeds 3 --only cifar10
    python -m experiments.frontier.sources                                # tables and picture again

The defaults on the paper's network, as in `frontier.yaml`: CIFAR-10 by scattering, which is whitened on public images
that are two photographs or drawn, and by a network that was trained on ImageNet (`h2fdp[encoders]`, whose features take
a quarter of an hour on one core, once); Fashion-MNIST and MNIST by scattering. Appends to `sources.csv`, seed by seed.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.mechanisms import MECHANISMS
from experiments.frontier.page import Mean
from experiments.frontier.runs import FILE
from experiments.programs import append_row, between_markers
from experiments.reproduction.panels import COLOURS

CSV, PAGE = FILE.with_name("sources.csv"), FILE.with_name("README.md")
PICTURE = FILE.parent / "figures" / "frontier-sources.png"
COMMAND = "python -m experiments.frontier.sources"
COLUMNS = ("data_set", "source", "trust", "epsilon", "seed", "accuracy", "accounted", "energy_j", "clock_s")
EPSILONS = (1.0, 8.0, 0.1)
NOTHING, IMAGENET = "scattering", "efficientnet-lite0"
MODELS = {NOTHING: "auto", IMAGENET: "{name: public-features, encoder: efficientnet-lite0}"}
LABELS = {NOTHING: "nothing that was trained: scattering", IMAGENET: "ImageNet: EfficientNet-Lite0"}
SETS = {"cifar10": (NOTHING, IMAGENET), "fashion-mnist": (NOTHING,), "mnist": (NOTHING,)}
TITLES = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST", "mnist": "MNIST"}
TRUST = {
    "none": "topology.trust.probability=0",
    "all": "topology.trust.probability=1",
    "network sum": "topology.trust={relay: 1}",
}
TRUSTED = {"none": "no edge server trusted", "all": "all trusted", "network sum": "one sum over the network"}
STYLES = {NOTHING: (COLOURS[4], "-", "*"), IMAGENET: (COLOURS[1], (0, (6, 2)), "o")}
Point = tuple[str, str, str, float, int]


def points(seeds: int) -> Iterator[Point]:
    """All runs, so that the first seeds are whole first."""
    for seed, name in itertools.product(range(1, seeds + 1), SETS):
        for epsilon, trust, source in itertools.product(EPSILONS, TRUST, SETS[name]):
            yield name, source, trust, epsilon, seed


def measured(point: Point, out: Path, data_root: Path | None) -> dict[str, Any]:
    """The row of a run, by the settings of the frontier's defaults."""
    name, source, trust, epsilon, seed = point
    (default,) = (each for each in MECHANISMS if each.name == "default")
    settings = [*default.settings, f"data={{name: {name}, partition: {{labels_per_device: 3}}}}", TRUST[trust]]
    settings += [f"model={MODELS[source]}", f"privacy.epsilon={epsilon:g}"]
    run = h2fdp.Experiment.from_file(FILE, settings, seed=seed).run(
        out, data_root=data_root, overwrite=True, progress=False
    )
    worst = max(min(each["rdp"], each["pld"]) for each in run.summary["privacy"]["worst"].values())
    last = run.metrics.iloc[-1]
    found = (round(run.summary["accuracy"], 4), f"{worst:.6g}", f"{last['energy_j']:.6g}", f"{last['clock_s']:.6g}")
    return dict(zip(COLUMNS, (*point, *found), strict=True))


def run_what_is_left(out: Path, data_root: Path | None, seeds: int, only: list[str]) -> None:
    """A row in the table for each point that has none."""
    known = set()
    if CSV.exists():
        stored = pd.read_csv(CSV)
        known = set(zip(*(stored[key] for key in COLUMNS[:5]), strict=True))
    for point in points(seeds):
        if point[0] not in only or point in known:
            continue
        row = measured(point, out, data_root)
        append_row(CSV, row)


def at(rows: pd.DataFrame, **keys: Any) -> pd.DataFrame:
    """The rows with these values."""
    for key, value in keys.items():
        rows = rows[rows[key] == value]
    return rows


def _cells(rows: pd.DataFrame) -> tuple[str, str]:
    """Accuracy in per cent and joules, of runs that differ in their seeds."""
    if not len(rows):
        return "", ""
    return str(Mean.of((100 * rows["accuracy"]).tolist())), f"{rows['energy_j'].mean():.1f}"


def table(rows: pd.DataFrame) -> Iterator[str]:
    """Accuracy and joules by data set, source, trust and epsilon."""
    epsilons = sorted(EPSILONS)
    titles = [f"epsilon {each:g} | J" for each in epsilons]
    yield "| data | source of features | edge servers trusted | " + " | ".join(titles) + " |"
    yield "|---" * (2 * len(epsilons) + 3) + "|"
    for name, sources in SETS.items():
        for source, trust in itertools.product(sources, TRUST):
            own = at(rows, data_set=name, source=source, trust=trust)
            cells = list(itertools.chain.from_iterable(_cells(at(own, epsilon=each)) for each in epsilons))
            if any(cells):
                yield f"| {TITLES[name]} | {LABELS[source]} | {trust} | " + " | ".join(cells) + " |"


def draw(rows: pd.DataFrame, path: Path) -> None:
    """CIFAR-10: a panel for each trust, a line for each source."""
    epsilons = sorted(EPSILONS)
    picture = Figure(figsize=(9.0, 3.5), layout="constrained", facecolor="white")
    FigureCanvasAgg(picture)
    for axes, (trust, title) in zip(picture.subplots(1, 3, sharex=True, sharey=True), TRUSTED.items(), strict=True):
        for source, (colour, dash, marker) in STYLES.items():
            own = at(rows, data_set="cifar10", source=source, trust=trust)
            means = {each: Mean.of((100 * at(own, epsilon=each)["accuracy"]).tolist()) for each in set(own["epsilon"])}
            if means:
                places = sorted(means)
                axes.errorbar(
                    places, [means[each].value for each in places], [means[each].half for each in places],
                    color=colour, linestyle=dash, marker=marker, markersize=5, capsize=2, linewidth=1.3,
                    label=LABELS[source],
                )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{each:g}" for each in epsilons])
        axes.minorticks_off()
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(r"accounted $\epsilon$ of every observer")
    picture.axes[0].set_ylabel("test accuracy on CIFAR-10, %")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    title = "what the features were made from"
    picture.legend(handles, labels, title=title, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    picture.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/sources"), help="where the last run is left")
    parser.add_argument("--only", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=0, help="how many are run; 0: none")
    asked = parser.parse_args()
    run_what_is_left(asked.out, asked.data_root, asked.seeds, asked.only)
    rows = pd.read_csv(CSV)
    if len(at(rows, data_set="cifar10")):
        draw(rows, PICTURE)
    PAGE.write_text(between_markers(PAGE.read_text(encoding="utf-8"), COMMAND, table(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
