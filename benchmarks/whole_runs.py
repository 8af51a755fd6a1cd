"""Whole runs as a user starts them, in processes of their own: `python -m benchmarks.whole_runs [--data-root DIR]`.

The paper's run (Fashion-MNIST, 50 devices, 200 x 20 steps, batch 32, evaluated at each interval, ledger on), all in;
start-up of each backend; what an interval costs as the network grows to a million devices; and the first run of a
machine, whose caches are empty. Beside the paper's run stands the time that bare tensor operations take for its local
steps, measured in the same minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.engines import bare_operations, timed

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
PAPER = EXPERIMENTS / "fashion-mnist.yaml"
MILLION = EXPERIMENTS / "million.yaml"
PAPER_STEPS = 200 * 20 * 50
SIZES = (100, 1_000, 10_000)  # edge servers of 100 devices


def run(file: Path, *settings: str, data_root: Path | None = None, caches: str | None = None) -> dict[str, Any]:
    """Seconds of a whole process and of the processor, its peak memory in MB, its summary, and the median seconds of an
    interval.

    Args:
        caches: where numba's and our own are, instead of where the user's are.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "h2fdp", "run", str(file), "--out", f"{folder}/run", "--quiet"]
        command += [part for setting in settings for part in ("--set", setting)]
        command += ["--data-root", str(data_root)] if data_root else []
        child = "import resource,subprocess,sys;code=subprocess.call(sys.argv[1:],stdout=subprocess.DEVNULL);" + (
            "used=resource.getrusage(resource.RUSAGE_CHILDREN);print(used.ru_maxrss,used.ru_utime+used.ru_stime);sys.exit(code)"
        )
        began = time.perf_counter()
        # Users' Python keeps bytecode.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if caches is not None:
            kept |= {"XDG_CACHE_HOME": caches, "NUMBA_CACHE_DIR": f"{caches}/numba"}
        done = subprocess.run(
            [sys.executable, "-c", child, *command], check=True, capture_output=True, text=True, env=kept
        )
        seconds = time.perf_counter() - began
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
        intervals = pd.read_parquet(Path(folder, "run", "metrics.parquet"))["wall_s"]
    memory, processor = map(float, done.stdout.split())
    taken = {"seconds": seconds, "processor_s": processor, "memory_mb": memory / 1024}
    return {**taken, "interval_s": intervals.median(), **summary}


def paper_run(repeats: int, data_root: Path | None) -> None:
    """The paper's run by one and two threads, and the bare operations of its local steps, turn by turn."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        bare = timed({"bare": bare_operations(50, 20)}, turns=5)["bare"]
        found.setdefault("bare operations, one thread or a GPU", []).append(
            float(statistics.median(bare)) * PAPER_STEPS / 1000
        )
        for threads in (1, 2):
            words = f"{threads} thread(s)"
            done = run(PAPER, f"runtime.hosts={threads}", "runtime.backend=inline", data_root=data_root)
            found.setdefault(f"whole process, {words}", []).append(done["seconds"])
            found.setdefault(f"the run in it, {words}", []).append(done["wall_s"])
        if torch.cuda.is_available():
            done = run(PAPER, "runtime.gpus_per_host=1", "runtime.hosts=1", data_root=data_root)
            found.setdefault("whole process, a host with a GPU", []).append(done["seconds"])
            found.setdefault("the run in it, a host with a GPU", []).append(done["wall_s"])
        short = run(PAPER, "training.intervals=1", data_root=data_root)
        found.setdefault("start-up: one interval inline", []).append(short["seconds"])
        ray = run(PAPER, "training.intervals=1", "runtime.backend=ray", "runtime.hosts=2", data_root=data_root)
        found.setdefault("start-up: one interval on Ray, two hosts", []).append(ray["seconds"])
    for name, seconds in found.items():
        print(
            f"  {name:<44}{statistics.median(seconds):>8.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})", flush=True
        )


def first_run(repeats: int, data_root: Path | None) -> None:
    """The defaults on the paper's network and the paper's run, each with empty caches and then again."""
    found: dict[str, list[tuple[float, float]]] = {}
    chosen = "model=auto", "training={extends: auto}", "privacy.calibration=accounted", "privacy.accountant=pld"
    for _ in range(repeats):
        for name, settings in (("defaults", chosen), ("the paper's run", ())):
            with tempfile.TemporaryDirectory() as caches:
                for which in ("first", "second"):
                    done = run(PAPER, *settings, data_root=data_root, caches=caches)
                    found.setdefault(f"{name}, {which}", []).append((done["seconds"], done["processor_s"]))
    for name, both in found.items():
        seconds, processor = zip(*both, strict=True)
        print(
            f"  {name:<28}{statistics.median(seconds):>8.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})"
            f"{statistics.median(processor):>8.2f} s of processors",
            flush=True,
        )


def growth(method: str) -> None:
    """One interval of five steps with all devices active, as the network grows."""
    for edges in SIZES:
        template = (
            f'[{{name: "edge-{{i}}", repeat: {edges}, devices: {{count: 100, distance_m: {{uniform: [10, 100]}}}}}}]'
        )
        done = run(MILLION, f"topology.edges={template}", "training.intervals=2", f"method={method}")
        each = 1e6 * done["interval_s"] / done["devices"]
        print(
            f"  {done['devices']:>9,} devices  {done['interval_s']:>8.2f} s an interval  {each:>6.1f} us a device  "
            f"{done['memory_mb']:>6,.0f} MB  {done['seconds']:>7.1f} s in all",
            flush=True,
        )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["paper", "growth", "first"], default=None)
    asked = parser.parse_args()
    print(
        f"load average at the start {os.getloadavg()[0]:.1f}; {len(os.sched_getaffinity(0))} CPUs; "
        f"torch {torch.__version__}"
    )
    if asked.only in (None, "paper"):
        print(f"\nthe paper's run, medians of {asked.repeats}")
        paper_run(asked.repeats, asked.data_root)
    if asked.only in (None, "first"):
        print(f"\nthe first run of a machine and the next, medians of {asked.repeats}")
        first_run(asked.repeats, asked.data_root)
    if asked.only in (None, "growth"):
        for method in ("hfl", "h2fdp"):
            print(f"\nnetworks that grow, method {method}: edge servers of 100 devices, five steps, all active")
            growth(method)


if __name__ == "__main__":
    main()
