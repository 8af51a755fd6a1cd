"""The frontier: test accuracy against accounted epsilon, for five mechanisms and three probabilities of trust.

    python -m experiments.frontier.runs --data-root DIR [--data-set fashion-mnist] [--model softmax] [--out OUT]

For each mechanism of `mechanisms.py`:

1. Search: at every epsilon a few settings, with no edge server trusted and with all, one seed, on a validation
   split of 10 % of the training records. The best validation accuracy chooses the setting. With half of the servers
   trusted it is that of the two chosen ones which has the better mean of both ends.
2. Final runs of what was chosen, without the split: five seeds, none of them the search's; test accuracy.

Both are sweeps in OUT: the same command continues after an interruption. OUT has the runs in `frontier.csv` and
the trials in `frontier-search.csv`, of all data sets that were run; `python -m experiments.frontier.page OUT` draws the
picture and writes README.md. About an hour on two cores for a data set. `--only`, `--epsilons`, `--networks` and
`--seeds` (the first so many) make a part of it; the whole, later, keeps the runs of the part.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import h2fdp
from experiments.frontier.mechanisms import EPSILONS, MECHANISMS, MODELS, PLAIN, TRUST, Mechanism, Trial, part_of
from experiments.reproduction.conduct import commit_of
from h2fdp.records.atomic import write_text

FILE = Path(__file__).parent / "frontier.yaml"
RUNS, TRIALS = "frontier.csv", "frontier-search.csv"
SEARCH_SEED, SEEDS = 101, (1, 2, 3, 4, 5)
VALIDATION = 0.1
HALF = 0.5
_DATA = "data={{name: {}, partition: {{labels_per_device: 3}}}}"
COLUMNS = ("data_set", "mechanism", "trust", "epsilon", "seed", "accuracy", "validation_accuracy", "accounted",
           "energy_j", "clock_s", "delay_s", "setting")  # fmt: skip
Point = tuple[float | str, float, Trial]  # trust, epsilon, setting


def flow(value: Any) -> str:
    """A value as `--set` and the tables have it."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


def grid_of(mechanism: Mechanism, points: Sequence[Point], seeds: Sequence[int]) -> list[str]:
    """The `--set` options of a sweep over these points."""
    keys = list(mechanism.keys)
    keys += ["privacy.epsilon"] if mechanism.private else []
    keys += ["topology.trust.probability"] if mechanism.by_trust else []
    rows = [
        [*trial, *([epsilon] if mechanism.private else []), *([trust] if mechanism.by_trust else [])]
        for trust, epsilon, trial in points
    ]
    return [f"sweep.seed={flow(list(seeds))}", f"sweep.{', '.join(keys)}={flow(rows)}"]


def best(trials: pd.DataFrame, trust: float | str, epsilon: float) -> str:
    """The setting with the highest validation accuracy at a point, of equal ones the first that was tried.

    With half of the edge servers trusted it is that of the settings which are best at either end whose mean of both
    ends is highest.
    """
    there = trials[trials["epsilon"] == epsilon]
    if trust == HALF:
        ends = [best(trials, end, epsilon) for end in (0.0, 1.0)]
        there = there[there["setting"].isin(ends)]
    else:
        there = there[there["trust"] == trust]
    means = there.groupby("setting", sort=False)["validation_accuracy"].mean()
    return str(means.idxmax())


