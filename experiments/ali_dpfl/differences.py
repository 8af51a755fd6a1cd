"""Why ALI-DPFL's accuracy is not reached: its paper's text, its program's differences one by one, and all together.

    python -m experiments.ali_dpfl.differences --data-root DIR [--out sweeps/ali-gap] [--jobs 1] [--sweeps all]
    python -m experiments.ali_dpfl.differences --page

The first runs `ali-gap.yaml`, five seeds of each reading: also all differences but the model, and all of them, with the
program's own sampling rate and noise (0.05 and 2.0, which allow 109 steps). Finished runs are kept, so the command can
be repeated until all are. It writes `OUT/ali-gap.csv`, of the runs that are finished, after each of its sweeps and when
it is asked for none of them (`--sweeps` and nothing). The second writes `differences.csv` of this folder as a table
into README.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

import h2fdp
from experiments.programs import between_markers, told
from experiments.reproduction.conduct import commit_of
from experiments.reproduction.results import makers_of, table_runs
from h2fdp.errors import UserError
from h2fdp.reports.sweep_numbers import means_with_intervals

FILE = Path(__file__).parent / "differences.yaml"
PAGE = Path(__file__).with_name("README.md")
SECTION = "python -m experiments.ali_dpfl.differences --page"
KEY = "name, model, data.partition, method.privacy.normalize, data.test, data.normalize, training.step_size"
ALL = "{dirichlet: 1.0}, 64, 0.25, symmetric, 0.5"  # of the program's differences, but for the model
ALI_CNN, FEDAVG_CNN = "../../experiments.ali_dpfl.models:ali_cnn_28", "../../experiments.ali_dpfl.models:fedavg_cnn"
SHARDS = "{shards: 400, per_device: 40}"  # of the first version
DEFAULTS = ("training.sampling_rate=0.05", "method.privacy.noise_multiplier=2.0")
SWEEPS = {
    "all": (),
    "first-version-model": (f'sweep.{KEY}=[[first-version-model, "{FEDAVG_CNN}", {SHARDS}, 75, null, standard, 0.5]]',),
    "defaults": (*DEFAULTS, f'sweep.{KEY}=[[small-defaults, "{ALI_CNN}", {ALL}]]'),
    "program-defaults": (*DEFAULTS, f'sweep.{KEY}=[[program-defaults, "{FEDAVG_CNN}", {ALL}]]'),
}
# The program's reading where the schedule has a choice: all five differences at epsilon 1.75, R_c = 177 of R_s = 158.
ADAPTIVE, TAUS = "program-1.75-ali-dpfl", (1, 2, 3, 5, 10)
SCHEDULES = {
    ADAPTIVE: ('{name: "../../experiments.ali_dpfl:AliDpfl"}', 1),
    **{f"program-1.75-tau-{tau}": ("fixed", tau) for tau in TAUS},
}
SWEEPS["program-1.75"] = (
    "privacy.epsilon=1.75",
    f'model="{FEDAVG_CNN}"',
    "data={name: fashion-mnist, partition: {dirichlet: 1.0}, normalize: symmetric, test: 0.25}",
    "method.privacy.normalize=64",
    'sweep={seed: [1, 2, 3, 4, 5], "name, method.schedule, training.local_steps": ['
    + ", ".join(f"[{name}, {schedule}, {tau}]" for name, (schedule, tau) in SCHEDULES.items())
    + "]}",
)
PAPER = 80.17
PAPER_175 = {ADAPTIVE: 82.02, "program-1.75-tau-1": 81.94, "program-1.75-tau-10": 76.32}  # what is printed
SINGLE = ("partition", "divisor", "tests", "inputs", "model")
UNSTATED = ("steps", "first-version-steps", "program-steps")
READINGS = {
    "text": "as the second version's text has it",
    "partition": "Dirichlet(1) instead of Dirichlet(0.05)",
    "divisor": "sums divided by 64 instead of the records drawn",
    "tests": "each device is tested on a quarter of its own records",
    "inputs": "inputs from -1 to 1 instead of standardised",
    "model": "`fedavg-cnn` (582,026 parameters) instead of `ali-cnn-28`",
    "program": "all five: what the program does",
    "small-defaults": "all five but the model, q = 0.05 and sigma = 2.0, the program's defaults",
    "program-defaults": "all five, q = 0.05 and sigma = 2.0",
    "first-version": "as the first version's text has it: 400 shards, 40 to each device, sums divided by 75",
    "first-version-model": "as the first version's text has it, with the program's model: the text names none",
    "steps": "the second version's text with ten times the step size",
    "first-version-steps": "the first version's text with ten times the step size",
    "program-steps": "all five with ten times the step size",
}


def stored(file: Path) -> pd.DataFrame:
    """The runs of the table that is checked in.

    Raises:
        UserError: a line that is none of such a table; there is no run of the text's reading to compare with.
    """
    rows = []
    for run in table_runs(file, ["reading"]):
        reading = run.point["reading"]
        if reading not in (*READINGS, *SCHEDULES):
            text = f"expected one of {', '.join((*READINGS, *SCHEDULES))}, found {reading}"
            raise UserError(text, run.where, "reading")
        rows.append({"reading": reading, "seed": run.point["seed"], "accuracy": run.accuracy})
    if not any(row["reading"] == "text" for row in rows):
        raise UserError("expected runs of the reading text, with which others are compared; found none", str(file))
    return pd.DataFrame(rows)


def collected(out: Path) -> pd.DataFrame:
    """A row for each finished run: what was read how, seed, accuracy at the end, local steps in all."""
    rows = []
    for place in sorted(out.glob("*/runs/*")):
        run = h2fdp.Run(place)
        if run.summary.get("state") != "done":
            continue
        last = run.metrics.iloc[-1]
        config = yaml.safe_load((place / "config.yaml").read_text())
        rows.append((config["name"], config["seed"], last["accuracy"], int(last["slot"])))
    return pd.DataFrame(rows, columns=["reading", "seed", "accuracy", "steps"]).assign(data_set="fashion-mnist")


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


def schedules_table(runs: pd.DataFrame) -> Iterator[str]:
    """The program's reading where the schedule has a choice: each schedule, and how far ALI-DPFL is above it."""
    by_seed = runs.pivot(index="seed", columns="reading", values="accuracy") * 100
    if ADAPTIVE not in by_seed:
        return
    yield "| all five differences, epsilon 1.75 | accuracy, % | seeds | ALI-DPFL is above by | the paper's |"
    yield "|---|---|---|---|---|"
    for name, (_, tau) in SCHEDULES.items():
        if name in by_seed:
            own, lead = by_seed[name].dropna(), (by_seed[ADAPTIVE] - by_seed[name]).dropna()
            word = "`ali-dpfl`" if name == ADAPTIVE else f"tau = {tau}"
            above = "" if name == ADAPTIVE else _with_interval(lead.to_numpy(), "+")
            paper = f"{PAPER_175[name]:.2f}" if name in PAPER_175 else ""
            yield f"| {word} | {_with_interval(own.to_numpy())} | {len(own)} | {above} | {paper} |"


