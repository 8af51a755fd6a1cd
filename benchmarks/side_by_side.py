"""The same federated averaging in h2fdp, Flower, pfl and JAX: `python -m benchmarks.side_by_side --data-root DIR`.

With `--only cnn-femnist`, or another of FLUTE's shapes (rivals/shapes.py), that of the shape, without JAX.

Each repetition runs every system once, in turn, each in a process of its own; ratios are taken within a repetition, of
which the median is reported. First, all systems take deterministic steps (a batch is all that a device holds), and
their global models must agree up to rounding: then they do the same work.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.rivals.environments import REQUIREMENTS, NotInstalled, python_of
from benchmarks.rivals.job import Job, initial_model
from benchmarks.rivals.launch import WARM_UP, JobFailed, Outcome, launch
from benchmarks.rivals.records import write_archive
from benchmarks.rivals.shapes import SHAPES
from benchmarks.rivals.works import FLOWER, JAX, NOTES, PFL, QUICK, STEP_SIZE, WORKS, System, Work

# Of the way from the start. A step less in each round is 0.3 and more; 32-bit weights differ by some 0.003 after a way
# as short as that of the two convolutions.
MOST_ROUNDING = 0.02
RIVALS = (PFL, FLOWER, JAX)  # what the ratios are to


class Bench:
    """Environments, archives and the jobs made of both.

    Args:
        data_root: folder of torchvision's data sets; None for drawn records.
        envs: folder of the rivals' environments.
        folder: for everything that need not stay.
        without: programs that are left out.
    """

    def __init__(self, data_root: Path | None, envs: Path, folder: Path, without: Collection[str] = ()) -> None:
        self._data_root, self._folder = data_root, folder
        self._pythons: dict[str, str] = {}
        self.missing: list[str] = []
        self.versions: dict[str, str] = {}
        for program in ("own_app", *(each for each in REQUIREMENTS if each not in without)):
            try:
                self._pythons[program] = python_of(program, envs)
            except NotInstalled as reason:
                self.missing.append(f"{program.removesuffix('_app')} is left out, it could not be installed: {reason}")

    def systems(self, work: Work) -> list[System]:
        """Those of a work that are installed."""
        return [system for system in work.systems if system.program in self._pythons]

    def archive(self, work: Work) -> tuple[Path, str]:
        """Where a work's records are, and what they are."""
        path = self._folder / f"{work.model}-{work.devices}.npz"
        return path, write_archive(path, work.model, work.devices, work.records, self._data_root)

    def run(self, work: Work, system: System, archive: Path) -> Outcome | None:
        """One job; None, and a word about it, if it fails."""
        fields = {"devices", "participants", "records", "rounds", "local_steps", "batch_size", "model"}
        shape = {name: getattr(work, name) for name in fields}
        job = Job(
            system.program,
            data=str(archive),
            step_size=STEP_SIZE,
            workers=system.workers,
            subnets=system.subnets,
            precision=system.precision,
            folder=str(self._folder / system.program),
            **shape,
        )
        try:
            outcome = launch(job, self._pythons[system.program])
        except JobFailed as reason:
            self.missing.append(f"{system.name} failed on {work.model}: {reason}")
            return None
        self.versions |= outcome.versions
        return outcome


def same_model(bench: Bench, work: Work) -> list[str]:
    """How far each system's global model is from that of the first, as a share of how far that one went."""
    devices, steps, rounds = work.same
    small = replace(
        work, devices=devices, participants=devices, local_steps=steps, rounds=rounds, batch_size=work.records
    )
    archive, _ = bench.archive(small)
    start = torch.nn.utils.parameters_to_vector(initial_model(work.model).parameters()).detach().numpy()
    lines, first = [], None
    for system in bench.systems(work):
        outcome = bench.run(small, system, archive)
        if outcome is None:
            continue
        first = outcome.parameters if first is None else first
        distance = np.linalg.norm(outcome.parameters - first) / np.linalg.norm(first - start)
        lines.append(f"{system.name} ({system.workers}): {distance:.1e}")
        if system.precision == "float32" and not distance < MOST_ROUNDING:
            bench.missing.append(f"{system.name} does not do the same work as {bench.systems(work)[0].name}")
    head = f"Same work: {devices} devices, {rounds} rounds of {steps} steps on all {work.records} records of a device"
    return [f"{head}; the models' distance, relative to the way from the start: {', '.join(lines)}.", ""]


