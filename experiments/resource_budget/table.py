"""Wang et al.'s SVM on even and odd digits of MNIST: the controller's tau against fixed ones, within 15 seconds.

    python -m experiments.resource_budget.table --data-root DIR [--out sweeps/wang] [--seeds 5] [--only sgd dgd]

Five nodes hold the records in four ways (`svm.holdings`). `sgd`: batches of 100 of all 60,000 records; `dgd`: all
of 1,000 records at each step, other 1,000 for each seed. The prices of a step and of an aggregation are the mean times
that the authors measured (their program's configuration); they draw times about these. As in their program a fixed tau
has the same admission, the same shorter last interval, and its best model is returned, too.

DIR has MNIST's files, as torchvision lays them out. Both parts are sweeps in OUT: the same command continues after an
interruption. `OUT/wang.csv` has the accuracy of every run: as `wang.csv` of this folder it is what `python -m
experiments.reproduce wang` judges. Draws figures/wang.png from it and writes between the markers of README.md; `--page`
does only that, from `wang.csv`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import h2fdp
from experiments.frontier.page import Mean
from experiments.frontier.runs import flow
from experiments.programs import told
from experiments.reproduction.conduct import commit_of
from experiments.reproduction.panels import COLOURS
from experiments.resource_budget.svm import CASES, holdings
from h2fdp.data.images import Mnist
from h2fdp.data.records import Records
from h2fdp.records.atomic import write_text

FOLDER = Path(__file__).parent
PAGE, PICTURE = FOLDER / "README.md", FOLDER / "figures" / "wang.png"
BEGIN, END = "<!-- begins: python -m experiments.resource_budget.table writes it -->", "<!-- ends -->"
FIXED = {"sgd": (1, 2, 3, 5, 10, 20, 50, 100), "dgd": (1, 3, 10, 30, 100)}
SGD_PRICES = (0.013015156, 0.131604348)  # seconds of a local step, of a global aggregation
DGD_PRICES = {  # by case
    1: (0.020613052, 0.137093837),
    2: (0.021810727, 0.12322071),
    3: (0.095353094, 0.157255906),
    4: (0.022075891, 0.108598094),
}
DGD_RECORDS = 1000
ADAPTIVE = "adaptive"
TITLES = {"sgd": "stochastic gradients", "dgd": "all records at each step"}
HOLDINGS = {1: "uniform", 2: "by label", 3: "everything", 4: "half uniform, half by label"}


def word(constant: int | None) -> str:
    """What a schedule is called."""
    return ADAPTIVE if constant is None else f"tau = {constant}"


def archive(path: Path, case: int, train: Records, test: Records) -> None:
    """The records of five nodes, even digits as class 0; nothing where it is there."""
    if path.is_file():
        return
    parts = holdings(case, train.y)
    held = np.concatenate(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    np.savez(
        part,
        x_train=train.x[held],
        y_train=train.y[held] % 2,
        x_test=test.x,
        y_test=test.y % 2,
        device_train=np.repeat(np.arange(len(parts)), [len(each) for each in parts]),
    )
    part.rename(path)


def mnist(root: Path | None) -> tuple[Records, Records]:
    """Training and test records."""
    from h2fdp.data.source import DataRequest
    from h2fdp.streams import Streams

    pool = Mnist().load(DataRequest(Mnist(), (), Streams(0), root))
    return pool.train, pool.test


def settings(part: str, out: Path, seeds: list[int]) -> list[str]:
    """The grid of a part: its archives and prices, then every schedule."""
    keys = "data.path, method.schedule.step_cost, method.schedule.aggregation_cost"
    constants = f"sweep.method.schedule.constant={flow([None, *FIXED[part]])}"
    if part == "sgd":
        rows = [[str(out / f"case-{case}.npz"), *SGD_PRICES] for case in CASES]
        return [f"sweep.seed={flow(seeds)}", f"sweep.{keys}={flow(rows)}", constants]
    of_seeds = [[seed, str(out / f"case-{case}-{seed}.npz"), *DGD_PRICES[case]] for seed in seeds for case in CASES]
    whole = ["training.batch_size=null", "training.sampling_rate=1"]
    return [*whole, f"sweep.seed, {keys}={flow(of_seeds)}", constants]


def run_part(part: str, out: Path, seeds: list[int], root: Path | None, jobs: int) -> pd.DataFrame:
    """A row for each run of a part, made where it is not there."""
    train, test = mnist(root)
    for case in CASES:
        if part == "sgd":
            archive(out / f"case-{case}.npz", case, train, test)
        for seed in seeds if part == "dgd" else ():
            first = (seed - 1) * DGD_RECORDS
            some = train.part(np.arange(first, first + DGD_RECORDS))
            archive(out / f"case-{case}-{seed}.npz", case, some, test)
    done = h2fdp.sweep(FOLDER / "wang.yaml", settings(part, out.absolute(), seeds), out / part, jobs=jobs)
    assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
    rows = []
    for run in done.runs.values():
        config = yaml.safe_load((run.directory / "config.yaml").read_text())
        taus = run.metrics["local_steps"]
        rows.append(
            {
                "data_set": "-".join(Path(config["data"]["path"]).stem.split("-")[:2]),
                "gradients": part,
                "schedule": word(config["method"]["schedule"].get("constant")),
                "seed": config["seed"],
                "accuracy": run.summary["accuracy"],
                "loss": run.summary["loss"],
                "mean_tau": taus.mean(),
                "steps": int(taus.sum()),
                "intervals": len(taus),
            }
        )
    return pd.DataFrame(rows)


def numbers(runs: pd.DataFrame, part: str, case: int, schedule: str, column: str = "accuracy") -> dict[int, float]:
    """Seed -> a number of the runs, accuracies in per cent."""
    chosen = (runs["gradients"] == part) & (runs["data_set"] == f"case-{case}") & (runs["schedule"] == schedule)
    at = runs[chosen]
    values = 100 * at[column] if column == "accuracy" else at[column]
    return dict(zip(at["seed"].tolist(), values.tolist(), strict=True))


def mean(found: dict[int, float]) -> float:
    """Over seeds."""
    return float(np.mean(list(found.values())))


def draw(runs: pd.DataFrame, path: Path) -> None:
    """Accuracy over a fixed tau, and the controller's, for each case."""
    parts = [part for part in FIXED if part in set(runs["gradients"])]
    figure = Figure(figsize=(7.4, 0.5 + 2.1 * len(parts)), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(parts), len(CASES), sharex=True, sharey="row", squeeze=False)
    for number, (row, part) in enumerate(zip(grid, parts, strict=True)):
        for axes, case in zip(row, CASES, strict=True):
            means = [Mean.of(list(numbers(runs, part, case, word(tau)).values())) for tau in FIXED[part]]
            values, halves = [each.value for each in means], [each.half for each in means]
            axes.errorbar(FIXED[part], values, halves, color=COLOURS[1], marker="o", markersize=3, capsize=2,
                          linewidth=1, label="fixed")  # fmt: skip
            taus = list(numbers(runs, part, case, ADAPTIVE, "mean_tau").values())
            own = Mean.of(list(numbers(runs, part, case, ADAPTIVE).values()))
            axes.errorbar([np.mean(taus)], [own.value], [own.half], color=COLOURS[2], marker="D", markersize=5,
                          capsize=2, linestyle="none", label="adaptive, at its mean")  # fmt: skip
            axes.axhline(own.value, color=COLOURS[2], linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            axes.set_xticks([1, 10, 100], ["1", "10", "100"])
            axes.grid(alpha=0.3, linewidth=0.5)
            if number == 0:
                axes.set_title(f"case {case}:\n{HOLDINGS[case]}", fontsize=8)
            if number == len(parts) - 1:
                axes.set_xlabel(r"local steps $\tau$")
        row[0].set_ylabel(f"test accuracy, %\n{TITLES[part]}", fontsize=8)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def page(runs: pd.DataFrame) -> Iterator[str]:
    """The tables of the page."""
    for part, taus in FIXED.items():
        if part not in set(runs["gradients"]):
            continue
        seeds = runs.loc[runs["gradients"] == part, "seed"].nunique()
        yield f"### SVM, {TITLES[part]}\n"
        yield f"Test accuracy in per cent, test loss of the returned model; {seeds} seeds; bold: the best fixed tau.\n"
        yield "| | " + " | ".join(f"case {case}" for case in CASES) + " |"
        yield "|---" * (len(CASES) + 1) + "|"
        best = {case: max(taus, key=lambda tau: mean(numbers(runs, part, case, word(tau)))) for case in CASES}
        for constant in (None, *taus):
            cells = []
            for case in CASES:
                accuracy = Mean.of(list(numbers(runs, part, case, word(constant)).values()))
                loss = mean(numbers(runs, part, case, word(constant), "loss"))
                bold = "**" if constant == best[case] else ""
                cells.append(f"{bold}{accuracy}{bold}, {loss:.4f}")
            yield f"| {word(constant)} | " + " | ".join(cells) + " |"
        cells = []
        for case in CASES:
            cells.append(str(Mean.of(list(numbers(runs, part, case, ADAPTIVE, "mean_tau").values()))))
        yield "| its mean tau | " + " | ".join(cells) + " |"
        cells = []
        for case in CASES:
            own, other = numbers(runs, part, case, ADAPTIVE), numbers(runs, part, case, word(best[case]))
            cells.append(str(Mean.of([own[seed] - other[seed] for seed in own])))
        yield "| adaptive less the best fixed tau, points | " + " | ".join(cells) + " |"
        yield ""


def between(text: str, lines: Iterator[str]) -> str:
    """A page with these lines between its markers."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + "\n\n" + "\n".join(lines).rstrip() + "\n\n" + END + rest.split(END, 1)[1]


def main() -> None:
    """Run what is left, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/wang"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=tuple(FIXED), default=tuple(FIXED))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="only the page, from the runs that are stored")
    asked = parser.parse_args()
    if asked.page:
        runs = pd.read_csv(FOLDER / "wang.csv", comment="#")
    else:
        seeds = list(range(1, asked.seeds + 1))
        parts = [run_part(part, asked.out, seeds, asked.data_root, asked.jobs) for part in asked.only]
        runs = pd.concat(parts, ignore_index=True)
        command = f"python -m experiments.resource_budget.table --data-root DIR --seeds {asked.seeds}"
        made_by = f"# `{command}` at {commit_of(FOLDER)}\n"
        write_text(asked.out / "wang.csv", made_by + runs.to_csv(index=False, float_format="%.6g"))
    draw(runs, PICTURE)
    PAGE.write_text(between(PAGE.read_text(), page(runs)))
    print("\n".join(page(runs)))


if __name__ == "__main__":
    told(main)
