"""Changing a document as --set does, and naming its places."""

import os
from pathlib import Path

import pytest

from h2fdp.config import Document, parse, read_document
from h2fdp.errors import UserError


def document(text):
    return Document("a.yaml", parse(text, "a.yaml"), Path())


def test_set_makes_the_sections_that_are_missing():
    changed = document("a: 1")
    changed.set("b.c.d", 2, "--set")
    assert changed.values() == {"a": 1, "b": {"c": {"d": 2}}}
    assert changed.where(("b", "c", "d")) == "--set"


def test_set_reaches_items_of_lists_as_messages_spell_them():
    changed = document("edges: [{name: x}, {name: y}]")
    changed.set("edges[1].trusted", True, "--set")
    assert changed.values() == {"edges": [{"name": "x"}, {"name": "y", "trusted": True}]}


def test_set_leaves_what_shares_an_anchor_alone():
    changed = document("a: &s {p: {q: 1}}\nb: *s\nc: [*s]")
    changed.set("a.p.q", 2, "--set")
    assert changed.values() == {"a": {"p": {"q": 2}}, "b": {"p": {"q": 1}}, "c": [{"p": {"q": 1}}]}


@pytest.mark.parametrize("key", ["a.b", "l.x", "l[5]", "l[0].x", "", ".", "a..b", "a.", "l[x]", "[0]", "l[-1]"])
def test_set_refuses_keys_that_lead_nowhere(key):
    with pytest.raises(UserError):
        document("a: 1\nl: [1]").set(key, 2, "--set")


def test_the_place_of_a_missing_value_is_that_of_its_parent():
    known = document("a:\n  b: {c: 1}\n")
    assert known.where(("a", "b", "x")) == "a.yaml:2"
    assert known.where(("z",)) == "a.yaml:1"


def test_a_part_names_the_whole_path():
    part = document("a: 1\ntopology:\n  edges: [{name: x}]\n").part("topology")
    assert part.key(("edges", 0, "name")) == "topology.edges[0].name"
    assert part.where(("edges", 0, "name")) == "a.yaml:3"


def refusal(path):
    with pytest.raises(UserError) as caught:
        read_document(path)
    return str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    assert "expected a regular file" in refusal(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", ["", "  \n\n", "# only a comment\n", "---\n"])
def test_an_empty_file(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    assert "empty" in refusal(tmp_path / "a.yaml") or "expected keys and values" in refusal(tmp_path / "a.yaml")


@pytest.mark.parametrize("content", [bytes(range(256)), b"\x00" * 1000, b"\x89PNG\r\n\x1a\n\x00\xff", b"\xff\xfea\x00"])
def test_a_binary_file(tmp_path, content):
    (tmp_path / "a.yaml").write_bytes(content)
    assert len(refusal(tmp_path / "a.yaml").splitlines()) == 1


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_document(tmp_path / "a.yaml").values() == {"a": 1, "b": 2}
