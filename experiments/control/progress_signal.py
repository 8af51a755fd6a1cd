"""Is progress to be seen in what a private run releases anyway?

    python -m experiments.control.progress_signal --data-root DIR [--seeds 3] [--intervals 40] [--out sweeps/progress]

The cloud holds the average U_k of what subnets accumulated in interval k, and knows the variance v_k of the noise on
each of its M coordinates. Three statistics of the length of what is below the noise:

- alone: ||U_k||^2 - M v_k, which noise alone spreads by sqrt(2 M) v_k;
- neighbours: <U_k, U_{k-1}>, whose noises are independent; noise alone spreads it by sqrt(M v_k v_{k-1});
- five together: ||U_{k-4} + .. + U_k||^2 - M (v_{k-4} + .. + v_k), by sqrt(2 M) times that sum.

Each is divided by its spread: a number above 3 is a signal, noise alone is above it once in 740. Beside them stands
what really happened: by how much the loss on the test records fell. To first order a loss falls by the squared length
of d, the sum of five updates without noise, over the sum of their eta_k tau_k: the third statistic in that unit, and
its spread, are what the releases say of the fall. `OUT/progress-signal.csv` has a row for each
interval; as `progress-signal.csv` of this folder it is what `--page` writes the table of README.md from.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from experiments.programs import between_markers
from experiments.reproduction.conduct import commit_of
from h2fdp import Experiment
from h2fdp.schedules import Decision, OwnSchedule
from h2fdp.schedules.aggregation_times import decayed

HERE = Path(__file__).parent
FILE, RUNS, PAGE = HERE / "controlled.yaml", HERE / "progress-signal.csv", HERE / "README.md"
TOGETHER = 5
NOISES = {"in each step": "{name: hierarchical, noise: steps}", "on updates": "hierarchical"}
STATISTICS = {"alone": "one", "neighbours": "two", "together": "five"}


class Listener(OwnSchedule):
    """The fixed schedule, which writes down what it is shown: files `k.npz` with U_k (M,), v_k and eta_k tau_k."""

    foreseen = True
    reads_releases = False
    observes = True

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def choose(self, interval: int, slot: int) -> Decision:
        stated = self.context
        step_size = decayed(stated.step_size, stated.step_decay, interval, stated.intervals)
        return Decision(stated.local_steps, step_size, stated.participation)

    def observe(self, seen: Any) -> None:
        uploads = np.stack([upload.numpy().astype(np.float64) for upload in seen.uploads])
        variance = float(seen.weights**2 @ seen.noise_variance)
        way = seen.step_size * float(seen.weights @ seen.mean_steps)
        np.savez(self._folder / f"{seen.interval}.npz", update=seen.weights @ uploads, variance=variance, way=way)


def signals(updates: np.ndarray, variances: np.ndarray) -> dict[str, np.ndarray]:
    """(K,) each statistic of updates (K, M) under noise of variances (K,), in its spread under noise alone.

    NaN where there are too few intervals before, or no noise.

    >>> found = signals(np.array([[3.0, 0.0], [0.0, 3.0]]), np.array([1.0, 4.0]))
    >>> {name: values.round(3).tolist() for name, values in found.items() if name != "together"}
    {'alone': [3.5, 0.125], 'neighbours': [nan, 0.0]}
    """
    count, size = updates.shape
    found = {name: np.full(count, np.nan) for name in STATISTICS}
    with np.errstate(divide="ignore", invalid="ignore"):
        found["alone"] = ((updates**2).sum(axis=1) - size * variances) / (np.sqrt(2 * size) * variances)
        products = (updates[1:] * updates[:-1]).sum(axis=1)
        found["neighbours"][1:] = products / np.sqrt(size * variances[1:] * variances[:-1])
        for last in range(TOGETHER - 1, count):
            window = slice(last - TOGETHER + 1, last + 1)
            noise = variances[window].sum()
            excess = (updates[window].sum(axis=0) ** 2).sum() - size * noise
            found["together"][last] = excess / (np.sqrt(2 * size) * noise)
    return {name: np.where(np.isfinite(values), values, np.nan) for name, values in found.items()}


def run(noise: str, epsilon: float, seed: int, intervals: int, data_root: Path | None) -> pd.DataFrame:
    """A row for each interval of a run."""
    with tempfile.TemporaryDirectory() as folder:
        heard = Path(folder) / "heard"
        heard.mkdir()
        schedule = f"{{name: 'experiments.control.progress_signal:Listener', folder: '{heard}'}}"
        settings = (
            f"method={{extends: h2fdp, privacy: {NOISES[noise]}, schedule: {schedule}}}",
            f"training.intervals={intervals}",
            "training.step_decay=sqrt",
            f"privacy.epsilon={epsilon}",
        )
        metrics = Experiment.from_file(FILE, settings, seed).run(Path(folder) / "run", data_root=data_root).metrics
        held = [np.load(heard / f"{interval}.npz") for interval in range(len(metrics))]
        updates = np.stack([each["update"] for each in held])
        variances = np.array([float(each["variance"]) for each in held])
        ways = np.array([float(each["way"]) for each in held])
    found = signals(updates, variances)
    rows = pd.DataFrame({name: values.round(4) for name, values in found.items()})
    sums = [np.convolve(each, np.ones(TOGETHER))[: len(each)] for each in (variances, ways)]
    rows["spread"] = np.sqrt(2 * updates.shape[1]) * sums[0] / sums[1]  # of the fall that five together tell
    loss, accuracy = metrics["loss"].to_numpy(), metrics["accuracy"].to_numpy()
    rows.insert(0, "interval", np.arange(len(rows)))
    rows.loc[: TOGETHER - 2, "spread"] = np.nan
    for name, value in (("seed", seed), ("epsilon", epsilon), ("noise", noise)):
        rows.insert(0, name, value)
    return rows.assign(spread=rows["spread"].round(6), loss=loss.round(5), accuracy=accuracy)


def correlations(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Of each run: the rank correlation of a statistic with the fall of the loss over the intervals it is about."""
    width = {"alone": 1, "neighbours": 2, "together": TOGETHER}[name]
    found = []
    for _, own in rows.groupby("seed"):
        fall = -own["loss"].diff(width)
        there = fall.notna() & own[name].notna()
        found.append(stats.spearmanr(own.loc[there, name], fall[there]).statistic)
    return np.array(found)


