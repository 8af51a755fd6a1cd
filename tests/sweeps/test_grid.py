"""The points of a `sweep:` section: every combination, named; wrong sections told by line."""

from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from h2fdp import UserError
from h2fdp.config import Document, parse
from h2fdp.config.parsing import plain_scalar
from h2fdp.sweeps.grid import name_of, points_of, word


def document(text):
    return Document("s.yaml", parse(text, "s.yaml"), Path())


def points(section):
    return points_of(document(f"sweep: {section}"))


def problems(text):
    with pytest.raises(UserError) as error:
        points_of(document(text))
    return [str(problem) for problem in error.value.problems]


def test_every_combination_once_the_last_key_fastest():
    found = [point.values for point in points("{seed: [1, 2], privacy.epsilon: [0.5, 1, 2]}")]
    assert found == [{"seed": s, "privacy.epsilon": e} for s, e in product([1, 2], [0.5, 1, 2])]


def test_linked_keys_change_together():
    found = points('{"method, privacy.epsilon": [[hfl, 1], [h2fdp, 0.5]], seed: [1, 2]}')
    assert [tuple(point.values.values()) for point in found] == [
        ("hfl", 1, 1),
        ("hfl", 1, 2),
        ("h2fdp", 0.5, 1),
        ("h2fdp", 0.5, 2),
    ]
    assert found[0].name == "method=hfl,privacy.epsilon=1,seed=1"


def test_each_value_knows_its_line():
    (first, second) = points_of(document("sweep:\n  seed:\n    - 4\n    - 7\n"))
    assert (first.settings[0].where, second.settings[0].where) == ("s.yaml:3", "s.yaml:4")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed: 1", ["s.yaml:1: sweep: the sweep is empty; expected keys with lists of values, as `seed: [1, 2, 3]`"]),
        (
            "sweep: {}",
            ["s.yaml:1: sweep: the sweep is empty; expected keys with lists of values, as `seed: [1, 2, 3]`"],
        ),
        ("sweep:\n  seed: 3", ["s.yaml:2: sweep.seed: expected a list of at least one value, found 3"]),
        ("sweep:\n  seed: []", ["s.yaml:2: sweep.seed: expected a list of at least one value, found an empty list"]),
        ("sweep:\n  seed: [1, 2, 1.0]", ["s.yaml:2: sweep.seed: the value 1.0 comes twice"]),
        ('sweep:\n  seed: [1]\n  "method, seed": [[hfl, 1]]', ["s.yaml:3: sweep.seed: is swept twice"]),
        ("sweep:\n  sweep.seed: [[1]]", ["s.yaml:2: sweep.sweep.seed: `sweep` cannot be a key of the grid"]),
        (
            'sweep:\n  "method, seed": [[hfl], hfl]',
            [
                "s.yaml:2: sweep.method, seed: expected a list of 2 values, one for each key, found a list",
                's.yaml:2: sweep.method, seed: expected a list of 2 values, one for each key, found "hfl"',
            ],
        ),
        (
            f"sweep: {{a: {list(range(400))}, b: {list(range(400))}}}",
            ["s.yaml:1: sweep: expected at most 100,000 runs, found 160,000"],
        ),
    ],
)
def test_wrong_sections_are_told(text, told):
    assert problems(text) == told


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet="abA1.-_ é/~:", max_size=12),
)
NESTED = st.one_of(
    VALUES, st.lists(VALUES, min_size=1, max_size=3), st.dictionaries(st.text("abc", min_size=1), VALUES)
)


@given(VALUES)
def test_a_word_is_the_value_as_yaml_reads_it(value):
    text = word(value)
    assert (yaml.safe_load(text) if text.startswith('"') else plain_scalar(text)) == value


@given(NESTED, NESTED)
def test_names_are_names_of_folders_and_tell_values_apart(one, other):
    names = [name_of({"seed": 1, "data": value}) for value in (one, other)]
    for name in names:
        assert "/" not in name
        assert "\0" not in name
        assert len(name.encode()) <= 255
        assert name not in (".", "..")
    assert (names[0] == names[1]) == (word(one) == word(other))


def test_long_and_strange_values_end_with_a_digest():
    assert name_of({"data": {"name": "npz", "path": "../a b.npz"}}).startswith("data=_name__npz,_path")
    assert len(name_of({"model": "x" * 1000})) < 170
