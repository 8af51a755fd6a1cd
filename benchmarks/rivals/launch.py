"""Run one job in its environment and read what it says."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.rivals.job import Job
from benchmarks.rivals.memory import peak_mb

WARM_UP = 2  # rounds before the clock starts: imports in workers, first touches of memory
_ROOT = Path(__file__).parents[2]
_LIMIT_S = 3600
# One thread for each process: parallelism is of devices. No messages to the makers.
_VARIABLES = {
    "PYTHONPATH": str(_ROOT),
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class JobFailed(Exception):
    """A program ended without an answer; the message holds the end of what it said."""


@dataclass(frozen=True)
class Outcome:
    """One finished job.

    Attributes:
        seconds_per_round: median of the rounds after the warm-up, without the last, at whose end h2fdp evaluates.
        parameters: (M,) the last global model.
        loss, accuracy: of that model on the test records.
        memory_mb: the highest that the program and all its processes had at once; see memory.py.
        versions: of the packages that did it.
    """

    seconds_per_round: float
    loss: float
    accuracy: float
    memory_mb: float
    parameters: NDArray[np.float32] = field(repr=False)
    versions: dict[str, str] = field(repr=False)


def launch(job: Job, python: str) -> Outcome:
    """Run a job to its end.

    Raises:
        JobFailed: it failed or took more than an hour.
    """
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "benchmarks.rivals", job.to_json()]
    variables = os.environ | _VARIABLES | {"FLWR_HOME": str(folder / "flwr")}
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with peak_mb(process.pid) as memory:
        try:
            stdout, stderr = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise JobFailed(f"{job.program} did not finish within {_LIMIT_S} s") from None
    answers = [line for line in stdout.splitlines() if line.startswith('{"ends"')]
    if process.returncode != 0 or not answers:
        end = "\n".join((stdout + stderr).splitlines()[-3:])
        raise JobFailed(f"{job.program} ended with {process.returncode}:\n{end}")
    answer = json.loads(answers[-1])
    ends = answer["ends"]
    if len(ends) != job.rounds:
        raise JobFailed(f"{job.program} did {len(ends)} rounds of {job.rounds}")
    timed = ends[WARM_UP - 1 : -1] if job.rounds > WARM_UP + 1 else ends
    seconds = statistics.median(np.diff(timed))
    model = np.load(folder / "model.npy")
    found = Outcome(seconds, answer["loss"], answer["accuracy"], memory.highest, model, answer["versions"])
    print(f"  {job.program}, {job.workers} cores: {found}", file=sys.stderr, flush=True)
    return found