def told(rows: pd.DataFrame, last: int) -> str:
    """By how much the loss fell in the five intervals up to this one, and what releases say: means over seeds."""
    at = rows[rows["interval"] == last]
    before = rows[rows["interval"] == last - TOGETHER]
    fall = before["loss"].mean() - at["loss"].mean()
    return f"{fall:.3f}; {(at['together'] * at['spread']).mean():.3f} ± {at['spread'].mean():.3f}"


def table(rows: pd.DataFrame) -> str:
    """A line for each noise and epsilon: intervals with a signal, and how its size goes with the fall of the loss."""
    words = STATISTICS.values()
    heads = [f"signal: {word}" for word in words] + [f"correlation: {word}" for word in words]
    heads += ["2nd to 6th: fall; told", "last five: fall; told"]
    lines = ["| noise | epsilon | accuracy | " + " | ".join(heads) + " |", "|---|---|---|" + "---|" * len(heads)]
    for (noise, epsilon), own in rows.groupby(["noise", "epsilon"]):
        final = own[own["interval"] == own["interval"].max()]["accuracy"]
        cells = [noise, f"{epsilon:g}", f"{100 * final.mean():.1f} %"]
        for name in STATISTICS:
            cells.append(f"{100 * (own[name].dropna() > 3).mean():.0f} %")
        for name in STATISTICS:
            each = correlations(own, name)
            cells.append(f"{each.mean():.2f} ({each.min():.2f} to {each.max():.2f})")
        cells += [told(own, TOGETHER), told(own, own["interval"].max())]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, write the rows, and print the table; or write the page's from the rows that are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--intervals", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("sweeps/progress"))
    parser.add_argument("--page", action="store_true", help="write the table of README.md, without runs")
    asked = parser.parse_args()
    if asked.page:
        kept = pd.read_csv(RUNS, comment="#")
        section = "python -m experiments.control.progress_signal --page"
        PAGE.write_text(between_markers(PAGE.read_text(), section, table(kept).splitlines()))
        return
    cases = product(NOISES, (1.0, 4.0, 10.0), range(1, asked.seeds + 1))
    rows = pd.concat([run(*case, asked.intervals, asked.data_root) for case in cases])
    asked.out.mkdir(parents=True, exist_ok=True)
    made_by = f"# `python -m experiments.control.progress_signal --data-root DIR` at {commit_of(HERE)}\n"
    (asked.out / RUNS.name).write_text(made_by + rows.to_csv(index=False))
    print(table(rows))


if __name__ == "__main__":
    main()
