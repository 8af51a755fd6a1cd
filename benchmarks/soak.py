"""Long and large: `python -m benchmarks.soak [--only intervals|sweep|devices|edges] [--full]` (or `make soak`).

What has to stay flat or in proportion: memory and files of a run over 2,000 intervals beside 200, of a sweep of 500
runs beside 50, and what it takes to check, plan, calibrate, run and report networks of up to a million devices and a
hundred thousand edge servers. Each line is a process of its own: seconds, processor seconds, peak memory. On a machine
that is shared, processor seconds are what counts. `--full` includes runs of a million devices, which take an hour.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SMALL = """
name: soak
topology: {edges: [{name: a, trusted: true, devices: {count: 3}}, {name: b, trusted: false, devices: {count: 3}}]}
data: digits
model: softmax
method: h2fdp
training: {extends: paper, intervals: 2, local_steps: 2, aggregate_every: 2, batch_size: 4}
privacy: {epsilon: 20.0, calibration: paper, accountant: rdp, noise_key: seed}
runtime: {backend: inline, hosts: 1}
tracking: {tensorboard: false}
seed: 1
"""
LARGE = """
name: soak
topology: network.yaml
data: {name: synthetic, records: 51}
model: logistic
method: h2fdp
training: {extends: paper, intervals: 2, local_steps: 2, aggregate_every: 2, batch_size: 10}
privacy: {epsilon: 1.0, delta: 1.0e-7, calibration: paper, accountant: rdp, noise_key: seed}
runtime: {backend: inline, hosts: 1}
tracking: {tensorboard: false}
seed: 1
"""
NETWORK = """
name: soak
trust: {{probability: 0.5}}
edges:
  - {{name: "edge-{{i}}", repeat: {edges}, devices: {{count: {devices}}}}}
"""
CHILD = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(code)
"""


def measured(what: str, *words: object) -> None:
    """Run an `h2fdp` command; print its time and memory, or that it failed."""
    command = [sys.executable, "-c", CHILD, sys.executable, "-m", "h2fdp", *map(str, words)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        print(f"{what:<44}FAILED: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return
    cpu, memory = map(float, done.stdout.split())
    print(f"{what:<44}{seconds:8.1f} s {cpu:8.1f} s of processor {memory:8.0f} MB", flush=True)


def sizes(what: str, run: Path, names: Iterable[str]) -> None:
    """Bytes of a run's files."""
    found = {name: sum(each.stat().st_size for each in run.glob(f"{name}*") if each.is_file()) for name in names}
    total = sum(each.stat().st_size for each in run.rglob("*") if each.is_file())
    print(f"{what:<44}{json.dumps(found)} in all {total:,} bytes", flush=True)


def intervals(folder: Path, full: bool) -> None:
    """A run of 200 intervals, and one of 2,000."""
    file = folder / "small.yaml"
    file.write_text(SMALL)
    for count in (200, 2_000):
        run = folder / f"run-{count}"
        measured(
            f"{count} intervals: run", "run", file, "--set", f"training.intervals={count}", "--out", run, "--quiet"
        )
        measured(f"{count} intervals: check", "check", run)
        measured(f"{count} intervals: report", "report", run)
        sizes(f"{count} intervals: files", run, ("metrics", "privacy", "control", "log", "report", "summary"))


def sweep(folder: Path, full: bool) -> None:
    """A sweep of 50 runs, and one of 500."""
    for count in (50, 500):
        file = folder / f"sweep-{count}.yaml"
        file.write_text(SMALL + f"sweep: {{seed: {list(range(1, count + 1))}}}\n")
        out = folder / f"sweep-{count}"
        measured(f"{count} runs: sweep", "sweep", file, "--out", out, "--jobs", "1", "--quiet")
        measured(f"{count} runs: the same again", "sweep", file, "--out", out, "--jobs", "1", "--quiet")
        measured(f"{count} runs: check", "check", out)
        measured(f"{count} runs: report", "report", out)
        sizes(f"{count} runs: files", out, ("sweep", "summary", "report"))


def network(folder: Path, edges: int, devices: int, run: bool) -> None:
    """What is asked of a network before and after a run of two intervals."""
    place = folder / f"{edges}x{devices}"
    place.mkdir()
    (place / "network.yaml").write_text(NETWORK.format(edges=edges, devices=devices))
    file = place / "large.yaml"
    file.write_text(LARGE)
    what = f"{edges:,} edge servers, {edges * devices:,} devices"
    print(what)
    measured("  topology check", "topology", "check", place / "network.yaml")
    measured("  run --dry-run", "run", file, "--dry-run")
    measured("  privacy calibrate", "privacy", "calibrate", file)
    measured("  plan", "plan", file, "--set", "method=h2fdp-adaptive")
    if run:
        measured("  run, two intervals", "run", file, "--out", place / "run", "--quiet")
        measured("  report", "report", place / "run")
        measured("  check", "check", place / "run")
        sizes("  files", place / "run", ("topology", "metrics", "devices", "privacy", "summary", "report", "config"))


def devices(folder: Path, full: bool) -> None:
    """A hundred thousand devices, and a million, under few edge servers each."""
    network(folder, 1_000, 100, run=True)
    network(folder, 10_000, 100, run=full)


def edges(folder: Path, full: bool) -> None:
    """Ten thousand edge servers, and a hundred thousand, of a few devices each."""
    network(folder, 10_000, 2, run=True)
    network(folder, 100_000, 2, run=full)


PARTS: dict[str, Callable[[Path, bool], None]] = {
    "intervals": intervals,
    "sweep": sweep,
    "devices": devices,
    "edges": edges,
}


def main() -> None:
    """All parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(PARTS), default=None)
    parser.add_argument("--full", action="store_true")
    asked = parser.parse_args()
    for name, part in PARTS.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder), asked.full)


if __name__ == "__main__":
    main()
