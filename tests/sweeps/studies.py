"""A small study, and what its runs record."""

import pandas as pd

TOPOLOGY = "{edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}"
BASE = f"""\
name: small
topology: {TOPOLOGY}
data: digits
model: softmax
training: {{extends: paper, intervals: 3, local_steps: 2, aggregate_every: 2, batch_size: 4}}
privacy: {{noise_key: seed, calibration: paper}}
"""


def study(folder, sweep="{seed: [1, 2], privacy.epsilon: [1, 20]}", base=BASE, name="study.yaml"):
    """The file of a small study."""
    path = folder / name
    path.write_text(f"{base}sweep: {sweep}\n")
    return path


def recorded(run):
    """Metrics without what depends on the clock on the wall, and the ledger, byte by byte."""
    metrics = pd.read_parquet(run / "metrics.parquet").drop(columns="wall_s")
    return metrics, (run / "privacy.jsonl").read_bytes()


def assert_equal_runs(one, other):
    pd.testing.assert_frame_equal(recorded(one)[0], recorded(other)[0], check_exact=True)
    assert recorded(one)[1] == recorded(other)[1]
    pd.testing.assert_frame_equal(
        pd.read_parquet(one / "devices.parquet"), pd.read_parquet(other / "devices.parquet"), check_exact=True
    )
