"""The runs of `share.yaml`: 20 devices at random in a square join edge servers at its corners by three rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts.association import joined
from h2fdp import Experiment, Run
from h2fdp.streams import Streams
from h2fdp.sweeps.grid import word

SIDE_M, SEEDS = 150.0, range(1, 6)
CORNERS = [[0.0, 0.0], [SIDE_M, 0.0], [0.0, SIDE_M], [SIDE_M, SIDE_M]]


def runs_of_associations(
    file: Path, out: Path, data_root: Path | None, jobs: int
) -> Iterator[tuple[dict[str, Any], Run]]:
    """Each run with its rule and seed; of a seed, all rules have the same devices at the same places."""
    for seed in SEEDS:
        experiment = Experiment.from_file(file, seed=seed)
        network = experiment.topology
        places: dict[str, list[float]] = {}
        for subnet, corner in zip(network.subnets, CORNERS, strict=True):
            streams = [Streams(seed).open(subnet.name, axis) for axis in ("x_m", "y_m")]
            drawn = SIDE_M * np.stack([stream.random(subnet.size) for stream in streams], axis=1)
            places |= {subnet.name: corner} | dict(zip(subnet.device_names(), drawn.tolist(), strict=True))
        for by in ("nearest", "cost", "data"):
            folder = out / f"{by}-{seed}"
            changed = joined(experiment, places, by, folder, data_root=data_root)
            settings = [f"topology={changed['topology']}", f"data={word(changed['data'])}"]
            there = Experiment.from_file(file, settings, seed)
            yield {"by": by, "seed": seed}, there.run(folder / "run", data_root=data_root, overwrite=True)
