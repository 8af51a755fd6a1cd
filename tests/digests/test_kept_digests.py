"""Digests of code are kept under all that they are made of, and made again where anything is wrong."""

import pytest

from h2fdp.run.kept_digests import kept_digests

SOURCES = {"a.__init__": b"x = 1", "a.b": b"y = 2"}
MADE = ("digest", {"a": "1", "a.b": "2"})


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Calls of what makes digests, with an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []
    return lambda sources=SOURCES: (kept_digests("here", sources, lambda: calls.append(1) or MADE), len(calls))


def test_they_are_made_once(made):
    assert made() == (MADE, 1)
    assert made() == (MADE, 1)


@pytest.mark.parametrize(
    "changed",
    [{**SOURCES, "a.b": b"y = 3"}, {"a.__init__": b"x = 1"}, {"a.__init__": b"x = 1", "a.c": b"y = 2"}],
    ids=["a text", "a file less", "a name"],
)
def test_any_change_of_the_sources_makes_others(made, changed):
    made()
    assert made(changed)[1] == 2


def test_another_python_makes_others(made, monkeypatch):
    made()
    monkeypatch.setattr("sys.version", "another")
    assert made()[1] == 2


@pytest.mark.parametrize("spoilt", [b"", b"{", b"[]", b"null", b'{"key": 1}', b"\xff\xfe"])
def test_what_is_spoilt_is_made_again(made, tmp_path, spoilt):
    made()
    (file,) = (tmp_path / "h2fdp").iterdir()
    whole = file.read_bytes()
    for text in (spoilt, whole[: len(whole) // 2]):
        file.write_bytes(text)
        before = made()[1]
        assert made() == (MADE, before), "and kept again"
    assert before == 3


def test_without_a_place_to_write_to_nothing_is_kept(made, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert made() == (MADE, 1)
    assert made() == (MADE, 2)
