"""Messages about wrong values: file, line, key, what was found and what would be right, all at once."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from h2fdp.config import Document, Section, check, parse
from h2fdp.config.fields import BY_SHAPE, Count, Expect, Flag, Number, Positive, Probability
from h2fdp.errors import UserError


class Range(Section):
    uniform: Annotated[list[Positive], Field(min_length=2, max_length=2), Expect("[lowest, highest]")]


class Inner(Section):
    epsilon: Positive = 1.0
    share: Probability = 1.0
    sizes: list[Count] = Field(default_factory=list)


class Outer(Section):
    name: str = "x"
    inner: Inner = Inner()
    flag: Flag = True
    every: Count | Literal["never"] | None = 1
    distance: Annotated[
        Positive | Range,
        BY_SHAPE,
        Expect("a number above 0 or {uniform: [lowest, highest]}"),
    ] = 1.0
    parts: dict[str, Inner] = Field(default_factory=dict)
    weight: Number = 0.0


def problems(text):
    with pytest.raises(UserError) as caught:
        check(Outer, Document("a.yaml", parse(text, "a.yaml"), Path()))
    return str(caught.value).splitlines()


def test_all_problems_come_at_once_with_their_lines():
    assert problems("""
inner:
  epsilon: -1
  share: 1.2
  sizes: [1,
          0]
nmae: y
flag: maybe
""") == [
        "a.yaml:3: inner.epsilon: expected a finite number above 0, found -1",
        "a.yaml:4: inner.share: expected a number from 0 to 1, found 1.2",
        "a.yaml:6: inner.sizes[1]: expected a whole number of at least 1, found 0",
        'a.yaml:8: flag: expected true or false, found "maybe"',
        "a.yaml:7: nmae: unknown key; did you mean `name`?",
    ]


def test_an_unknown_key_unlike_any_other_lists_the_known_ones():
    assert problems("inner: {zzz: 1}") == ["a.yaml:1: inner.zzz: unknown key; known here: epsilon, share, sizes"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (".nan", "NaN"),
        ("two", '"two"'),
        ("null", "nothing"),
        ("[]", "an empty list"),
        ("9" * 350, "a number beyond 2^31"),
    ],
)
def test_what_is_no_number_is_quoted(written, found):
    assert problems(f"inner: {{epsilon: {written}}}") == [
        f"a.yaml:1: inner.epsilon: expected a finite number above 0, found {found}"
    ]


@pytest.mark.parametrize("written", ["1.5", "yes", "'3'"])
def test_integers_are_strict(written):
    assert problems(f"inner: {{sizes: [{written}]}}")[0].startswith("a.yaml:1: inner.sizes[0]: expected a whole number")


def test_the_place_of_a_union_is_the_key_that_the_user_wrote():
    assert problems("every: 0") == ["a.yaml:1: every: expected a whole number of at least 1 or never, found 0"]


def test_a_union_told_apart_by_shape_reports_the_member_that_was_meant():
    assert problems("distance: -3") == [
        "a.yaml:1: distance: expected a number above 0 or {uniform: [lowest, highest]}, found -3"
    ]
    assert problems("distance: {uniform: [1, -3]}") == [
        "a.yaml:1: distance.uniform[1]: expected a finite number above 0, found -3"
    ]
    assert problems("distance: {unifrom: [1, 3]}") == [
        "a.yaml:1: distance.uniform: the key is missing; expected [lowest, highest]",
        "a.yaml:1: distance.unifrom: unknown key; did you mean `uniform`?",
    ]


def test_a_flood_of_problems_is_cut():
    told = problems("inner: {sizes: [" + "0, " * 1000 + "]}")
    assert len(told) == 51
    assert told[-1].endswith("and 950 more problems")