def conclusions(runs: pd.DataFrame) -> Iterator[str]:
    """What the table says, in words that follow from its numbers."""
    by_seed = runs.pivot(index="seed", columns="reading", values="accuracy") * 100
    gains = {each: (by_seed[each] - by_seed["text"]).dropna() for each in SINGLE if each in by_seed}
    gains = {each: gain for each, gain in gains.items() if len(gain)}
    if gains:
        best = max(gains, key=lambda each: gains[each].mean())
        gain = f"{_with_interval(gains[best].to_numpy(), '+')} points, seeds: {len(gains[best])}"
        yield f"- The best of the five differences by itself ({gain}): {READINGS[best]}."
        shown = [READINGS[each] for each, own in gains.items() if _lowest(own) > 0]
        yield f"- Shown to help by itself: {'; '.join(shown) or 'none of the five'}."
    means = by_seed.mean()
    stated = means.drop([each for each in UNSTATED if each in means])
    best, most = str(stated.idxmax()), stated.max()
    if most < PAPER:
        yield f"- No reading of a paper or of the program reaches 80.17 %. The best has {most:.1f} %: {READINGS[best]}."
    else:
        yield f"- {most:.1f} % is reached by: {READINGS[best]}."
    longer = [each for each in UNSTATED if each in means]
    if longer:
        words = "; ".join(f"{means[each]:.1f} %: {READINGS[each]}" for each in longer)
        yield f"- Ten times the step size, which nobody states: {words}."


def _lowest(gain: pd.Series) -> float:
    return float(means_with_intervals(gain.to_numpy()[:, None]).low[0])


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
    parser.add_argument("--page", action="store_true", help="write the page from differences.csv")
    parser.add_argument("--sweeps", nargs="*", default=list(SWEEPS), choices=list(SWEEPS))
    asked = parser.parse_args()
    if asked.page:
        runs = stored(FILE.with_suffix(".csv"))
        parts = [*table_of(runs), "", *conclusions(runs), "", *schedules_table(runs), ""]
        made = [f"Made by {each}.\n" for each in makers_of(FILE.with_suffix(".csv"))]
        PAGE.write_text(between_markers(PAGE.read_text(), SECTION, (*parts, *made)))
        return
    for name in asked.sweeps:
        done = h2fdp.sweep(FILE, SWEEPS[name], asked.out / name, data_root=asked.data_root, jobs=asked.jobs)
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        write(asked.out)
    print("\n".join(table_of(write(asked.out))))


def write(out: Path) -> pd.DataFrame:
    """The table of the runs that are finished."""
    found = collected(out)
    made_by = f"# `python -m experiments.ali_dpfl.differences --data-root DIR` at {commit_of(FILE.parent)}\n"
    (out / FILE.with_suffix(".csv").name).write_text(made_by + found.to_csv(index=False, float_format="%.6g"))
    return found


if __name__ == "__main__":
    told(main)
