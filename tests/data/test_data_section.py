"""The `data:` section: shorthand, defaults, and keys that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from h2fdp.config import Section, check, empty_document
from h2fdp.data.federate import DataSection
from h2fdp.data.source import DataOptions
from h2fdp.errors import UserError
from h2fdp.experiment.sections import OTHER_NAMES


class File(Section):
    other_names = OTHER_NAMES
    data: DataSection


def read(value: Any) -> DataOptions:
    return check(File, empty_document("x.yaml", Path(), {"data": value})).data


def problem(value: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(value)
    assert len(caught.value.problems) == 1, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["digits", "fashion-mnist", "mnist", "cifar10"])
def test_a_word_is_a_data_set_in_the_papers_partition(name):
    section = read(name)
    assert (section.name, section.normalize, section.validation) == (name, "standard", 0.0)
    assert section.partition is None
    assert section.spread.labels_per_device == 3


@pytest.mark.parametrize(
    "value",
    [
        "digits",
        "synthetic",
        {"name": "synthetic", "partition": "iid"},
        {"name": "npz", "path": "a.npz"},
        {"name": "mnist", "partition": "iid"},
    ],
)
def test_a_resolved_section_is_read_back_equal(value):
    section = read(value)
    assert read(File(data=section).model_dump(mode="json")["data"]) == section


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"name": "fashion-mnist", "alpha": 1},
            "x.yaml: data.alpha: `alpha` means nothing for fashion-mnist; allowed "
            "here: name, validation, public, test, partition, prelude, augment, normalize",
        ),
        ({"name": "synthetic", "smallest_size": 3}, "data.smallest_size: unknown key; did you mean `data.records`?"),
        ({"name": "synthetic", "partition": "iid", "beta": 1}, "`beta` means nothing with `partition: iid`"),
        ({"name": "digits", "validation": 1}, "data.validation: expected a number of at least 0 and below 1, found 1"),
        ({"name": "digits", "partition": {"dirichlet": 0}}, "data.partition.dirichlet: expected a number from 0.0001"),
        ({"name": "fashion_mnist"}, "did you mean `fashion-mnist`?"),
        ({"name": "npz"}, "data.path: the key is missing; expected the path of a file"),
    ],
)
def test_a_wrong_section_is_told_by_its_key(value, message):
    assert message in problem(value)


def test_a_path_is_relative_to_the_file_and_written_absolute(tmp_path):
    written = empty_document("x.yaml", tmp_path / "a", {"data": {"name": "npz", "path": "../b/c.npz"}})
    assert check(File, written).data.path == str(tmp_path / "b" / "c.npz")


@pytest.mark.parametrize(
    ("word", "name"),
    [("folder", "images"), ("Image_Folder", "images"), ("csv", "table"), ("npy", "npz"), ("hf", "huggingface")],
)
def test_a_format_by_another_name_says_its_name_here(word, name):
    assert f'"{word}" is `{{name: {name}, path: ...}}` here' in problem({"name": word, "path": "x"})
