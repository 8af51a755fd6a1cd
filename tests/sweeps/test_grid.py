"""The points of a `sweep:` section: every combination, named; wrong sections told by line."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp import UserError
from h2fdp.config import Document, parse
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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "sweep: {}",
            ["s.yaml:1: sweep: the sweep is empty; expected keys with lists of values, as `seed: [1, 2, 3]`"],
        ),
        ("sweep:\n  seed: 3", ["s.yaml:2: sweep.seed: expected a list of at least one value, found 3"]),
        ("sweep:\n  seed: [1, 2, 1.0]", ["s.yaml:2: sweep.seed: the value 1.0 comes twice"]),
        ('sweep:\n  seed: [1]\n  "method, seed": [[hfl, 1]]', ["s.yaml:3: sweep.seed: is swept twice"]),
        (
            'sweep:\n  "method, seed": [[hfl], hfl]',
            [
                "s.yaml:2: sweep.method, seed: expected a list of 2 values, one for each key, found a list",
                's.yaml:2: sweep.method, seed: expected a list of 2 values, one for each key, found "hfl"',
            ],
        ),
    ],
)
def test_wrong_sections_are_told(text, told):
    assert problems(text) == told


SMALL = st.recursive(  # values of few letters, of which many would have one name if something was left out
    st.sampled_from(["a", 1, True, "1", "a=1", "a+1", "a+a=1"]),
    lambda part: (
        st.lists(part, max_size=2) | st.dictionaries(st.sampled_from(["a", "extends", "a.a"]), part, max_size=2)
    ),
    max_leaves=3,
)


@settings(max_examples=300)
@given(SMALL, SMALL)
def test_no_two_values_have_one_name(one, other):
    assert (name_of({"a": one}) == name_of({"a": other})) == (word(one) == word(other))
