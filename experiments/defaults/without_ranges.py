"""What a file and an epsilon reach, and stated ranges, no privacy and a search; the files are those of `records.py`.

    python -m experiments.defaults.without_ranges --out runs/without-ranges --seeds 5         # what is not stored yet
    python -m experiments.defaults.without_ranges --out runs/without-ranges --seeds 5 --tune 20
    python -m experiments.defaults.without_ranges                                             # the tables again

Appends a row for each run to `without_ranges.csv`, seed by seed, and writes README.md's tables. Texts are vectors of
tokens where `h2fdp[text]` is installed, else hashes: run it with and without. A search is judged on a tenth of the
training records, its best setting by test records under the seeds; no epsilon counts what a search learns.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import h2fdp
from experiments.defaults.records import FILES
from experiments.frontier.page import Mean
from experiments.programs import append_row, between_markers

CSV, PAGE = Path(__file__).with_name("without_ranges.csv"), Path(__file__).with_name("README.md")
COMMAND = "python -m experiments.defaults.without_ranges"
COLUMNS = ("file", "way", "trusted", "epsilon", "seed", "score", "joules")
EPSILONS = (2.0, 8.0, 0.5)
PUBLIC, DEFAULT, STATED, TUNED, PLAIN = "public test", "default", "stated", "tuned", "no privacy"
WAYS = (DEFAULT, STATED, PUBLIC)
Point = tuple[str, str, str, float, int]  # the first five columns


def row_name(file: str) -> str:
    """The file, and for texts what stands for them."""
    source = "tokens" if find_spec("wordllama") else "hashes"
    return f"{file}, {source}" if FILES[file].text else file


def document(file: str, path: Path, way: str, trusted: bool, epsilon: float) -> dict[str, Any]:
    """An experiment as a user writes it. Test records are devices' own, but for the way `public test`."""
    what = FILES[file]
    below = {"count": what.devices, "distance_m": {"uniform": [10, 100]}}
    edges = [{"name": "edge-{i}", "repeat": what.edges, "trusted": trusted, "devices": below}]
    data = what.data | {"path": str(path)} | (what.stated if way == STATED else {})
    data |= {} if way == PUBLIC else {"test": 0.2}
    private = {} if way == PLAIN else {"privacy": {"epsilon": epsilon, "noise_key": "seed"}}
    method = "hfl" if way == PLAIN else "h2fdp"
    given = {"topology": {"edges": edges}, "data": data, "method": method, **private}
    return given | {"training": {"extends": "auto", "evaluate_every": 1000}, "tracking": {"tensorboard": False}}


def points(seeds: int, tune: int) -> Iterator[Point]:
    """All runs, so that the first seeds are whole first, and searches come last."""
    for seed in range(1, seeds + 1):
        for epsilon, trusted, file, way in itertools.product(EPSILONS, ("none", "all"), FILES, WAYS):
            if way != STATED or FILES[file].stated:
                yield file, way, trusted, epsilon, seed
        for file in FILES:
            yield file, PLAIN, "", float("inf"), seed
    if tune:
        for epsilon, file, trusted, seed in itertools.product(EPSILONS, FILES, ("none", "all"), range(1, seeds + 1)):
            yield file, TUNED, trusted, epsilon, seed


def tuned(file: str, path: Path, trusted: bool, epsilon: float, trials: int, out: Path) -> Path:
    """The file with the best of so many settings around those that are chosen."""
    given = document(file, path, DEFAULT, trusted, epsilon)
    chosen = h2fdp.Experiment(**given, seed=101).prepare().config.training
    assert chosen.largest_norm is not None, "gradients are clipped under noise"
    spans = {"training.step_size": (chosen.step_size, 10), "training.clip_norm": (chosen.largest_norm, 3)}
    ranges: dict[str, Any] = {key: {"log": [value / wide, value * wide]} for key, (value, wide) in spans.items()}
    ranges["training.intervals"] = {"log": [10, 60]}
    given |= {"name": "search", "tune": {"ranges": ranges, "trials": trials, "privacy": "ignore"}}
    (written := out / "search.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    return h2fdp.tune(written, out=out / "search", jobs=1, overwrite=True).file


def measured(point: Point, path: Path, best: Path | None, out: Path) -> dict[str, Any]:
    """The row of a run."""
    file, way, trusted, epsilon, seed = point
    if best is not None:
        experiment = h2fdp.Experiment.from_file(best, seed=seed)
    else:
        experiment = h2fdp.Experiment(**document(file, path, way, trusted == "all", epsilon), seed=seed)
    summary = experiment.run(out / "run", overwrite=True, progress=False).summary
    own = (row_name(file), way, trusted, f"{epsilon:g}", seed)
    score = round(float(summary[FILES[file].measure]), 4)
    return dict(zip(COLUMNS, (*own, score, round(float(summary["energy_j"]), 3)), strict=True))


def run_what_is_left(out: Path, seeds: int, tune: int, only: list[str]) -> None:
    """A row in the table for each point that has none."""
    out.mkdir(parents=True, exist_ok=True)
    paths = {file: FILES[file].at(out) for file in only}
    known = set()
    if CSV.exists():
        stored = pd.read_csv(CSV, keep_default_na=False)
        known = set(zip(*(stored[key] for key in COLUMNS[:5]), strict=True))
    found: tuple[Any, Path] | None = None
    for point in points(seeds, tune):
        file, way, trusted, epsilon, seed = point
        if file not in only or (row_name(file), way, trusted, epsilon, seed) in known:
            continue
        searched = (file, trusted, epsilon)
        if way == TUNED and (found is None or found[0] != searched):
            found = searched, tuned(file, paths[file], trusted == "all", epsilon, tune, out)
        best = found[1] if way == TUNED and found is not None else None
        row = measured(point, paths[file], best, out)
        append_row(CSV, row)


def cell(rows: pd.DataFrame, measure: str) -> str:
    """Mean and half of the 95 % interval, in per cent, or R2 times 100."""
    return str(Mean.of((100 * rows["score"]).tolist())) if len(rows) else ""


def table(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each file and trust, and below them what the ways are."""
    epsilons = sorted(EPSILONS)
    yield "| file | trusted | way | " + " | ".join(f"epsilon {each:g}" for each in epsilons) + " | no privacy |"
    yield "|---" * (len(epsilons) + 4) + "|"
    for file in rows["file"].unique():
        own = rows[rows["file"] == file]
        plain = cell(own[own["way"] == PLAIN], "")
        for trusted, way in itertools.product(("none", "all"), (DEFAULT, STATED, PUBLIC, TUNED)):
            at = own[(own["trusted"] == trusted) & (own["way"] == way)]
            if len(at):
                cells = [cell(at[at["epsilon"] == each], "") for each in epsilons]
                yield f"| {file} | {trusted} | {way} | " + " | ".join(cells) + f" | {plain} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where files and the last run are left; without it nothing runs")
    parser.add_argument("--only", nargs="*", choices=list(FILES), default=list(FILES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tune", type=int, default=0, metavar="TRIALS")
    asked = parser.parse_args()
    if asked.out is not None:
        run_what_is_left(asked.out, asked.seeds, asked.tune, asked.only)
    rows = pd.read_csv(CSV, keep_default_na=False)
    PAGE.write_text(between_markers(PAGE.read_text(encoding="utf-8"), COMMAND, table(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