def measured(bench: Bench, work: Work, repeats: int) -> list[str]:
    """The table of a work."""
    archive, records = bench.archive(work)
    outcomes: dict[System, list[Outcome | None]] = {system: [] for system in bench.systems(work)}
    for repeat in range(repeats):
        print(f"{work.title}: {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
        for system, found in outcomes.items():
            found.append(bench.run(work, system, archive))
    to = "".join(f"| to {rival.name} " for rival in RIVALS)
    lines = [
        f"{work.participants} of {work.devices:,} devices a round, {work.local_steps} local steps of {work.batch_size} "
        f"of {work.records} records, {records}; {work.rounds - WARM_UP - 1} rounds after {WARM_UP}; "
        f"median of {repeats} (smallest to largest).",
        "",
        f"| system | cores | s a round | device-steps/s {to}| peak MB | loss | accuracy |",
        f"|---|---|---|---|{'---|' * len(RIVALS)}---|---|---|",
    ]
    for system, found in outcomes.items():
        done = [outcome for outcome in found if outcome is not None]
        if not done:
            continue
        seconds = [outcome.seconds_per_round for outcome in done]
        steps = [work.participants * work.local_steps / each for each in seconds]
        lines.append(
            f"| {system.name} | {system.workers} | {statistics.median(seconds):.3g} "
            f"| {statistics.median(steps):,.0f} ({min(steps):,.0f} to {max(steps):,.0f}) "
            f"{''.join(f'| {_ratio(found, outcomes.get(rival))} ' for rival in RIVALS)}"
            f"| {statistics.median(each.memory_mb for each in done):,.0f} "
            f"| {statistics.median(each.loss for each in done):.4f} "
            f"| {statistics.median(each.accuracy for each in done):.4f} |"
        )
    return [*lines, ""]


def _ratio(found: list[Outcome | None], others: list[Outcome | None] | None) -> str:
    """How many times as fast, the median over repetitions that both finished."""
    pairs = [(own, other) for own, other in zip(found, others or [], strict=False) if own and other]
    if not pairs:
        return "-"
    return f"{statistics.median(other.seconds_per_round / own.seconds_per_round for own, other in pairs):.2f}"


def machine() -> str:
    """Processor, its cores, system, Python."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = f"{len(names)} x {names[0]}" if names else model
    return f"{model}, {platform.system()}, Python {platform.python_version()}"


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="folder of FashionMNIST/ and cifar-10-batches-py/")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="of a repetition; the first two and the last are not timed")
    parser.add_argument("--unchecked", action="store_true", help="do not compare the models of small works first")
    parser.add_argument("--quick", action="store_true", help="small shapes, to see that everything works")
    models = [work.model for work in WORKS]
    parser.add_argument("--only", choices=models, default=None, help="the work of this model alone")
    programs = [rival.program for rival in RIVALS]
    parser.add_argument("--without", nargs="*", choices=programs, default=[], help="programs to leave out")
    envs = Path(tempfile.gettempdir()) / "h2fdp-rivals"
    parser.add_argument("--envs", type=Path, default=envs, help=f"folder of the environments (default {envs})")
    parser.add_argument("--out", type=Path, help="a file for the tables, beside stdout")
    given = parser.parse_args()
    if given.rounds is not None and not given.rounds > WARM_UP + 1:
        parser.error(f"--rounds: expected more than {WARM_UP + 1}, which are not timed")
    works = [work for work in WORKS if given.only == work.model or (given.only is None and work.model not in SHAPES)]
    works = [replace(work, **QUICK[work.model]) for work in works] if given.quick else works
    works = works if given.rounds is None else [replace(work, rounds=given.rounds) for work in works]
    unasked = REQUIREMENTS.keys() - {system.program for work in works for system in work.systems}
    with tempfile.TemporaryDirectory(prefix="h2fdp-bench-") as folder:
        bench = Bench(given.data_root, given.envs.absolute(), Path(folder), unasked.union(given.without))
        lines = []
        for work in works:
            same = [] if given.unchecked else same_model(bench, work)
            lines += [f"### {work.title}", "", *same, *measured(bench, work, given.repeats)]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(bench.versions.items()))
        lines += [
            *(f"- {note}" for note in NOTES),
            "",
            f"{machine()}; {versions}.",
            *(f"\n{reason}" for reason in bench.missing),
        ]
    text = "\n".join(lines) + "\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
