"""The picture and the tables of the frontier, from `frontier.csv` and `frontier-search.csv`.

    python -m experiments.frontier.page [FOLDER]

FOLDER has the two tables, by default this folder. Draws figures/frontier*.png; writes between the
markers of experiments/frontier/README.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

from experiments.frontier.mechanisms import ANY, EPSILONS, MECHANISMS, PLAIN, SECURE_SUM, TRUST
from experiments.frontier.runs import RUNS, TRIALS, trust_word
from experiments.reproduction.panels import COLOURS

FOLDER = Path(__file__).parent
PAGE, PICTURE = FOLDER / "README.md", FOLDER / "figures" / "frontier.png"
BEGIN, END = "<!-- begins: python -m experiments.frontier.page writes it -->", "<!-- ends -->"
FIRST = "fashion-mnist"
TITLES = {
    "fashion-mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "fashion-mnist-cnn": "Fashion-MNIST, small CNN",
    "cifar10-features": "CIFAR-10, public features",
    "digits": "digits",
}
LABELS = {each.name: each.label for each in MECHANISMS}
NETWORKS = {"0": "none", "0.5": "half", "1": "all", SECURE_SUM: "secure sums", ANY: "-"}
BY_RECORD = ("per-record", "noise-inside", SECURE_SUM)
STYLES = {  # colour, dash, marker
    "default": (COLOURS[4], "-", "*"),
    "per-record": (COLOURS[1], "-", "o"),
    "noise-inside": (COLOURS[2], (0, (6, 2)), "s"),
    SECURE_SUM: (COLOURS[3], (0, (2, 1.5)), "D"),
    "paper": (COLOURS[0], (0, (6, 2, 1, 2)), "^"),
}


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and half the length of its 95 % interval by Student's t; undefined for a single seed.

    >>> round(Mean.of([1.0, 2.0, 3.0]).half, 6)  # 4.302653 / sqrt(3)
    2.484138
    """

    value: float
    half: float
    seeds: int

    @classmethod
    def of(cls, values: list[float]) -> Mean:
        count = len(values)
        spread = np.std(values, ddof=1) / math.sqrt(count) if count > 1 else math.nan
        return cls(
            float(np.mean(values)), float(stats.t.ppf(0.975, count - 1) * spread) if count > 1 else math.nan, count
        )

    def __str__(self) -> str:
        return f"{self.value:.1f}" if math.isnan(self.half) else f"{self.value:.1f} ± {self.half:.1f}"


def read(path: Path) -> pd.DataFrame:
    """A table, whose trust is a word."""
    found = pd.read_csv(path, comment="#", dtype={"trust": str})
    return found.assign(trust=found["trust"].map(trust_word))


def accuracies(runs: pd.DataFrame, mechanism: str, trust: str, epsilon: float) -> dict[int, float]:
    """Seed -> test accuracy in per cent."""
    at = runs[(runs["mechanism"] == mechanism) & (runs["trust"] == trust) & (runs["epsilon"] == epsilon)]
    return dict(zip(at["seed"].tolist(), (100 * at["accuracy"]).tolist(), strict=True))


def word(found: dict[int, float]) -> str:
    """A cell of a table: the mean of what seeds found, or nothing where they found nothing."""
    return str(Mean.of(list(found.values()))) if found else ""


