"""Upcycled-FL's tables in README.md, from the runs that are checked in.

    python -m experiments.upcycled.page

Reads `upcycled.csv`, `upcycled-30.csv` and `upcycled-private.csv` of this folder; a file that is not there has no
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.programs import between_markers, told
from experiments.upcycled.rule import ROUNDS, half_width, verdict
from experiments.upcycled.runs import DATA_SETS
from experiments.upcycled.stored import UPCYCLED, read_runs
from experiments.upcycled.table import GRIDS

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
SECTION = "python -m experiments.upcycled.page"
TITLES = {
    "iid": "iid", "0_0": "Synthetic(0, 0)", "0.5_0.5": "Synthetic(0.5, 0.5)", "1_1": "Synthetic(1, 1)",
    "femnist": "FEMNIST", "sent140": "Sent140",
}  # fmt: skip
Printed = Mapping[str, list[tuple[float, float]]]
TABLE_1: Printed = {  # plain, upcycled; the data sets in the order of TITLES
    "fedavg": [(98.06, 98.83), (79.28, 81.46), (81.58, 82.89), (80.40, 81.49), (81.38, 82.10), (76.11, 76.32)],
    "fedavgm": [(98.43, 98.72), (80.29, 81.74), (82.60, 83.13), (80.59, 81.37), (80.15, 81.30), (75.70, 74.88)],
    "fedprox": [(96.52, 97.62), (80.72, 80.88), (81.99, 83.10), (81.19, 81.94), (79.35, 80.33), (73.94, 74.25)],
    "scaffold": [(97.51, 98.68), (80.26, 81.10), (82.44, 82.64), (74.91, 76.14), (76.83, 77.88), (76.34, 77.34)],
    "feddyn": [(97.00, 98.32), (81.62, 82.41), (80.64, 82.89), (77.27, 80.03), (81.76, 83.33), (75.97, 76.03)],
    "pfedme": [(96.30, 96.77), (89.15, 89.08), (89.43, 89.55), (93.06, 93.12), (71.73, 76.66), (72.81, 74.07)],
    "fedyogi": [(99.30, 99.41), (81.20, 81.65), (79.49, 80.84), (78.95, 80.17), (73.53, 75.64), (77.02, 77.59)],
}
TABLE_3: Printed = {
    "fedavg": [(98.50, 99.30), (80.30, 80.77), (82.60, 83.09), (78.81, 80.74), (83.06, 84.41), (74.29, 75.18)],
    "fedavgm": [(98.50, 99.12), (81.08, 82.20), (82.89, 82.68), (80.64, 80.43), (81.60, 82.31), (74.61, 74.16)],
    "fedprox": [(97.22, 98.24), (80.88, 81.52), (82.31, 83.05), (80.13, 81.73), (81.57, 82.85), (74.23, 74.83)],
    "scaffold": [(98.28, 99.52), (79.95, 79.46), (79.54, 81.83), (72.27, 73.34), (76.85, 77.69), (75.76, 77.01)],
    "feddyn": [(98.17, 98.57), (82.06, 82.08), (80.97, 82.80), (78.65, 81.11), (84.39, 85.34), (75.88, 75.90)],
    "pfedme": [(96.45, 96.89), (91.05, 91.06), (89.64, 89.40), (92.88, 92.64), (76.15, 77.36), (72.87, 73.48)],
    "fedyogi": [(99.38, 99.60), (81.06, 81.77), (80.65, 81.72), (79.14, 80.32), (79.98, 81.96), (77.63, 77.78)],
}


def accuracies(runs: pd.DataFrame, name: str, method: str) -> pd.Series:
    """By seed, in per cent."""
    own = runs[(runs["data_set"] == name) & (runs["method"] == method)]
    return 100 * own.set_index("seed")["accuracy"]


def comparison_table(runs: pd.DataFrame, printed: Printed) -> Iterator[str]:
    """A row for each method and data set: plain, upcycled, the gain with its interval, the paper's, the verdict."""
    yield "| method | data set | plain, % | upcycled, % | gain, points | paper's gain | seeds | verdict |"
    yield "|---|---|---|---|---|---|---|---|"
    there = [name for name in TITLES if name in set(runs["data_set"])]
    for method in GRIDS:
        for name in there:
            plain, upcycled = (accuracies(runs, name, kind) for kind in (method, UPCYCLED + method))
            by_seed = (upcycled - plain).dropna()
            gains = by_seed.tolist()
            if not gains:
                continue
            seeds = f"{len(gains)}" + " new" * (by_seed.index.min() > ROUNDS[-1])
            before, after = printed[method][list(TITLES).index(name)]
            yield (
                f"| {method} | {TITLES[name]} | {_spread(plain)} ({plain.mean() - before:+.2f}) | {_spread(upcycled)} "
                f"({upcycled.mean() - after:+.2f}) | {np.mean(gains):+.2f} ± {half_width(gains):.2f} | "
                f"{after - before:+.2f} | {seeds} | {verdict(gains)} |"
            )


