"""docs/tutorial.md: all of its files, commands and programs, one after another, and what it shows of their outputs."""

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.reader import REPOSITORY, Reader


@pytest.mark.usefixtures("users_defaults")
def test_whoever_follows_the_tutorial_sees_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    reader = Reader(monkeypatch)
    for block in blocks_of(REPOSITORY / "docs" / "tutorial.md"):
        reader.follow(block)
    assert not reader.wrong, "\n\n".join(reader.wrong)


def test_what_stands_for_make_demo_is_run_itself_by_the_checks_of_every_commit():
    assert "make demo" in (REPOSITORY / ".ci" / "run").read_text().splitlines()
