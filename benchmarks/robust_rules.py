"""Our robust rules against Flower's on the same vectors: `python -m benchmarks.robust_rules`.

Sets of uploads of which some lie far off, or close by in one direction; Flower computes in an environment of its own.
Of each rule the largest difference of a coordinate, by the largest number in its set, and how often all bits agree.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.rivals.environments import REQUIREMENTS, python_of
from h2fdp.algorithms.robust import Krum, Median, MultiKrum, TrimmedMean

ROOT = Path(__file__).parents[1]
SHAPES = ((5, 1, 1000), (10, 2, 1000), (11, 4, 100), (20, 6, 3000), (50, 10, 300))  # uploads, liars, coordinates


def drawn(rng: np.random.Generator, count: int, liars: int, size: int) -> NDArray[np.float32]:
    """(n, M) uploads around one direction, of which the first few are lies: long ones, turned ones, or near ones."""
    honest = rng.standard_normal(size) + rng.exponential() * rng.standard_normal((count, size))
    lies = {
        "long": 100.0 * honest[:liars],
        "turned": -honest[:liars],
        "near": honest[:liars] - 1.5 * honest.std(axis=0),
    }
    honest[:liars] = lies[str(rng.choice(list(lies)))]
    return rng.permutation(honest).astype(np.float32)


def ours(sets: NDArray[np.float32], left_out: int) -> dict[str, NDArray[np.float32]]:
    """Rule -> (count, M) results."""
    count = sets.shape[1]
    share, equal = left_out / count, np.full(count, 1 / count)
    rules = (Median(), TrimmedMean(trim=share), Krum(liars=share), MultiKrum(liars=share))
    return {
        rule.name: np.stack([rule.combine(list(torch.from_numpy(each)), equal).numpy() for each in sets])
        for rule in rules
    }


def flowers(sets: NDArray[np.float32], left_out: int, python: str, folder: Path) -> dict[str, NDArray[np.float32]]:
    """The same by Flower."""
    given, found = folder / "given.npz", folder / "found.npz"
    np.savez(given, sets=sets, left_out=left_out)
    variables = os.environ | {"PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(folder)}
    command = [python, "-m", "benchmarks.rivals.flower_rules", str(given), str(found)]
    subprocess.run(command, env=variables, cwd=folder, check=True)
    with np.load(found) as held:
        return dict(held)


def compared(each: int, python: str, folder: Path) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Rule and (each,) largest differences, by the largest number of a set, for every shape.

    Args:
        each: sets of every shape.
    """
    for number, (count, liars, size) in enumerate(SHAPES):
        rng = np.random.default_rng(number)
        sets = np.stack([drawn(rng, count, liars, size) for _ in range(each)])
        others, largest = flowers(sets, liars, python, folder), np.abs(sets).max(axis=(1, 2)).astype(float)
        for rule, results in ours(sets, liars).items():
            yield rule, np.abs(results.astype(float) - others[rule]).max(axis=1) / largest


def main() -> None:
    """Read the command line, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="how many, in five shapes")
    envs = Path(tempfile.gettempdir()) / "h2fdp-rivals"
    parser.add_argument("--envs", type=Path, default=envs, help=f"folder of the environments (default {envs})")
    asked, found = parser.parse_args(), dict[str, list[NDArray[np.float64]]]()
    python = python_of("flower_app", asked.envs.absolute())
    with tempfile.TemporaryDirectory(prefix="h2fdp-rules-") as folder:
        for rule, differences in compared(asked.sets // len(SHAPES), python, Path(folder)):
            found.setdefault(rule, []).append(differences)
    print(f"{REQUIREMENTS['flower_app'][0]}, torch {version('torch')}, numpy {version('numpy')}; by rule")
    for rule, parts in found.items():
        differences = np.concatenate(parts)
        bits = int((differences == 0).sum())
        print(f"{rule}: at most {differences.max():.1e} of the largest number; {bits} of {len(differences)} to the bit")


if __name__ == "__main__":
    main()
