"""docs/extending.md: every part shown there runs, named by a file and handed in from Python."""

import re
import sys
from itertools import pairwise

import pytest
import yaml

import h2fdp
from h2fdp import Experiment
from tests.docs.blocks import blocks_of
from tests.docs.reader import REPOSITORY, Reader

PAGE = REPOSITORY / "docs" / "extending.md"
FOLLOWED = PAGE.read_text()[: PAGE.read_text().index("## A schedule")].count("\n")  # the line where a program begins
BLOCKS = [block for block in blocks_of(PAGE) if block.line < FOLLOWED]
PARTS = [
    (code.text, example.text)
    for code, example in pairwise(BLOCKS)
    if (code.language, example.language) == ("python", "yaml")
]
MODULES = [re.search(r"(\w+):\w+", example)[1] for _, example in PARTS]
BASE = {
    "topology": {"edges": [{"name": "a", "trusted": True, "devices": {"count": 2}}]},
    "data": "digits",
    "model": "softmax",
    "method": "h2fdp",
    "training": {"intervals": 3, "local_steps": 2, "aggregate_every": 1, "batch_size": 8},
    "privacy": {"epsilon": 1000},
}


@pytest.fixture
def folder(tmp_path):
    """The modules of the page beside an experiment file."""
    path = list(sys.path)
    for module, (code, _) in zip(MODULES, PARTS, strict=True):
        (tmp_path / f"{module}.py").write_text(code)
    yield tmp_path
    for module in MODULES:
        sys.modules.pop(module, None)
    sys.path[:] = path


def file_of(folder, example):
    changes = yaml.safe_load(example)
    training = BASE["training"] | changes.pop("training", {})
    (folder / "e.yaml").write_text(yaml.safe_dump(BASE | changes | {"training": training}))
    return folder / "e.yaml"


def test_every_code_of_the_page_has_an_example_of_its_use():
    assert len(PARTS) * 2 == len(BLOCKS)


@pytest.mark.parametrize("example", [example for _, example in PARTS], ids=MODULES)
def test_a_part_that_a_file_names_runs_and_resumes_to_the_bit(folder, example):
    file = file_of(folder, example)
    whole = Experiment.from_file(file).run(folder / "whole")

    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Experiment.from_file(file).run(folder / "cut", on_interval=stop)
    resumed = h2fdp.resume(folder / "cut")
    assert resumed.metrics["loss"].tolist() == whole.metrics["loss"].tolist()
    assert resumed.summary["fresh_from"] == []


def test_whoever_follows_the_program_for_a_schedule_sees_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(monkeypatch)
    for block in blocks_of(PAGE):
        if block.line > FOLLOWED:
            reader.follow(block)
    assert not reader.wrong, "\n\n".join(reader.wrong)
