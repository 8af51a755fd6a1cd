"""Records a second and memory of models of the field: `python -m benchmarks.models`, of all or of those that are named.

One device, one thread, batches of 16 records in the model's own shape; times are those of the processor, so that others
who use the machine change them little. At the level of a device a batch has one gradient, as without privacy; at that
of a record each record's is clipped. Each of both has a process of its own: its peak memory, less what it had before
the first gradient, is printed. `NAME+lora` trains adapters of rank 8 on the queries, keys and values of NAME alone.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

import torch

from h2fdp.models.construct import ParameterLayout, build
from h2fdp.models.finetuning import fine_tuned
from h2fdp.models.registry import MODELS, FineTuning, Lora
from h2fdp.training.clipping import Clipping
from h2fdp.training.gradients.rule import gradient_rule

RECORDS, TURNS = 16, 3
LORA = "+lora"
NAMES = (
    "cnn12", "femnist-cnn", "resnet18", "vit-tiny", "vit-tiny+lora", "lstm", "char-lstm", "text-transformer",
    "text-transformer+lora",
)  # fmt: skip
LEVELS = {"device": None, "record": Clipping(1.0, "record")}


def measured(name: str, level: str, turns: int = TURNS) -> str:
    """A row of the table."""
    torch.set_num_threads(1)
    base = name.removesuffix(LORA)
    shape, adapters = MODELS[base].shape, FineTuning(lora=Lora(rank=8, layers=["qkv"]))
    module = build(base, shape, 10)
    module = module if base == name else fine_tuned(lambda: module, adapters)
    flat = ParameterLayout(module)
    models, y = flat.to_vector(module)[None], torch.zeros(1, RECORDS, dtype=torch.int64)
    x = torch.rand(1, RECORDS, *shape) if len(shape) == 3 else torch.ones(1, RECORDS, *shape)
    rule, seconds, shares = gradient_rule(module, LEVELS[level]), list[float](), torch.full((1, RECORDS), 1 / RECORDS)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(turns + 1):
        began = time.process_time()
        rule.sums(models, x, y, shares)
        seconds.append(time.process_time() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rate, memory = RECORDS / statistics.median(seconds[1:]), (peak - start) / 1024
    row = f"{name} {'x'.join(map(str, shape))}", f"{flat.size:,}", level, f"{rate:,.0f}", f"{memory:,.0f}"
    return "| " + " | ".join((*row, type(rule).__name__)) + " |"


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default all")
    parser.add_argument("--level", choices=LEVELS, help="print the row of one model, measured in this process")
    asked = parser.parse_args()
    if strange := set(asked.names) - set(NAMES):
        parser.error(f"expected names of {', '.join(NAMES)}; found {', '.join(sorted(strange))}")
    if asked.level:
        print(measured(asked.names[0], asked.level))
        return
    print("| model | trained parameters | level | records/s | MB | rule |\n|---|---|---|---|---|---|")
    for name in asked.names or NAMES:
        for level in LEVELS:
            command = [sys.executable, "-m", "benchmarks.models", name, "--level", level]
            print(subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL), end="", flush=True)


if __name__ == "__main__":
    main()