class Study:
    """The sweeps of one mechanism on one data set.

    Args:
        settings: further changes, for all runs: a model, fewer devices.
        seeds: of the final runs.
        label: of the tables and the folder; by default the data set.
        options: of `h2fdp.sweep`.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        data_set: str,
        out: Path,
        settings: Sequence[str] = (),
        seeds: Sequence[int] = SEEDS,
        label: str | None = None,
        **options: Any,
    ) -> None:
        self._of, self._seeds, self._label = mechanism, seeds, label or data_set
        self._out, self._options = out / self._label / mechanism.name, options
        # The data set that was called so is CIFAR-10 under a model on its public features.
        featured = data_set == "cifar10-features"
        data = _DATA.format("cifar10" if featured else data_set)
        model = ["model={name: public-features, size: 256}"] if featured else []
        self._settings = [*mechanism.settings, data, *model, *settings]

    def search(self) -> pd.DataFrame:
        """All trials, in the networks at both ends of trust."""
        points: list[Point] = [
            (trust, epsilon, trial)
            for epsilon, trials in self._of.trials.items()
            for trust in self._of.networks
            if trust != HALF
            for trial in trials
        ]
        return self._swept("search", points, (SEARCH_SEED,), [f"data.validation={VALIDATION}"])

    def final(self, trials: pd.DataFrame) -> pd.DataFrame:
        """The runs of the settings that the search chose, under fresh seeds."""
        points: list[Point] = [
            (trust, epsilon, trial)
            for epsilon, tried in self._of.trials.items()
            for trust in self._of.networks
            for trial in tried
            if len(tried) == 1 or self._word(trial) == best(trials, trust, epsilon)
        ]
        return self._swept("final", points, self._seeds, [])

    def _swept(self, stage: str, points: Sequence[Point], seeds: Sequence[int], settings: list[str]) -> pd.DataFrame:
        grid = grid_of(self._of, points, seeds)
        done = h2fdp.sweep(FILE, [*self._settings, *settings, *grid], self._out / stage, **self._options)
        assert not done.failures, f"runs failed: see {done.directory / 'failures'}"
        last = done.table.sort_values("interval").groupby("run").last()
        return pd.DataFrame([self._row(last.loc[name], run) for name, run in done.runs.items()], columns=list(COLUMNS))

    def _row(self, last: pd.Series[Any], run: h2fdp.Run) -> dict[str, Any]:
        of = self._of
        worst = run.summary["privacy"]["worst"] if of.private else {}
        return {
            "data_set": self._label,
            "mechanism": of.name,
            "trust": float(last["topology.trust.probability"]) if of.by_trust else of.networks[0],
            "epsilon": float(last["privacy.epsilon"]) if of.private else PLAIN,
            "seed": int(last["seed"]),
            "accuracy": last["accuracy"],
            "validation_accuracy": last.get("validation_accuracy"),
            "accounted": max((min(each["rdp"], each["pld"]) for each in worst.values()), default=PLAIN),
            **{cost: last[cost] for cost in ("energy_j", "clock_s", "delay_s")},
            "setting": self._word(tuple(last[key] for key in of.keys)),
        }

    def _word(self, trial: Trial) -> str:
        pairs = zip(self._of.keys, trial, strict=True)
        return "; ".join(f"{key.rpartition('.')[2]} {self._plain(value)}" for key, value in pairs) or "as chosen"

    @staticmethod
    def _plain(value: Any) -> str:
        """Equal words for a value as it is tried and as a table of a sweep has it."""
        if isinstance(value, str | dict):
            return flow(yaml.safe_load(value) if isinstance(value, str) else value)
        return f"{float(value):g}"


def trust_word(trust: Any) -> str:
    """p_c in a table, in equal words whether it was a number or a text before.

    >>> trust_word(0.0), trust_word("0.5"), trust_word("secure-sum")
    ('0', '0.5', 'secure-sum')
    """
    try:
        return f"{float(trust):g}"
    except ValueError:
        return str(trust)


def _points(rows: pd.DataFrame) -> pd.MultiIndex:
    """The point of every row."""
    trust = rows["trust"].map(trust_word)
    return pd.MultiIndex.from_arrays([rows["data_set"], rows["mechanism"], trust, rows["epsilon"]])


def stored(file: Path, rows: pd.DataFrame, made_by: str) -> None:
    """Put rows into a table, in place of those of the same points; its comments say what made it.

    A point is a data set, a mechanism, a probability of trust and an epsilon.
    """
    makers = {f"# {made_by}": None}
    if file.is_file():
        makers = dict.fromkeys(line for line in file.read_text().splitlines() if line.startswith("#")) | makers
        old = pd.read_csv(file, comment="#", dtype={"trust": str})
        replaced = _points(old).isin(_points(rows))
        rows = pd.concat([old[~replaced], rows], ignore_index=True)
    rows = rows.assign(trust=rows["trust"].map(trust_word))
    write_text(file, "\n".join(makers) + "\n" + rows.to_csv(index=False, float_format="%.6g"))


def without_places(options: Sequence[str]) -> str:
    """The options of a command that matter to its results: not the folders.

    >>> without_places(["--data-root", "data", "--data-set", "mnist", "--out=x", "--seeds", "3"])
    '--data-set mnist --seeds 3'
    """
    kept: list[str] = []
    skipping = False
    for option in options:
        name = option.partition("=")[0]
        place = name in ("--data-root", "--out", "--jobs")
        if not skipping and not place:
            kept.append(option)
        skipping = place and name == option
    return shlex.join(kept)


def main() -> None:
    """Run what is left, mechanism by mechanism."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--data-set", default="fashion-mnist")
    parser.add_argument("--model", choices=tuple(MODELS), default="softmax")
    parser.add_argument("--out", type=Path, default=Path("sweeps/frontier"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[each.name for each in MECHANISMS])
    parser.add_argument("--epsilons", type=float, nargs="+", choices=EPSILONS, default=EPSILONS)
    parser.add_argument("--networks", type=float, nargs="+", choices=TRUST, default=TRUST, help="p_c, where it matters")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of the final runs'")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs")
    asked = parser.parse_args()
    label = asked.data_set if asked.model == "softmax" else f"{asked.data_set}-{asked.model}"
    command = f"python -m experiments.frontier.runs {without_places(sys.argv[1:])}"
    made_by = f"`{command}` at {commit_of(FILE.parent)}"
    options = {"data_root": asked.data_root, "jobs": asked.jobs}
    for mechanism in MODELS[asked.model]:
        if asked.only is None or mechanism.name in asked.only:
            mechanism = part_of(mechanism, asked.epsilons, asked.networks)
            study = Study(mechanism, asked.data_set, asked.out, asked.set, SEEDS[: asked.seeds], label, **options)
            trials = study.search() if mechanism.keys else pd.DataFrame()
            if mechanism.keys:
                stored(asked.out / TRIALS, trials, made_by)
            stored(asked.out / RUNS, study.final(trials), made_by)
            print(f"{mechanism.name}: done", flush=True)


if __name__ == "__main__":
    main()
