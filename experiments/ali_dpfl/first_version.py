"""ALI-DPFL's first version on Fashion-MNIST: its Tables II to IV, as far as its text states what was run.

    python -m experiments.ali_dpfl.first_version --data-root DIR [--columns III-2 ...] [--seeds 1 2 3 4 5] [--out OUT]
    python -m experiments.ali_dpfl.first_version --page

The text states the data (400 shards, 40 to each of ten devices), the divisor (75), noise, clip norm, step size, the
rounds R_s and, by epsilon, the local iterations R_c. It does not state the model (`ali-cnn-28` here, the second
version's), omega and lambda of the rule's bound, nor the number of repetitions. A batch of 75 among a device's 6,000
records is a sampling rate of 0.0125; its R_c are those of 0.015, which is what is run.

Where rounds abound (Table II) the rule itself has one local step in every round, so that its row is that of tau = 1 and
is not run twice. Where they are scarce, a run measures the constants of the bound on all records of every device after
each round: some 70 seconds of a core in place of 15. omega and lambda enter the choice only by omega lambda^2: both are
1 in the runs; the page has what the rule would choose at other products (`PRODUCTS`) by the constants they measured.

Finished runs are kept in OUT, and `OUT/ali-first.csv` has the accuracy of each: as `first-version.csv` of this folder
it is what `--page` writes as a table into README.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

import h2fdp
from experiments.ali_dpfl.bounds import DpSgdNoise, ali_first_optimum
from experiments.ali_dpfl.schedules import LONGEST
from experiments.programs import between_markers, told
from experiments.reproduction.conduct import commit_of
from experiments.reproduction.evaluation import JudgedClaim
from experiments.reproduction.quantities import Estimate
from experiments.reproduction.verdict import remark, verdict
from experiments.reproduction.wording import verdict_text
from experiments.resource_budget.drift import DriftConstants
from h2fdp.reports.sweep_numbers import means_with_intervals

FILE = Path(__file__).parent / "first-version.yaml"
PAGE = Path(__file__).with_name("README.md")
SECTION = "python -m experiments.ali_dpfl.first_version --page"
RULE = "ali-dpfl-v1"  # what tables call it
SCHEDULE = '{name: "../../experiments.ali_dpfl:AliDpflFirst"}'
PRODUCTS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # omega lambda^2
LETTERS = ("rho", "beta", "xi")
NOISE = DpSgdNoise(0.1, 1.1, parameters=26_010, batch=90)  # of the file: 0.015 of 6,000 records
STEP_SIZE = 0.5


class PaperColumn(NamedTuple):
    """A column of the first version's tables on Fashion-MNIST.

    Attributes:
        rounds, iterations: R_s, and R_c as printed.
        adaptive: the accuracy of ALI-DPFL in per cent.
        fixed: tau -> the same of a fixed number of local steps.
    """

    epsilon: float
    rounds: int
    iterations: int
    adaptive: float
    fixed: dict[int, float]


COLUMNS = {
    "II-1.55": PaperColumn(1.55, 158, 79, 80.57, {1: 79.98, 2: 79.66, 3: 78.55, 4: 78.37, 5: 77.68}),
    "II-1.65": PaperColumn(1.65, 231, 122, 81.86, {1: 81.84, 2: 79.88, 3: 77.51, 4: 77.90, 5: 76.96}),
    "II-1.75": PaperColumn(1.75, 317, 177, 82.58, {1: 82.53, 2: 81.49, 3: 81.56, 4: 81.39, 5: 78.48}),
    "II-1.75-158": PaperColumn(1.75, 158, 177, 82.02, {1: 81.94, 2: 81.48, 3: 81.26, 4: 79.17, 5: 79.64}),
    "II-1.85": PaperColumn(1.85, 231, 231, 83.88, {1: 83.71, 2: 82.84, 3: 82.61, 4: 82.44, 5: 80.46}),
    "II-2": PaperColumn(2.0, 317, 317, 84.19, {1: 84.02, 2: 82.92, 3: 82.73, 4: 82.50, 5: 81.72}),
    "III-2": PaperColumn(2.0, 158, 317, 83.44, {1: 81.64, 2: 83.20, 3: 82.60, 4: 81.12, 5: 82.25}),
    "III-2.25": PaperColumn(2.25, 231, 457, 83.58, {1: 82.96, 2: 81.94, 3: 82.99, 4: 83.54, 5: 77.96}),
    "III-2.5": PaperColumn(2.5, 317, 598, 83.25, {1: 83.39, 2: 83.46, 3: 83.24, 4: 82.26, 5: 81.67}),
    "IV-2.75": PaperColumn(2.75, 158, 775, 84.07, {1: 82.14, 3: 83.60, 5: 82.45, 7: 82.29, 9: 80.78}),
    "IV-3.25": PaperColumn(3.25, 231, 1123, 84.31, {1: 81.99, 3: 83.57, 5: 80.70, 7: 81.16, 9: 71.13}),
    "IV-3.75": PaperColumn(3.75, 317, 1585, 84.58, {1: 83.70, 3: 83.75, 5: 81.72, 7: 82.87, 9: 81.36}),
}


def settings_of(column: PaperColumn, seeds: list[int]) -> tuple[str, ...]:
    """What makes the file's sweep a column's."""
    rows: list[list[Any]] = [["fixed", tau] for tau in column.fixed]
    if column.rounds < column.iterations:
        rows.append([SCHEDULE, 1])
    written = ", ".join(f"[{schedule}, {tau}]" for schedule, tau in rows)
    return (
        f"privacy.epsilon={column.epsilon}",
        f"training.intervals={column.rounds}",
        f"sweep.seed={seeds}",
        f"sweep.method.schedule, training.local_steps=[{written}]",
    )


def word(schedule: Any, local_steps: int) -> str:
    """What a row of the table is called, by a run's `method.schedule`."""
    return f"tau = {local_steps}" if "fixed" in str(schedule) else RULE


