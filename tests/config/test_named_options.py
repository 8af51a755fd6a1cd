"""Named choices with options of their own, as a field of a schema."""

from pathlib import Path
from typing import Literal

import pytest

from h2fdp.config import Section, check, empty_document
from h2fdp.config.check import json_schema
from h2fdp.config.fields import Count, Options, Positive
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind
from h2fdp.errors import UserError

SHAPES: Choices[Options] = Choices(OwnKind("a shape", ("area",)))


@SHAPES.register
class Circle(Options):
    name: Literal["circle"] = "circle"
    radius: Positive = 1.0


@SHAPES.register
class Polygon(Options):
    name: Literal["polygon"] = "polygon"
    sides: Count
    length: Positive = 2.0


class File(Section):
    shape: SHAPES.section() = Circle()


class Square:
    def __init__(self, side=1.0):
        self.side = side

    def area(self):
        return self.side**2


def read(value):
    return check(File, empty_document("x.yaml", Path(), {"shape": value}))


def refusal(value):
    with pytest.raises(UserError) as caught:
        read(value)
    return str(caught.value)


def test_a_word_stands_for_a_choice_with_its_defaults():
    assert read("circle").shape == read({"name": "circle"}).shape == Circle(radius=1.0)


def test_the_default_is_written_with_null_for_the_options_of_other_choices():
    assert File().model_dump(mode="json") == {"shape": {"name": "circle", "radius": 1.0, "sides": None, "length": None}}


def test_what_is_written_is_read_back_equal():
    chosen = read({"name": "polygon", "sides": 3})
    assert read(chosen.model_dump(mode="json")["shape"]) == chosen


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "circel",
            'x.yaml: shape: expected one of circle, polygon, or module:Name, found "circel"; did you mean `circle`?',
        ),
        ({"name": 3}, "x.yaml: shape.name: expected one of circle, polygon, or module:Name, found 3"),
        (
            {"radius": 1.0},
            "x.yaml: shape.name: the key is missing; expected one of circle, polygon, or module:Name",
        ),
        (
            {"name": "circle", "sides": 3},
            "x.yaml: shape.sides: `sides` means nothing for circle; allowed here: name, radius",
        ),
        ({"name": "circle", "radus": 3}, "x.yaml: shape.radus: unknown key; did you mean `radius`?"),
        ({"name": "circle", "radius": -1.0}, "x.yaml: shape.radius: expected a finite number above 0, found -1.0"),
        ("polygon", "x.yaml: shape.sides: the key is missing; expected a whole number of at least 1"),
        (3, "x.yaml: shape: expected one of circle, polygon, or module:Name, found 3"),
        (
            "shapes.Square",
            'x.yaml: shape: expected one of circle, polygon, or module:Name, found "shapes.Square"; '
            "did you mean `shapes:Square`?",
        ),
        (
            "my.csv",
            'x.yaml: shape: expected one of circle, polygon, or module:Name, found "my.csv"; '
            "a file or folder is the `path` of one of them",
        ),
        (None, "x.yaml: shape: expected one of circle, polygon, or module:Name, found nothing"),
    ],
)
def test_a_mistake_is_reported_once_at_its_key(value, message):
    assert refusal(value) == message


def test_editors_know_words_names_and_options():
    schema = json_schema(File)
    words, own, members = schema["properties"]["shape"]["anyOf"]
    assert words["enum"] == ["circle", "polygon"]
    assert "pattern" in own
    assert len(members["oneOf"]) == 3
    assert set(schema["$defs"]["Polygon"]["properties"]) == {"name", "sides", "length"}


def test_an_object_from_python_is_a_choice_that_each_run_copies():
    mine = Square(3.0)
    part = read(mine).shape
    made = part.make()
    assert made.area() == 9.0
    assert made is not mine
    assert read(mine).model_dump(mode="json") == {"shape": f"{__name__}.Square"}


def test_a_class_from_python_is_made_anew_each_time():
    part = read(Square).shape
    assert part.make().area() == 1.0
    assert part.make() is not part.make()


def test_an_object_of_another_kind_is_refused():
    assert refusal(Path) == "x.yaml: shape: expected a shape, found pathlib.Path, which has no `area`"