def _spread(values: pd.Series) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"


def tally(runs: pd.DataFrame) -> str:
    """How many comparisons ended how."""
    counts: dict[str, int] = {}
    for name in runs["data_set"].unique():
        for method in GRIDS:
            gains = (accuracies(runs, name, UPCYCLED + method) - accuracies(runs, name, method)).dropna().tolist()
            if gains:
                word = verdict(gains).split(":")[0]
                counts[word] = counts.get(word, 0) + 1
    words = [
        f"{counts[word]} {word}" for word in ("better", "worse", "known to half a point", "open") if word in counts
    ]
    return f"Of {sum(counts.values())} comparisons: {', '.join(words)}."


def private_tally(runs: pd.DataFrame) -> Iterator[str]:
    """For each setting, how many comparisons have an interval above or below 0, by accuracy and by loss."""
    for setting, part in runs.groupby("setting", sort=False):
        found = list(comparisons(part))
        lower = [(plain["loss"] - upcycled["loss"]).dropna() for _, _, plain, upcycled, _ in found]
        words = []
        for measure, gains in (("accuracy", [gains for *_, gains in found]), ("loss", lower)):
            better, worse = (
                sum(sign * each.mean() > half_width(each.tolist(), 0.95) for each in gains) for sign in (1, -1)
            )
            words.append(f"by {measure} {better} better upcycled and {worse} worse")
        yield f"- {setting}: of {len(found)} comparisons {', '.join(words)} (each by its 95 % interval)."


def comparisons(runs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame, pd.Series]]:
    """Data set, method, its runs plain and upcycled by seed, and the gains in points."""
    for name, part in runs.groupby("data_set", sort=False):
        for method in GRIDS:
            plain, upcycled = (part[part["method"] == kind].set_index("seed") for kind in (method, UPCYCLED + method))
            gains = 100 * (upcycled["accuracy"] - plain["accuracy"]).dropna()
            if len(gains):
                yield str(name), method, plain, upcycled, gains


def private_table(runs: pd.DataFrame) -> Iterator[str]:
    """A row for each setting, method and data set."""
    yield (
        "| setting | method | data set | plain, % | upcycled, % | gain, points | loss, plain and upcycled | "
        "largest claimed epsilon | accounted |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for setting, part in runs.groupby("setting", sort=False):
        for name, method, plain, upcycled, gains in comparisons(part):
            half = half_width(gains.tolist(), 0.95)
            yield (
                f"| {setting} | {method} | {TITLES[name]} | {100 * plain['accuracy'].mean():.1f} | "
                f"{100 * upcycled['accuracy'].mean():.1f} | {gains.mean():+.1f} ± {half:.1f} | "
                f"{plain['loss'].mean():.3g}, {upcycled['loss'].mean():.3g} | "
                f"{_largest(plain['claimed'])}, {_largest(upcycled['claimed'])} | "
                f"{_largest(plain['accounted'])}, {_largest(upcycled['accounted'])} |"
            )


def _largest(epsilons: pd.Series) -> str:
    return "none" if epsilons.isna().all() or np.isinf(epsilons.max()) else f"{epsilons.max():.3g}"


def page(folder: Path) -> Iterator[str]:
    """The sections."""
    tables = {"upcycled.csv": ("Table 1: 90 % stragglers", TABLE_1), "upcycled-30.csv": ("Table 3: 30 %", TABLE_3)}
    for file, (title, printed) in tables.items():
        if not (folder / file).is_file():
            continue
        read_runs(folder / file, GRIDS)  # which refuses a damaged one
        runs = pd.read_csv(folder / file, comment="#")
        runs = runs[runs["data_set"].isin(DATA_SETS)]
        yield f"### {title}\n"
        yield f"{tally(runs)}\n"
        yield from comparison_table(runs, printed)
        yield ""
    private = folder / "upcycled-private.csv"
    if private.is_file():
        yield "### With noise: Figs. 3 and 4\n"
        runs = pd.read_csv(private, comment="#")
        yield from private_tally(runs)
        yield ""
        yield from private_table(runs)


def main() -> None:
    """Write."""
    PAGE.write_text(between_markers(PAGE.read_text(), SECTION, page(HERE)))


if __name__ == "__main__":
    told(main)
