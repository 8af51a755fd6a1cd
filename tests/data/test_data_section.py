"""The `data:` section: shorthand, defaults, and keys that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from h2fdp.config import Section, check, empty_document
from h2fdp.data import DATA_SETS, DataOptions, DataSection, load
from h2fdp.errors import UserError
from h2fdp.experiment.sections import OTHER_NAMES
from h2fdp.streams import Streams


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


def test_synthetic_data_have_the_defaults_of_their_authors_but_for_size():
    section = read("synthetic")
    assert (section.alpha, section.beta, section.features, section.classes) == (None, None, 20, 10)
    data = load(section, 3, Streams(1))
    same = load(read({"name": "synthetic", "alpha": 0.5, "beta": 0.5, "test": 0.1}), 3, Streams(1))
    assert data.train.y.tolist() == same.train.y.tolist()


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
            "here: name, validation, public, test, partition, normalize",
        ),
        ({"name": "synthetic", "partition": {"dirichlet": 1}}, "synthetic records are drawn for each device"),
        ({"name": "synthetic", "smallest_size": 3}, "data.smallest_size: unknown key; did you mean `data.records`?"),
        ({"name": "digits", "device_test_share": 0.1}, "data.device_test_share: unknown key; did you mean `data.test`"),
        ({"name": "synthetic", "normalize": "unit"}, "data.normalize: `normalize` means nothing for synthetic"),
        ({"name": "synthetic", "partition": "iid", "beta": 1}, "`beta` means nothing with `partition: iid`"),
        ({"name": "digits", "normalize": "wild"}, "data.normalize: expected"),
        ({"name": "digits", "validation": 1}, "data.validation: expected a number of at least 0 and below 1, found 1"),
        ({"name": "digits", "partitions": "iid"}, "data.partitions: unknown key; did you mean `partition`?"),
        ({"name": "digits", "partition": {"dirichlet": 0}}, "data.partition.dirichlet: expected a number from 0.0001"),
        ({"name": "digits", "partition": "any"}, "data.partition: expected iid, natural or keys and values"),
        (
            {"name": "npz", "path": "a", "partition": {"natural": True, "sizes": {"lognormal": 1}}},
            "data.partition: `natural` is a word and no key; write partition: natural",
        ),
        ({"name": "fashion_mnist"}, "did you mean `fashion-mnist`?"),
        ("imagenet", f'data: expected one of {", ".join(DATA_SETS.names)}, or module:Name, found "imagenet'),
        ({"name": "npz"}, "data.path: the key is missing; expected the path of a file"),
        ({"name": "npz", "path": "a\0b"}, "data.path: no path: embedded null byte"),
        ({"name": 3}, "data.name: expected one of digits"),
        (3, "or module:Name, found 3"),
        ({"name": "synthetic", "alpha": float("nan")}, "data.alpha: expected a finite number of at least 0, found NaN"),
        ({"name": "synthetic", "classes": 1}, "data.classes: expected a whole number from 2"),
    ],
)
def test_a_wrong_section_is_told_by_its_key(value, message):
    assert message in problem(value)


def test_a_path_is_relative_to_the_file_and_written_absolute(tmp_path):
    written = empty_document("x.yaml", tmp_path / "a", {"data": {"name": "npz", "path": "../b/c.npz"}})
    assert check(File, written).data.path == str(tmp_path / "b" / "c.npz")
