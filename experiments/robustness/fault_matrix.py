"""Runs under faults of the machine, resumed, and compared with the run that nothing disturbed.

    python -m experiments.robustness.fault_matrix [FILE] [--set KEY=VALUE ...] [--points 5] [--faults NAME ...]
        [--elsewhere NAME ...] [--data-root DIR]

Each fault strikes at `--points` random moments of a run, each time a run of its own, which is then resumed until it is
done: here, or in another process environment (`--elsewhere`). Files are compared byte for byte, metrics and summary but
for their wall time. Prints a row for each run, and ends with an error if any differs. A further fault is a function and
its line in `FAULTS`, a further environment one in `ELSEWHERE`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[2]
FILES = ("privacy.jsonl", "control.jsonl", "model.pt", "devices.parquet", "config.yaml", "topology.yaml")
LONGEST_S = 600
Command = list[str]


@dataclass(frozen=True)
class Moment:
    """When a fault strikes.

    Attributes:
        run: the command that starts the run.
        out: its directory.
        whole: the directory of the run that nothing disturbed.
        share: of the ledger that is on disk by then.
        delay: seconds from then on; about an interval's, so that any part of one may be struck.
    """

    run: Command
    out: Path
    whole: Path
    share: float
    delay: float

    @property
    def ledger(self) -> Path:
        """The ledger of the run that is struck."""
        return self.out / "privacy.jsonl"


def start(arguments: Command, **options: Any) -> subprocess.Popen[str]:
    """`h2fdp` with these arguments, its words caught."""
    return subprocess.Popen(
        [sys.executable, "-m", "h2fdp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def end(process: subprocess.Popen[str]) -> int:
    """Wait for a process; its exit code. A traceback is nobody's intention."""
    _, words = process.communicate(timeout=LONGEST_S)
    assert "Traceback" not in words, words
    return process.returncode


def strike(at: Moment, arguments: Command, *signals: signal.Signals, share: float | None = None) -> int:
    """Start a process, and send it signals when this share of the ledger is on disk, and a bit; its exit code."""
    process = start(arguments)
    size = (at.whole / "privacy.jsonl").stat().st_size * (at.share if share is None else share)
    while process.poll() is None and not (at.ledger.exists() and at.ledger.stat().st_size >= size):
        time.sleep(0.002)
    time.sleep(at.delay)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.05)
    return end(process)


def killed(at: Moment) -> list[int]:
    """kill -9 of the driver."""
    return [strike(at, at.run, signal.SIGKILL)]


def killed_again_and_again(at: Moment) -> list[int]:
    """kill -9 of the driver, and twice of what goes on."""
    codes = [strike(at, at.run, signal.SIGKILL)]
    for part in (1 / 3, 2 / 3):
        later = at.share + part * (1 - at.share)
        codes.append(strike(at, ["resume", str(at.out)], signal.SIGKILL, share=later))
    return codes


def terminated(at: Moment) -> list[int]:
    """SIGTERM: the run ends after its interval."""
    return [strike(at, at.run, signal.SIGTERM)]


def stopped_at_once(at: Moment) -> list[int]:
    """Ctrl-C twice."""
    return [strike(at, at.run, signal.SIGINT, signal.SIGINT)]


def full_disk(at: Moment) -> list[int]:
    """No file may grow beyond a part of what the ledger comes to."""
    largest = int((at.whole / "privacy.jsonl").stat().st_size * at.share)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    return [end(start(at.run, preexec_fn=limit))]


FAULTS: dict[str, Callable[[Moment], list[int]]] = {
    "kill -9": killed,
    "kill -9, three times": killed_again_and_again,
    "SIGTERM": terminated,
    "Ctrl-C twice": stopped_at_once,
    "full disk": full_disk,
}


