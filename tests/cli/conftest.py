"""A small experiment for commands."""

import pytest

SMALL = """\
name: small
topology: {edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}
data: digits
model: softmax
training: {extends: paper, intervals: 3, local_steps: 4, aggregate_every: 2, batch_size: 4}
privacy: {epsilon: 20.0, calibration: paper, accountant: rdp}
"""


@pytest.fixture
def experiment(tmp_path):
    """The file of a small experiment."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file
