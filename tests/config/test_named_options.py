"""Named choices with options of their own, as a field of a schema."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from h2fdp.config import Section, check, empty_document
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
    shape: Annotated[Any, SHAPES] = Circle()


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
        (
            {"name": "circle", "sides": 3},
            "x.yaml: shape.sides: `sides` means nothing for circle; allowed here: name, radius",
        ),
        ({"name": "circle", "radus": 3}, "x.yaml: shape.radus: unknown key; did you mean `radius`?"),
        ({"name": "circle", "radius": -1.0}, "x.yaml: shape.radius: expected a finite number above 0, found -1.0"),
        ("polygon", "x.yaml: shape.sides: the key is missing; expected a whole number of at least 1"),
        (
            "shapes.Square",
            'x.yaml: shape: expected one of circle, polygon, or module:Name, found "shapes.Square"; '
            "did you mean `shapes:Square`?",
        ),
    ],
)
def test_a_mistake_is_reported_once_at_its_key(value, message):
    assert refusal(value) == message


def test_an_object_from_python_is_a_choice_that_each_run_copies():
    mine = Square(3.0)
    part = read(mine).shape
    made = part.make()
    assert made.area() == 9.0
    assert made is not mine
    assert read(mine).model_dump(mode="json") == {"shape": f"{__name__}.Square"}


def test_an_object_of_another_kind_is_refused():
    assert refusal(Path) == "x.yaml: shape: expected a shape, found pathlib.Path, which has no `area`"
