"""A small search: four devices, digits, runs of a few steps."""

TOPOLOGY = "{edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}"
BASE = f"""\
topology: {TOPOLOGY}
data: digits
method: hfl
model: softmax
training: {{extends: paper, intervals: 4, local_steps: 1, aggregate_every: 1, batch_size: 8, step_size: 0.5}}
"""
RANGES = "training.step_size: {log: [0.01, 2]}\n    training.intervals: {uniform: [2, 8]}"


def search(folder, ranges=RANGES, options="", base=BASE, name="search.yaml"):
    """The file of a small search; its ranges begin in line 8 where the base has no more keys."""
    path = folder / name
    lines = "".join(f"  {each}\n" for each in options.split("\n  ")) if options else ""
    path.write_text(
        f"{base}tune:\n  ranges:\n    {ranges}\n{lines}sweep: {{seed: [1, 2, 3], training.batch_size: [8]}}\n"
    )
    return path
