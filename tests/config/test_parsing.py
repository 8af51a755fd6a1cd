"""YAML text as values with places: what is accepted, and what is refused within bounds."""

import pytest

from h2fdp.config import parse
from h2fdp.config.parsing import DEEPEST_NESTING, LARGEST_EXPANSION
from h2fdp.errors import UserError


def values(text):
    return parse(text, "a.yaml").plain()


def refusal(text):
    with pytest.raises(UserError) as caught:
        parse(text, "a.yaml")
    return str(caught.value)


def test_plain_words_follow_yaml_1_2():
    text = "[1, -3, 1e-5, 2.5, 0x10, no, yes, on, true, null, ~, '7', 1_000, .inf]"
    assert values(text) == [1, -3, 1e-5, 2.5, 16, "no", "yes", "on", True, None, None, "7", "1_000", float("inf")]


def test_anchors_aliases_and_merge_keys_are_followed():
    text = "base: &b {x: 1, y: 2}\ncopy: *b\nmerged: {<<: *b, y: 3}\n"
    assert values(text) == {"base": {"x": 1, "y": 2}, "copy": {"x": 1, "y": 2}, "merged": {"x": 1, "y": 3}}


def test_a_value_of_a_mapping_is_placed_at_its_key():
    root = parse("a:\n  - 1\nb:\n\n\n    c: 2\n", "a.yaml")
    assert root.content["a"].where == "a.yaml:1"
    assert root.content["a"].content[0].where == "a.yaml:2"
    assert root.content["b"].where == "a.yaml:3"
    assert root.content["b"].content["c"].where == "a.yaml:6"


def test_every_duplicate_key_is_told_with_the_line_of_the_first():
    assert refusal("a: 1\nb: {c: 1, c: 2}\na:\n  d: 3\n").splitlines() == [
        "a.yaml:2: c: duplicate key (first on line 2)",
        "a.yaml:3: a: duplicate key (first on line 1)",
    ]


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system [echo]", "!!python/name:os.system", "!!binary aGk=", "!foo {a: 1}", "!!set {a}"],
)
def test_tags_that_construct_objects_are_refused(tag):
    assert "a.yaml:1: the tag" in refusal(f"a: {tag}")


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "{a: " * 100_000, "- " * 100_000 + "x", "? " * 100_000])
def test_deep_nesting_is_refused_before_anything_recurses(text):
    assert f"nested deeper than {DEEPEST_NESTING} levels" in refusal(text)


@pytest.mark.parametrize("body", ["[{}]", "{{<<: [{}]}}"])
def test_an_explosion_of_aliases_is_refused_at_once(body):
    lines = [f"a{step}: &a{step} {body.format(','.join([f'*a{step - 1}'] * 10))}" for step in range(1, 40)]
    assert f"more than {LARGEST_EXPANSION:,} values" in refusal("\n".join(["a0: &a0 {k: 1}", *lines]))


@pytest.mark.parametrize("text", ["a: [1, 2", "a: 'x", "a: \x01", "*nothing"])
def test_what_is_not_yaml_is_one_problem_without_a_traceback(text):
    assert len(refusal(text).splitlines()) == 1
    assert refusal(text).startswith("a.yaml")


def test_a_second_document_is_refused():
    assert refusal("a: 1\n---\nb: 2\n") == "a.yaml:2: a second document begins here; expected one"


def test_a_tab_gets_the_cure():
    with pytest.raises(UserError, match=r"a.yaml:2: not valid YAML: .*; indent with spaces, not with tabs"):
        parse("a:\n\tb: 1\n", "a.yaml")
