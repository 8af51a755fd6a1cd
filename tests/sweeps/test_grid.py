"""The points of a `sweep:` section: every combination, named; wrong sections told by line."""

import re
from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
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
    st.text(alphabet="abA1.-_ é/~:+=,", max_size=12),
)
KEYS = st.one_of(st.just("extends"), st.text("a.=", max_size=2))
FLAT = st.dictionaries(KEYS, VALUES, max_size=3)
NESTED = st.one_of(VALUES, st.lists(VALUES, max_size=3), FLAT, st.dictionaries(KEYS, FLAT, max_size=2))
SMALL = st.recursive(  # values of few letters, of which many would have one name if something was left out
    st.sampled_from(["a", 1, True, "1", "a=1", "a+1", "a+a=1"]),
    lambda part: (
        st.lists(part, max_size=2) | st.dictionaries(st.sampled_from(["a", "extends", "a.a"]), part, max_size=2)
    ),
    max_leaves=3,
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


@settings(max_examples=300)
@given(SMALL, SMALL)
def test_no_two_values_have_one_name(one, other):
    assert (name_of({"a": one}) == name_of({"a": other})) == (word(one) == word(other))


def test_a_value_of_strange_letters_ends_with_its_digest_and_a_long_name_with_that_of_all():
    found = name_of({"data": {"name": "npz", "path": "../a b.npz"}, "seed": 1})
    assert re.fullmatch(r"data=name_npz_path_\.\._a_b\.npz-[0-9a-f]{8},seed=1", found)
    assert len(name_of({"model": "x" * 1000})) < 170
