"""Keys and properties that a capability adds to a section of a file."""

import pickle

import pytest
from pydantic import ValidationError

from h2fdp.config.fields import Count, Section, adds_keys, descriptions_of_keys, extended, without_added


@adds_keys("Paper")
class Colours(Section):
    """A key of paper.

    Attributes:
        colour: of the ink.
    """

    colour: str | None = None

    @property
    def ink(self):
        return self.colour or "black"


@adds_keys("Paper")
class Folds(Section):
    """Another key.

    Attributes:
        folds: how often.
    """

    folds: Count = 1


@extended
class Paper(Section):
    """What is printed on.

    Attributes:
        size: of a sheet.
    """

    size: Count = 4

    @property
    def ink(self):
        return "none"


def test_a_section_has_the_keys_that_were_added_behind_its_own_and_others_are_refused():
    assert next(iter(Paper.model_fields)) == "size"
    assert set(Paper.model_fields) == {"size", "colour", "folds"}
    paper = Paper.model_validate({"colour": "red", "folds": 2})
    assert (paper.size, paper.colour, paper.folds) == (4, "red", 2)
    for wrong in ({"color": "red"}, {"folds": 0}):
        with pytest.raises(ValidationError):
            Paper.model_validate(wrong)


def test_properties_of_what_was_added_replace_those_of_the_section():
    assert Paper.model_validate({"colour": "red"}).ink == "red"
    assert Paper().ink == "black"


def test_each_key_says_what_it_means_and_the_section_is_described_by_its_own_words():
    meant = {"size": "of a sheet.", "colour": "of the ink.", "folds": "how often."}
    assert descriptions_of_keys(Paper).items() >= meant.items()
    schema = Paper.model_json_schema()
    assert schema["description"] == "What is printed on."
    assert schema["properties"]["colour"]["description"] == "of the ink."


def test_a_section_survives_the_way_to_another_process():
    paper = Paper(size=2, colour="red")
    assert pickle.loads(pickle.dumps(paper)) == paper


def test_without_what_was_added_a_section_keeps_its_own_keys():
    assert without_added(Paper(size=2, colour="red", folds=3)) == Paper(size=2)


def test_a_section_to_which_nothing_was_added_is_as_it_was():
    @extended
    class Plain(Section):
        size: Count = 4

    assert list(Plain.model_fields) == ["size"]
    assert without_added(Plain(size=2)) == Plain(size=2)
