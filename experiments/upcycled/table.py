"""Upcycled-FL's Tables 1 and 3: seven methods, plain and upcycled.

    python -m experiments.upcycled.table DATA --out DIR [--stragglers 0.3] [--rounds 4] [--femnist DIR] [--sent140 DIR]
                                         [--stored FILE [--cells iid:scaffold ...]] [--afresh]

DATA holds the authors' archives `iid.npz`, `0_0.npz`, `0.5_0.5.npz`, `1_1.npz`; the two other folders, the user's own,
are in LEAF's format, with a user for each device (50 of FEMNIST's, 52 of Sent140's). Columns without data are left out.
For each data set and method a small grid (`GRIDS`) is searched with one seed, with a fifth of each device's training
records in the place of its test records; then, with the best, the factor of upcycling (`SHARES` of the published one of
FedAvg). The best go into the table, with other seeds and all records. Table 3 has fewer stragglers and the choices of
Table 1.

Seeds are added in rounds, by the rule of `experiments.upcycled.rule`, until a comparison is decided or known to half a
point. `--rounds` says how many rounds there is time for; a later command with more goes on. With `--afresh` comparisons
that all rounds, or earlier new seeds, leave open are made again under new ones, which stand in their place.
Finished runs are kept in DIR.

`--stored FILE` goes on from a table that is checked in: only comparisons that are open there get more seeds (`--cells`
names some of them, as iid:scaffold). The grids are searched for these alone, and the first seed of each is made again:
it must be the stored one.

`DIR/upcycled.csv` (with 30 % stragglers `upcycled-30.csv`) has the accuracy of every run: in this folder it is what
`python -m experiments.reproduce upcycled` judges, and both are what `python -m experiments.upcycled.page` writes about.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments.programs import told
from experiments.reproduction.conduct import commit_of
from experiments.upcycled.rule import ROUNDS, ended, seeds_afresh
from experiments.upcycled.runs import (
    DATA_SETS,
    LEAF,
    SYNTHETIC,
    Choice,
    Job,
    final,
    held_out,
    run_all,
    score_of_grid,
    split_leaf,
    words,
)
from experiments.upcycled.stored import UPCYCLED, Cell, Runs, cells_named, read_runs, require_same

SHARES = (1.0, 0.3)
GRIDS: dict[str, list[dict[str, Any]]] = {  # keys of the method; `step` is a factor on FedAvg's step size
    "fedavg": [{"step": 1.0}],
    "fedavgm": [{"step": 1.0, "server.beta1": beta} for beta in (0.3, 0.7)],
    "fedprox": [{"step": 1.0, "objective.mu": mu} for mu in (0.1, 0.5)],
    "scaffold": [{"step": step} for step in (1.0, 0.3)],
    "feddyn": [{"step": 1.0, "objective.alpha": alpha} for alpha in (0.01, 0.1)],
    "pfedme": [
        {"step": 1.0, "objective.inner_step_size": 0.05},
        {"step": 0.1, "objective.inner_step_size": 0.05},
        {"step": 1.0, "objective.inner_step_size": 0.05, "objective.penalty": 5.0},
        {"step": 1.0, "objective.inner_step_size": 0.05, "objective.penalty": 1.0},
    ],
    "fedyogi": [{"step": 1.0, "server.server_step": server} for server in (0.01, 0.1)],
}
GRID_SEED = 100


def differences_of(runs: Runs, cell: Cell) -> list[float]:
    """Points that upcycling adds, seed by seed."""
    name, method = cell
    upcycled = sorted(seed for data_set, kind, seed in runs if (data_set, kind) == (name, UPCYCLED + method))
    seeds = [seed for seed in upcycled if (name, method, seed) in runs]
    return [runs[name, UPCYCLED + method, seed] - runs[name, method, seed] for seed in seeds]


def best(jobs: Mapping[Path, Job], workers: int) -> dict[Cell, Choice]:
    """(data set, method) -> the best of its grid."""
    scores = score_of_grid(jobs.items(), run_all(jobs, workers))
    found: dict[Cell, tuple[float, Choice]] = {}
    for folder, job in jobs.items():
        cell = job.data_set, job.method
        if cell not in found or scores[folder] > found[cell][0]:
            found[cell] = scores[folder], job.choice
    return {cell: choice for cell, (_, choice) in found.items()}


def searched(
    files: Mapping[str, Path], out: Path, workers: int, stragglers: float, cells: Sequence[Cell] | None = None
) -> tuple[dict[Cell, Choice], dict[Cell, Choice]]:
    """The best of the grids: plain, then upcycled.

    Args:
        cells: for which alone; null for all.
    """
    halves = {
        name: (split_leaf(file, out / "held-out" / name) if name in LEAF
               else held_out(file, out / "held-out" / f"{name}.npz"))
        for name, file in files.items()
    }  # fmt: skip

    def jobs(grids: Mapping[Cell, Sequence[Choice]]) -> dict[Path, Job]:
        return {
            out / "grid" / name / method / words(choice): Job(
                name, method, choice, GRID_SEED, halves[name], stragglers, every=1
            )
            for (name, method), choices in grids.items()
            for choice in choices
        }

    wanted = list(product(files, GRIDS)) if cells is None else cells
    plain = best(jobs({(name, method): GRIDS[method] for name, method in wanted}), workers)
    factors = {
        cell: [{**choice, "factor": DATA_SETS[cell[0]].factor * share} for share in SHARES]
        for cell, choice in plain.items()
    }
    return plain, best(jobs(factors), workers)


def table(
    files: Mapping[str, Path],
    choices: Mapping[str, Mapping[Cell, Choice]],
    out: Path,
    workers: int,
    stragglers: float,
    rounds: int,
    stored: Runs | None = None,
    made: Sequence[str] = (),
) -> Runs:
    """Seeds until every comparison has ended, or so many rounds are over; written down after each round.

    Args:
        choices: prefix of a method's name -> choices, of the comparisons that are to go on.
        stored: runs that are known, of these and other comparisons; the first seed of these is made again.
        made: what made them.
    """
    known = stored or {}
    runs: Runs = dict(known)
    going: list[Cell] = list(choices[""])
    for seeds in ROUNDS[:rounds]:
        fewer = [cell for cell in going if len(differences_of(known, cell)) < seeds]
        if not fewer:
            continue
        jobs = {
            out / f"table-{stragglers:g}" / name / f"{prefix}{method}" / words(choice[name, method]) / str(seed): (
                Job(name, method, choice[name, method], seed, files[name], stragglers),
                (name, prefix + method, seed),
            )
            for name, method in fewer
            for prefix, choice in choices.items()
            for seed in range(1, seeds + 1)
            if seed == 1 or (name, prefix + method, seed) not in known
        }
        found = run_all({folder: job for folder, (job, _) in jobs.items()}, workers)
        new = {key: final(found[folder], job.column) for folder, (job, key) in jobs.items()}
        require_same(new, known)
        runs |= new
        going = [cell for cell in going if not ended(differences_of(runs, cell))]
        write_runs(out / name_of_table(stragglers), runs, made)
        seconds = sum(each["seconds"] for each in found.values())
        print(f"{seeds} seeds: {len(jobs)} runs, {seconds:.0f} s; {len(going)} comparisons go on", flush=True)
        if not going:
            break
    return runs


def afresh(
    files: Mapping[str, Path],
    choices: Mapping[str, Mapping[Cell, Choice]],
    out: Path,
    workers: int,
    stragglers: float,
    runs: Runs,
    made: Sequence[str] = (),
) -> Runs:
    """Runs in which comparisons that all rounds left open have new seeds in the place of their first.

    Those that earlier new seeds left open have others now. The first seed that is known is made again: it must be what
    it was.

    Args:
        runs: at the end of all rounds.
    """
    for name, method in choices[""]:
        gains = differences_of(runs, (name, method))
        if len(gains) < ROUNDS[-1] or ended(gains):
            continue
        known = sorted(seed for data_set, kind, seed in runs if (data_set, kind) == (name, method))
        folder = out / f"table-{stragglers:g}" / name
        jobs = {
            folder / f"{prefix}{method}" / words(choice[name, method]) / str(seed): (
                Job(name, method, choice[name, method], seed, files[name], stragglers), (name, prefix + method, seed)
            )
            for prefix, choice in choices.items()
            for seed in (known[0], *seeds_afresh(gains, max(known[-1], ROUNDS[-1])))
        }  # fmt: skip
        first = {place: job for place, (job, key) in jobs.items() if key[2] == known[0]}
        for places in (first, {place: job for place, (job, _) in jobs.items() if place not in first}):
            found = run_all(places, workers)
            made_now = {jobs[place][1]: final(found[place], job.column) for place, job in places.items()}
            require_same(made_now, runs)  # of the first alone, before hundreds of others
        kept = {key: value for key, value in runs.items() if key[:2] not in {each[:2] for each in made_now}}
        runs = kept | made_now
        write_runs(out / name_of_table(stragglers), runs, made, afresh=True)
        print(f"{name}:{method} afresh: {len(jobs)} runs", flush=True)
    return runs


def name_of_table(stragglers: float) -> str:
    """Table 1's, and those with fewer stragglers."""
    return "upcycled.csv" if stragglers == 0.9 else f"upcycled-{100 * stragglers:.0f}.csv"


