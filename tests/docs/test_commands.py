"""Commands and programs on the pages of docs and experiments: the command line takes each, and what is short is run."""

import shlex

import pytest
import typer

from experiments.reproduce import app as reproduce
from h2fdp.cli.main import app
from tests.docs.blocks import blocks_of
from tests.docs.reader import REPOSITORY, Reader

PROGRAMS = {"h2fdp ": app, "python -m experiments.reproduce ": reproduce}
FOLDERS = ("docs/*.md", "experiments/**/*.md")
PAGES = [REPOSITORY / "README.md", *(page for folder in FOLDERS for page in sorted(REPOSITORY.glob(folder)))]


def commands_of(page):
    for block in blocks_of(page):
        for number, line in enumerate(block.text.splitlines(), start=block.line):
            command = line.removeprefix("$ ")
            for program, takes in PROGRAMS.items():
                if block.language == "console" and command.startswith(program):
                    yield pytest.param(takes, command.removeprefix(program), id=f"{page.name}:{number}")


@pytest.mark.parametrize(("program", "command"), [each for page in PAGES for each in commands_of(page)])
def test_the_command_line_takes_what_a_page_shows(program, command):
    words = shlex.split(command, comments=True)
    parser = typer.main.get_command(program)
    context = parser.make_context("h2fdp", words[:1], resilient_parsing=True)
    while hasattr(parser, "get_command"):
        parser = parser.get_command(context, words.pop(0))
        assert parser is not None, command
    with parser.make_context(parser.name, words):
        pass


@pytest.mark.usefixtures("users_defaults")
@pytest.mark.parametrize("page", ["README.md", "docs/reference.md", "docs/notebooks.md", "docs/data.md"])
def test_the_programs_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(monkeypatch)
    for block in blocks_of(REPOSITORY / page):
        if block.language in ("python", "text"):
            reader.follow(block)
    assert not reader.wrong, "\n\n".join(reader.wrong)
