"""`h2fdp init`: a folder to begin with: a network, an experiment, a model of one's own, a test."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

NETWORK = """\
# The network: a cloud, edge servers below it, devices below these. Draw it with: h2fdp topology show network.yaml
name: campus
edges:
  - name: clinic
    trusted: true                # sees the updates of its devices, and adds one noise vector to their average
    devices: {count: 6, distance_m: {uniform: [5, 40]}}
  - name: school-{i}
    repeat: 3
    trusted: false               # its devices add noise before they send
    devices: {count: 4, distance_m: {uniform: [10, 80]}}
"""
EXPERIMENT = """\
# The experiment. Look before you train: h2fdp privacy explain FILE
# Train: h2fdp run FILE
topology: network.yaml
data: {name: digits, partition: {labels_per_device: 3}}
method: h2fdp              # h2fdp methods lists the others
privacy: {epsilon: 4}      # accounted for every observer
seed: 1
# The model and how it is trained are chosen, and printed when the run begins. Your own model, the class Net of
# my_model.py: remove the # of the next line.
# model: {name: "my_model:Net", hidden: 128}
# All combinations: remove the # of the next line, and h2fdp sweep FILE
# sweep: {seed: [1, 2, 3], privacy.epsilon: [1, 4]}
"""
MODEL = '''\
"""A model of your own: any torch module without batch norm, dropout or buffers."""

from torch import nn


class Net(nn.Sequential):
    """8x8 images to scores of 10 digits."""

    def __init__(self, hidden=128):
        super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, 10))
'''
TEST = '''\
"""Run with: python -m unittest discover FOLDER"""

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import TestCase

import h2fdp

FILE = Path(__file__).with_name("experiment.yaml")


class ExperimentTest(TestCase):
    def test_the_network_is_the_one_that_is_meant(self):
        network = h2fdp.Experiment.from_file(FILE).topology
        self.assertEqual((network.edges, network.devices), (4, 18))

    def test_a_short_run_keeps_to_its_target_with_the_own_model_too(self):
        for changes in ([], ['model={name: "my_model:Net", hidden: 8}']):
            with self.subTest(changes), TemporaryDirectory() as folder:
                run = h2fdp.Experiment.from_file(FILE, ["training.intervals=2", *changes]).run(Path(folder) / "run")
                self.assertEqual(run.summary["state"], "done")
                self.assertLessEqual(run.privacy.epsilon(observer="edge"), 4)
'''
FILES: Mapping[str, str] = MappingProxyType(
    {"network.yaml": NETWORK, "experiment.yaml": EXPERIMENT, "my_model.py": MODEL, "test_experiment.py": TEST}
)


def init_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, made if it is not there.")],
) -> None:
    """Write a network, an experiment, a model of your own and a test into a folder."""
    from h2fdp.errors import UserError

    there = [name for name in FILES if (directory / name).exists()]
    if there:
        raise UserError(f"has {', '.join(there)} already; nothing was written", str(directory))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(directory)) from None
    typer.echo(f"wrote {', '.join(FILES)}\n\nnext:")
    folder, file = shlex.quote(str(directory)), shlex.quote(str(directory / "experiment.yaml"))
    commands = {
        f"h2fdp topology show {shlex.quote(str(directory / 'network.yaml'))}": "the network",
        f"h2fdp datasets {file}": "who holds which labels",
        f"h2fdp privacy explain {file}": "who learns what, before a run",
        f"h2fdp run {file} --out {shlex.quote(f'runs/{directory.resolve().name}')}": "train",
        f"python -m unittest discover {folder}": "the test",
    }
    margin = max(map(len, commands)) + 2
    for command, purpose in commands.items():
        typer.echo(f"  {command.ljust(margin)}# {purpose}")
