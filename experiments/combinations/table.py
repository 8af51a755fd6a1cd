"""Which features go together: all pairs, each run, killed and resumed, or refused at a key.

    python -m experiments.combinations.table --jobs 2      # pairs that are not stored yet; all take twelve minutes
    python -m experiments.combinations.table               # the page again from the stored pairs

Writes `pairs.csv` and the table of README.md. A pair that is neither right nor refused ends the program with its
traceback, and names the pair.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from experiments.combinations.features import FEATURES, pairs
from experiments.combinations.trial import APART, REFUSED, Outcome, outcome
from experiments.programs import between_markers

CSV, PAGE = Path(__file__).with_name("pairs.csv"), Path(__file__).with_name("README.md")
COMMAND = "python -m experiments.combinations.table"
COLUMNS = ("feature", "other", "outcome", "keys")


def stored() -> dict[tuple[str, str], Outcome]:
    """The outcome of each pair of features that has a row, in the order of `pairs`."""
    if not CSV.exists():
        return {}
    with CSV.open(newline="") as file:
        rows = {(row["feature"], row["other"]): (row["outcome"], row["keys"]) for row in csv.DictReader(file)}
    return {pair: rows[pair] for pair in pairs() if pair in rows}


def tried(pair: tuple[str, str]) -> Outcome:
    """The outcome of a pair, in a folder that is removed."""
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            return outcome(pair, Path(folder))
    except Exception as error:
        error.add_note(f"the pair is {pair}")
        raise


def table() -> Iterator[str]:
    """A line for each feature: with how many others it goes, and which are refused, by their keys."""
    found, refusals, right = stored(), defaultdict(lambda: defaultdict(list)), Counter[str]()
    for pair, (word, keys) in found.items():
        for one, other in (pair, pair[::-1]):
            if word == REFUSED:
                refusals[one][keys].append(other)
            right[one] += word not in (APART, REFUSED)
    yield "| feature | goes with | is refused with |"
    yield "|---|---|---|"
    for name in FEATURES:
        told = (f"{', '.join(others)} (`{'`, `'.join(keys.split())}`)" for keys, others in refusals[name].items())
        yield f"| {name} | {right[name]} | {'; '.join(told)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=0, help="processes that run pairs; 0 runs none")
    jobs, found = parser.parse_args().jobs, stored()
    if jobs:
        left = [pair for pair in pairs() if pair not in found]
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            found |= dict(zip(left, pool.map(tried, left, chunksize=8), strict=True))
        with CSV.open("w", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerows([COLUMNS, *((*pair, *found[pair]) for pair in pairs())])
    PAGE.write_text(between_markers(PAGE.read_text(encoding="utf-8"), COMMAND, table()), encoding="utf-8")


if __name__ == "__main__":
    main()
