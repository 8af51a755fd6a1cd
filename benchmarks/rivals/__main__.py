"""`python -m benchmarks.rivals JOB`: do one job in this environment, print one JSON line about it.

The global model at the end is left in the job's folder, for comparisons.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module, metadata
from pathlib import Path

import numpy as np
import torch

from benchmarks.rivals.job import Job, scores


def main() -> None:
    """Do the job given on the command line."""
    job = Job.from_json(sys.argv[1])
    torch.set_num_threads(1)
    program = import_module(f"benchmarks.rivals.{job.program}")
    trained = program.train(job)
    vector = trained.parameters.detach()
    np.save(Path(job.folder) / "model.npy", vector.numpy())
    versions = {name: metadata.version(name) for name in (*program.PACKAGES, "torch")}
    print(json.dumps({"ends": trained.ends, "versions": versions, **scores(job, vector)}), flush=True)


if __name__ == "__main__":
    main()