def constants_of(decisions: Iterable[Mapping[str, Any]]) -> list[float]:
    """The means of rho, beta and xi over the rounds in which the rule had them; NaN where it never had."""
    known = [each["constants"] for each in decisions if LETTERS[0] in each.get("constants", {})]
    return [float(np.mean([each[letter] for each in known])) if known else math.nan for letter in LETTERS]


def choices_of(runs: pd.DataFrame) -> Iterator[str]:
    """What the rule chooses in the middle of a run, by the constants that its devices measured."""
    for name, column in COLUMNS.items():
        own = runs[(runs["column"] == name) & (runs["schedule"] == RULE)]
        if own.empty:
            continue
        means = [float(own[letter].mean()) for letter in LETTERS]
        drift, left = DriftConstants(*means), (column.rounds // 2, column.iterations // 2)
        taus = [ali_first_optimum(LONGEST, *left, STEP_SIZE, drift, NOISE, product, 1.0) or 1 for product in PRODUCTS]
        told = ", ".join(f"{letter} = {mean:.2g}" for letter, mean in zip(LETTERS, means, strict=True))
        chosen = ", ".join(f"{tau} at {product:g}" for tau, product in zip(taus, PRODUCTS, strict=True))
        yield f"- Table {name.partition('-')[0]}, epsilon {column.epsilon:g}: devices measured {told} in the mean."
        yield f"  With half of both budgets left the rule then chooses, by omega lambda^2: {chosen}."


def collected(out: Path) -> pd.DataFrame:
    """A row for each finished run: column, schedule, seed, accuracy at the end, mean tau, local steps in all."""
    rows = []
    for place in sorted(out.glob("*/runs/*")):
        run = h2fdp.Run(place)
        if run.summary.get("state") == "done":
            last = run.metrics.iloc[-1]
            config = yaml.safe_load((place / "config.yaml").read_text())
            schedule = word(config["method"]["schedule"], config["training"]["local_steps"])
            mean = float(run.metrics["local_steps"].mean())
            decisions = [json.loads(line) for line in (place / "control.jsonl").read_text().splitlines()]
            known = (place.parents[1].name, schedule, config["seed"], last["accuracy"], mean, int(last["slot"]))
            rows.append((*known, *constants_of(decisions)))
    found = pd.DataFrame(rows, columns=["column", "schedule", "seed", "accuracy", "mean_tau", "steps", *LETTERS])
    return found.assign(data_set="fashion-mnist")


def table_of(runs: pd.DataFrame) -> Iterator[str]:
    """A row for each column and schedule: accuracy with its 95 % interval, and how far the rule is above it."""
    yield (
        "| table, epsilon, R_s, R_c | local steps | accuracy, % | the paper's | the rule is above by | in the paper | "
        "seeds | mean tau |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name, column in COLUMNS.items():
        of = runs[runs["column"] == name]
        for schedule in sorted(set(of["schedule"])):
            own = of[of["schedule"] == schedule]
            paper = column.adaptive if schedule == RULE else column.fixed[int(schedule.rpartition(" ")[2])]
            printed = column.adaptive - paper
            here, there = ("", "") if schedule == rule_in(of) else (lead_of(of, schedule, printed), f"{printed:+.2f}")
            yield (
                f"| {name.partition('-')[0]}, {column.epsilon:g}, {column.rounds}, {column.iterations} | {schedule} | "
                f"{_with_interval(100 * own['accuracy'].to_numpy())} | {paper:.2f} | {here} | {there} | {len(own)} | "
                f"{own['mean_tau'].mean():.2f} |"
            )


def rule_in(of: pd.DataFrame) -> str:
    """What the rule's runs of a column are called: where rounds abound they are those of tau = 1."""
    return RULE if RULE in set(of["schedule"]) else "tau = 1"


def lead_of(of: pd.DataFrame, schedule: str, printed: float) -> str:
    """How many points the rule is above a fixed tau in a column, seed by seed, with its interval and a verdict.

    Args:
        printed: how many it is in the paper.
    """
    accuracy = 100 * of.pivot(index="seed", columns="schedule", values="accuracy")
    leads = (accuracy[rule_in(of)] - accuracy[schedule]).dropna().to_numpy()
    found = means_with_intervals(leads[:, None])
    if len(leads) < 2:
        return f"{found.mean[0]:+.1f}"
    lead = Estimate(float(found.mean[0]), float(found.low[0]), float(found.high[0]))
    judged = verdict("at least", printed, 0.0, lead, lead)
    words = verdict_text(JudgedClaim(judged, remark=remark(judged, "at least", printed, 0.0, lead, lead)))
    return f"{lead.value:+.1f} [{lead.low:.1f}, {lead.high:.1f}]: {words}"


def left_of(runs: pd.DataFrame) -> str:
    """Which columns were not run, and how many local steps a seed of them has."""
    left = {name: column for name, column in COLUMNS.items() if name not in set(runs["column"])}
    words = [
        f"{name.partition('-')[0]} at {column.epsilon:g} with R_s = {column.rounds} ({_steps(column):,} steps a seed)"
        for name, column in left.items()
    ]
    return f"Not run: {'; '.join(words)}." if words else "All columns were run."


def _steps(column: PaperColumn) -> int:
    """Local steps of a device in all runs of one seed."""
    fixed = sum(min(column.rounds * tau, column.iterations) for tau in column.fixed)
    return fixed + (column.iterations if column.rounds < column.iterations else 0)


def _with_interval(values: np.ndarray) -> str:
    found = means_with_intervals(values[:, None])
    half = "" if np.isnan(found.low[0]) else f" ± {found.mean[0] - found.low[0]:.1f}"
    return f"{found.mean[0]:.1f}{half}"


def write(out: Path) -> pd.DataFrame:
    """The table of the runs that are finished."""
    found = collected(out)
    made_by = f"# `python -m experiments.ali_dpfl.first_version --data-root DIR` at {commit_of(FILE.parent)}\n"
    (out / FILE.with_suffix(".csv").name).write_text(made_by + found.to_csv(index=False, float_format="%.6g"))
    return found


def main() -> None:
    """Run what is left, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--out", type=Path, default=Path("sweeps/ali-first"))
    parser.add_argument("--page", action="store_true", help="write the page from first-version.csv")
    asked = parser.parse_args()
    if asked.page:
        runs = pd.read_csv(FILE.with_suffix(".csv"), comment="#")
        PAGE.write_text(
            between_markers(PAGE.read_text(), SECTION, (*table_of(runs), "", *choices_of(runs), "", left_of(runs)))
        )
        return
    for name in asked.columns:
        done = h2fdp.sweep(
            FILE, settings_of(COLUMNS[name], asked.seeds), asked.out / name, data_root=asked.data_root,
            jobs=asked.jobs,
        )  # fmt: skip
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        write(asked.out)
    print("\n".join(table_of(write(asked.out))))


if __name__ == "__main__":
    told(main)
