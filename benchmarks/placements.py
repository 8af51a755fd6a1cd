"""What Ray costs over one process, placement by placement: `python -m benchmarks.placements [--data-root DIR]`.

The paper's run (Fashion-MNIST, 50 devices, 200 x 20 steps) in a process of its own for each placement. The median time
of an interval leaves the start-up out, which is that of a run of one interval.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

from benchmarks.whole_runs import PAPER, run

PLACEMENTS = {
    "inline, 2 threads": ("runtime.backend=inline", "runtime.hosts=2"),
    "packed, 1 host": ("runtime.backend=ray", "runtime.hosts=1"),
    "packed, 2 hosts": ("runtime.backend=ray", "runtime.hosts=2"),
    "packed, 4 hosts": ("runtime.backend=ray", "runtime.hosts=4", "runtime.cpus_per_host=0.5"),
    "subnet, 10 hosts": ("runtime.placement=subnet",),
    "entity, 61 hosts": ("runtime.placement=entity",),
}


def main() -> None:
    """Print a table, in turns, so that a busy minute hits all alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--intervals", type=int, default=200)
    parser.add_argument("--only", nargs="*", choices=list(PLACEMENTS), default=list(PLACEMENTS))
    asked = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} CPUs, {asked.intervals} intervals")
    starts: dict[str, list[float]] = {name: [] for name in asked.only}
    intervals: dict[str, list[float]] = {name: [] for name in asked.only}
    for _ in range(asked.repeats):
        for name in asked.only:
            short = run(PAPER, *PLACEMENTS[name], "training.intervals=1", data_root=asked.data_root)
            whole = run(PAPER, *PLACEMENTS[name], f"training.intervals={asked.intervals}", data_root=asked.data_root)
            starts[name].append(short["seconds"])
            intervals[name].append(whole["interval_s"])
    one = statistics.median(next(iter(intervals.values())))
    for name in asked.only:
        start, interval = statistics.median(starts[name]), statistics.median(intervals[name])
        print(f"  {name:<20}start-up {start:>6.1f} s   an interval {1000 * interval:>7.1f} ms   {interval / one:.2f}")


if __name__ == "__main__":
    main()
