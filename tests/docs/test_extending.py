"""docs/extending.md: its files and programs, one after another, and what it shows of their outputs."""

from tests.docs.blocks import blocks_of
from tests.docs.reader import REPOSITORY, Reader


def test_whoever_follows_the_page_sees_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(monkeypatch)
    for block in blocks_of(REPOSITORY / "docs" / "extending.md"):
        reader.follow(block)
    assert not reader.wrong, "\n\n".join(reader.wrong)
