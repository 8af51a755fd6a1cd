"""Device-steps a second of the engines, one thread: `python -m benchmarks` (or `make bench`)."""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from h2fdp.models import Flat, build
from h2fdp.streams import Streams
from h2fdp.training import ENGINES, BatchSampler, Clipping, DeviceRecords, build_engine
from h2fdp.training.batches import row_length
from h2fdp.training.objectives import Plain

DEVICES, RECORDS, BATCH, STEPS, REPEATS = 10, 1200, 32, 10, 5
CASES = (("softmax", (1, 28, 28)), ("mlp", (1, 28, 28)), ("ali-cnn-28", (1, 28, 28)), ("ali-cnn-32", (3, 32, 32)))
CLIPPINGS = {"none": None, "batch": Clipping(1.0, "batch"), "record": Clipping(1.0, "record")}


def device_steps_a_second(engine_name: str, model: str, shape: tuple[int, ...], clipping: Clipping | None) -> float:
    """Median over repeats of a segment of Poisson batches."""
    random = np.random.default_rng(0)
    records = DeviceRecords(
        torch.from_numpy(random.integers(0, 256, (DEVICES * RECORDS, *shape), dtype=np.uint8)),
        torch.from_numpy(random.integers(0, 10, DEVICES * RECORDS)),
        np.arange(DEVICES + 1) * RECORDS,
        torch.tensor(1 / 255),
        torch.tensor(0.0),
    )
    module = build(model, shape, 10)
    engine = build_engine(engine_name, module, clipping, Plain())
    rates = np.full(DEVICES, BATCH / RECORDS)
    sampler = BatchSampler(Streams(1), "edge", "poisson", records.sizes, rates, row_length("poisson", BATCH))
    start = Flat(module).to_vector(module)
    rows = np.arange(DEVICES)
    times = []
    for repeat in range(REPEATS + 1):
        began = time.perf_counter()
        batches = sampler.draw(repeat, range(STEPS), rows)
        engine.updates(start.expand(DEVICES, -1), records, rows, batches, 0.1)
        times.append(time.perf_counter() - began)
    return DEVICES * STEPS / statistics.median(times[1:])


def main() -> None:
    """Print a table; ratios are what counts, machines differ."""
    torch.set_num_threads(1)
    print(f"{DEVICES} devices, batch {BATCH}, {STEPS} steps, one thread, median of {REPEATS}; device-steps a second")
    print(f"{'model':<12}{'engine':<10}" + "".join(f"{'clip ' + name:>14}" for name in CLIPPINGS))
    for model, shape in CASES:
        for engine in ENGINES:
            rates = [device_steps_a_second(engine, model, shape, clipping) for clipping in CLIPPINGS.values()]
            print(f"{model:<12}{engine:<10}" + "".join(f"{rate:>14,.0f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