# What differs where a run is resumed; `{new}` is an empty folder. Root may write anywhere but in /proc.
HERE, WORKING_FOLDER = "here", "another working folder"
ELSEWHERE: dict[str, dict[str, str]] = {
    HERE: {},
    "a cold cache": {"XDG_CACHE_HOME": "{new}", "NUMBA_CACHE_DIR": "{new}"},
    "no cache": {"XDG_CACHE_HOME": "/proc/none"},
    "another HOME": {"HOME": "{new}", "XDG_CACHE_HOME": ""},
    "a read-only HOME": {"HOME": "/proc/none", "XDG_CACHE_HOME": "", "MPLCONFIGDIR": ""},
    WORKING_FOLDER: {},
    "three threads": {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"},
    "another locale, time zone": {"LC_ALL": "POSIX", "LANG": "", "PYTHONUTF8": "0", "TZ": "Asia/Kathmandu"},
}


def elsewhere(name: str, new: Path) -> dict[str, Any]:
    """Options of a process there; an empty value stands for no variable.

    Args:
        new: an empty folder.
    """
    values = {key: value.format(new=new) for key, value in ELSEWHERE[name].items()}
    kept = {key: value for key, value in (os.environ | values).items() if value or key not in values}
    return {"env": kept} | ({"cwd": new} if name == WORKING_FOLDER else {})


def started(out: Path) -> bool:
    """Whether there is a run to go on with; a signal may come before."""
    return (out / "config.yaml").exists() and (out / "topology.yaml").exists()


def done(out: Path) -> int:
    """Intervals of the newest checkpoint."""
    return max((int(path.stem) for path in (out / "checkpoint").glob("*.ckpt")), default=0)


def differences(one: Path, other: Path) -> list[str]:
    """The files of two runs that are not the same."""
    found = [name for name in FILES if (one / name).read_bytes() != (other / name).read_bytes()]
    metrics = [pd.read_parquet(path / "metrics.parquet").drop(columns="wall_s") for path in (one, other)]
    timed = dict.fromkeys(("wall_s", "checksum"))
    summaries = [json.loads((path / "summary.json").read_text()) | timed for path in (one, other)]
    found += [] if metrics[0].equals(metrics[1]) else ["metrics.parquet"]
    return found + [f"{key} of summary.json" for key in summaries[0] if summaries[0][key] != summaries[1].get(key)]


def main() -> None:
    """Strike, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=str(ROOT / "experiments" / "quickstart.yaml"))
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="NAME")
    parser.add_argument("--elsewhere", nargs="+", choices=ELSEWHERE, default=[HERE], metavar="NAME")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    wanted = parser.parse_args()
    random.seed(wanted.seed)
    settings = [word for setting in ("privacy.noise_key=seed", *wanted.settings) for word in ("--set", setting)]
    root = ["--data-root", str(wanted.data_root.resolve())] if wanted.data_root else []
    run = ["run", str(Path(wanted.file).resolve()), *settings, *root, "--quiet"]
    differing = 0
    with TemporaryDirectory(prefix="fault-matrix-") as folder:
        whole = Path(folder) / "whole"
        assert end(start([*run, "--out", str(whole)])) == 0, "the undisturbed run failed"
        metrics = pd.read_parquet(whole / "metrics.parquet")
        interval = metrics["wall_s"].median()
        print(f"undisturbed: {len(metrics)} intervals of {interval * 1000:.0f} ms", flush=True)
        for name, where, point in product(wanted.faults, wanted.elsewhere, range(wanted.points)):
            out = Path(folder) / re.sub(r"\W+", "-", f"{name}-{where}-{point}")
            command = [*run, "--out", str(out)]
            share = random.random()
            codes = FAULTS[name](Moment(command, out, whole, share, random.random() * interval))
            at = done(out)
            with TemporaryDirectory() as new:
                options = elsewhere(where, Path(new))
                if not started(out):
                    codes.append(end(start(command, **options)))
                while json.loads((out / "summary.json").read_text())["state"] != "done":
                    codes.append(end(start(["resume", str(out), *root, "--quiet"], **options)))
                    assert codes[-1] == 0, f"{name}, resumed in {where}: ended with {codes}"
            wrong = differences(whole, out)
            differing += bool(wrong)
            what = "the same bits" if not wrong else f"DIFFERENT: {', '.join(wrong)}"
            print(f"{name}, {where:25} at {share:4.0%}, checkpoint {at:4}, exit codes {codes}: {what}", flush=True)
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
