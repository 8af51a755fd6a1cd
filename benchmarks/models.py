"""Records a second and memory of each named model whose records' gradients are clipped: `python -m benchmarks.models`.

One device, one thread, batches of 16 records in the model's own shape; times are those of the processor, so that others
who use the machine change them little. Each model has a process of its own, whose peak memory is printed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

RECORDS, TURNS = 16, 3
NAMES = ("cnn12", "femnist-cnn", "resnet18", "vit-tiny", "lstm", "text-transformer", "char-lstm")


def measured(name: str) -> str:
    """A row of the table."""
    import torch

    from h2fdp.models.construct import ParameterLayout, build
    from h2fdp.models.registry import MODELS
    from h2fdp.training.clipping import Clipping
    from h2fdp.training.gradients.rule import gradient_rule

    torch.set_num_threads(1)
    shape = MODELS[name].shape
    module = build(name, shape, 10)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flat = ParameterLayout(module)
    models, y = flat.to_vector(module)[None], torch.zeros(1, RECORDS, dtype=torch.int64)
    x = torch.rand(1, RECORDS, *shape) if len(shape) == 3 else torch.ones(1, RECORDS, *shape)
    shares, found, rules = torch.full((1, RECORDS), 1 / RECORDS), dict[str, float](), dict[str, str]()
    for kind, clipping in (("clipped", Clipping(1.0, "record")), ("as one batch", None)):
        rule, seconds = gradient_rule(module, clipping), list[float]()
        for _ in range(TURNS + 1):
            began = time.process_time()
            rule.sums(models, x, y, shares)
            seconds.append(time.process_time() - began)
        found[kind] = RECORDS / statistics.median(seconds[1:])
        rules[kind] = type(rule).__name__
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    numbers = f"{flat.size:,} | {found['as one batch']:,.0f} | {found['clipped']:,.0f}"
    return f"| `{name}` {'x'.join(map(str, shape))} | {numbers} | {(peak - start) / 1024:,.0f} | {rules['clipped']} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=NAMES)
    asked = parser.parse_args()
    if asked.only:
        print(measured(asked.only))
        return
    print("| model | parameters | records/s, one batch | clipped | MB without the model | rule |")
    print("|---|---|---|---|---|---|")
    for name in NAMES:
        print(subprocess.check_output([sys.executable, "-m", "benchmarks.models", "--only", name], text=True), end="")


if __name__ == "__main__":
    main()