def rows_of(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Mechanism and network of every row of a table, in the order of the mechanisms, no noise last."""
    there = set(zip(runs["mechanism"], runs["trust"], strict=True))
    order = ["default", "paper", "per-record", "noise-inside", SECURE_SUM, "none"]
    return [(name, trust) for name in order for trust in NETWORKS if (name, trust) in there]


def tried(runs: pd.DataFrame) -> list[float]:
    """The epsilons that were run, of those of the study."""
    return [each for each in EPSILONS if each in set(runs["epsilon"])]


def frontier_table(runs: pd.DataFrame) -> Iterator[str]:
    """Accuracy by mechanism, network and epsilon."""
    epsilons = tried(runs)
    yield "| mechanism | edge servers trusted | " + " | ".join(f"epsilon {each:g}" for each in epsilons) + " |"
    yield "|---" * (len(epsilons) + 2) + "|"
    for name, trust in rows_of(runs):
        at = [PLAIN if name == "none" else each for each in epsilons]
        words = [word(accuracies(runs, name, trust, each)) for each in at]
        yield f"| {LABELS[name]} | {NETWORKS[trust]} | " + " | ".join(words) + " |"


def cost_table(runs: pd.DataFrame) -> Iterator[str]:
    """Every point of the frontier with its costs, its account and its setting."""
    yield "| mechanism | trusted | epsilon | accuracy, % | largest accounted | energy, J | clock, s | setting |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, trust in rows_of(runs):
        own = runs[(runs["mechanism"] == name) & (runs["trust"] == trust)]
        for epsilon in sorted(own["epsilon"].unique()):
            at = own[own["epsilon"] == epsilon]
            target, shown = ("-", "-") if epsilon == PLAIN else (f"{epsilon:g}", f"{at['accounted'].max():.4g}")
            yield (
                f"| {LABELS[name]} | {NETWORKS[trust]} | {target} | {Mean.of((100 * at['accuracy']).tolist())} | "
                f"{shown} | {at['energy_j'].mean():.1f} | {at['clock_s'].mean():.1f} | {at['setting'].iloc[0]} |"
            )


def difference(runs: pd.DataFrame, one: tuple[str, str], other: tuple[str, str], epsilon: float) -> Mean | None:
    """How many points more `one` (mechanism, network) has than `other`, seed by seed."""
    more, less = (accuracies(runs, *each, epsilon) for each in (one, other))
    seeds = sorted(more.keys() & less.keys())
    return Mean.of([more[seed] - less[seed] for seed in seeds]) if seeds else None


def worth_table(runs: pd.DataFrame) -> Iterator[str]:
    """What trust is worth in points at equal epsilon."""
    compared = {
        f"{LABELS[name]}: {words}": ((name, more), (name, "0"))
        for words, more in (("half of them trusted, not none", "0.5"), ("all trusted, not none", "1"))
        for name in ("default", "paper", "per-record", "noise-inside")
    } | {
        "secure sums, not untrusted servers": ((SECURE_SUM, SECURE_SUM), ("per-record", "0")),
        "secure sums, not trusted servers": ((SECURE_SUM, SECURE_SUM), ("per-record", "1")),
    }
    epsilons = tried(runs)
    yield "| points gained by | " + " | ".join(f"epsilon {each:g}" for each in epsilons) + " |"
    yield "|---" * (len(epsilons) + 1) + "|"
    for words, (one, other) in compared.items():
        found = [difference(runs, one, other, epsilon) for epsilon in epsilons]
        if any(found):
            yield f"| {words} | " + " | ".join("" if each is None else str(each) for each in found) + " |"


def cheapest(trials: pd.DataFrame, network: str, epsilon: float, target: float) -> float | None:
    """Joules of the cheapest trial of any mechanism by record that reaches a validation accuracy; None if none does."""
    there = trials[trials["mechanism"].isin(BY_RECORD) & (trials["trust"] == network) & (trials["epsilon"] == epsilon)]
    reached = there[there["validation_accuracy"] >= target]
    return None if reached.empty else float(reached["energy_j"].min())


def joules_table(trials: pd.DataFrame) -> Iterator[str]:
    """What trust is worth in joules at equal accuracy: that of the best trial with no edge server trusted."""
    yield "| epsilon | validation accuracy, % | none trusted, J | secure sums, J | all trusted, J |"
    yield "|---|---|---|---|---|"
    for epsilon in EPSILONS:
        untrusted = trials[trials["mechanism"].isin(BY_RECORD) & (trials["trust"] == "0")]
        target = float(untrusted.loc[untrusted["epsilon"] == epsilon, "validation_accuracy"].max())
        if math.isnan(target):
            continue
        found = [cheapest(trials, network, epsilon, target) for network in ("0", SECURE_SUM, "1")]
        there = set(trials.loc[trials["epsilon"] == epsilon, "trust"])
        words = [
            "not run" if network not in there else "not reached" if joules is None else f"{joules:.1f}"
            for network, joules in zip(("0", SECURE_SUM, "1"), found, strict=True)
        ]
        yield f"| {epsilon:g} | {100 * target:.1f} | " + " | ".join(words) + " |"


def draw(runs: pd.DataFrame, path: Path) -> None:
    """A panel for each probability of trust; secure sums stand where no server is trusted with raw updates."""
    titles = {0.0: "no edge server trusted", 0.5: "half of them trusted", 1.0: "all trusted"}
    shown = {"0" if each == SECURE_SUM else each for each in runs["trust"]}
    epsilons, panels = tried(runs), [each for each in TRUST if f"{each:g}" in shown]
    picture = Figure(figsize=(3.0 * len(panels), 3.5), layout="constrained", facecolor="white")
    FigureCanvasAgg(picture)
    for axes, trust in zip(picture.subplots(1, len(panels), sharex=True, sharey=True), panels, strict=True):
        for name, (colour, dash, marker) in STYLES.items():
            network = SECURE_SUM if name == SECURE_SUM and trust == 0 else f"{trust:g}"
            found = {epsilon: list(accuracies(runs, name, network, epsilon).values()) for epsilon in epsilons}
            means = {epsilon: Mean.of(each) for epsilon, each in found.items() if each}
            if means:
                axes.errorbar(
                    list(means), [each.value for each in means.values()], [each.half for each in means.values()],
                    color=colour, linestyle=dash, marker=marker, markersize=4, capsize=2, linewidth=1.3,
                    label=LABELS[name],
                )  # fmt: skip
        plain = list(accuracies(runs, "none", ANY, PLAIN).values())
        if plain:
            axes.axhline(float(np.mean(plain)), color="#777777", linewidth=1, linestyle=":", label=LABELS["none"])
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{each:g}" for each in epsilons])
        axes.minorticks_off()
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_title(titles[trust], fontsize=10)
        axes.set_xlabel(r"accounted $\epsilon$ of every observer")
    picture.axes[0].set_ylabel("test accuracy, %")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    columns = len(labels) if len(panels) > 2 else 3
    picture.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)


def picture_of(data_set: str) -> Path:
    """Where its picture is."""
    return PICTURE if data_set == FIRST else PICTURE.with_name(f"frontier-{data_set}.png")


def runs_each(runs: pd.DataFrame) -> int:
    """Seeds of every point."""
    (found,) = set(runs.groupby(["mechanism", "trust", "epsilon"]).size())
    return int(found)


def page(runs: pd.DataFrame, trials: pd.DataFrame) -> Iterator[str]:
    """The numbers of experiments/frontier/README.md."""
    for data_set in runs["data_set"].unique():
        own, tried = runs[runs["data_set"] == data_set], trials[trials["data_set"] == data_set]
        yield f"### {TITLES.get(data_set, data_set)}\n"
        picture = picture_of(data_set)
        if data_set != FIRST:
            title = TITLES.get(data_set, data_set)
            yield f"![Test accuracy over accounted epsilon, {title}](figures/{picture.name})\n"
        yield f"Means of {runs_each(own)} seeds and 95 % intervals.\n"
        yield from frontier_table(own)
        yield "\nWhat trust is worth, in points at equal epsilon (differences seed by seed):\n"
        yield from worth_table(own)
        yield "\nAnd in joules: the cheapest trials that are as good as the best one with no edge server trusted.\n"
        yield from joules_table(tried)
        yield "\nEvery point with its costs and setting:\n"
        yield from cost_table(own)
        yield ""


def between(text: str, lines: Iterator[str]) -> str:
    """A page with these lines between its markers."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + "\n\n" + "\n".join(lines).rstrip() + "\n\n" + END + rest.split(END, 1)[1]


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args().folder
    runs, trials = read(folder / RUNS), read(folder / TRIALS)
    for data_set in runs["data_set"].unique():
        draw(runs[runs["data_set"] == data_set], picture_of(data_set))
    PAGE.write_text(between(PAGE.read_text(), page(runs, trials)))


if __name__ == "__main__":
    main()