def write_runs(file: Path, runs: Runs, made: Sequence[str] = (), *, afresh: bool = False) -> None:
    """The accuracies at the end of all runs, a table of `experiments.reproduce`; `made` says what made earlier ones."""
    stored = (" --stored FILE" if made else "") + " --afresh" * afresh
    now = f"`python -m experiments.upcycled.table DATA --out DIR{stored}` at {commit_of(Path(__file__).parent)}"
    lines = [*(f"# {each}" for each in dict.fromkeys((*made, now))), "data_set,method,seed,accuracy"]
    lines += [f"{name},{method},{seed},{value / 100:.6f}" for (name, method, seed), value in sorted(runs.items())]
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Search, run, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stragglers", type=float, default=0.9)
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), choices=range(1, len(ROUNDS) + 1))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--stored", type=Path, help="a table whose open comparisons get more seeds")
    parser.add_argument("--cells", nargs="+", help="these of them alone, as iid:scaffold")
    parser.add_argument("--afresh", action="store_true", help="what is open after all rounds, under new seeds")
    for name in LEAF:
        parser.add_argument(f"--{name}", type=Path)
    asked = parser.parse_args()
    files = {name: asked.data.resolve() / f"{name}.npz" for name in SYNTHETIC}
    files |= {name: getattr(asked, name).resolve() for name in LEAF if getattr(asked, name)}
    if not 0 <= asked.stragglers <= 1:
        parser.error(f"--stragglers: expected a share from 0 to 1, found {asked.stragglers:g}")
    missing = [str(file) for file in (*files.values(), *filter(None, [asked.stored])) if not file.exists()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    stored, made = read_runs(asked.stored, GRIDS) if asked.stored else (None, [])
    cells = list(product(files, GRIDS))
    if stored is not None:
        cells = [cell for cell in cells if not ended(differences_of(stored, cell))]
        if not cells:
            print("no comparison of this table is open")
            return
    if asked.cells:
        cells = cells_named(asked.cells, cells)
    plain, upcycled = searched(files, asked.out, asked.workers, 0.9, cells)
    choices = {"": plain, UPCYCLED: upcycled}
    runs = table(files, choices, asked.out, asked.workers, asked.stragglers, asked.rounds, stored, made)
    if asked.afresh:
        afresh(files, choices, asked.out, asked.workers, asked.stragglers, runs, made)


if __name__ == "__main__":
    told(main)
