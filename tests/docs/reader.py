"""Somebody who follows a page: writes its files, types its commands, runs its Python, and compares what comes out."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from h2fdp.cli.main import MISTAKE, main
from tests.docs.agreement import agree
from tests.docs.blocks import Block, Step, steps_of

REPOSITORY = Path(__file__).parents[2]


class Reader:
    """Follows blocks one after another, in the current directory.

    A YAML block begins with a comment: `# FILE` (save this as FILE), `# FILE, added` (at its end) or
    `# FILE, the line KEY:` (instead of the line that begins with KEY:). So does a Python block that is a module,
    `# FILE.py`; the others share their names, and a text block is what the Python block before it prints. A command's
    output is what it prints to standard output, or, where that is nothing and the exit code says that it was a user's
    mistake, to standard error.

    Attributes:
        wrong: what came out otherwise than the page says.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wrong: list[str] = []
        self._names: dict[str, Any] = {}
        self._printed = ""
        self._monkeypatch = monkeypatch

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        follow: dict[str, Callable[[Block], None]] = {
            "yaml": self._save,
            "python": self._run,
            "text": self._compare_with_print,
            "console": self._type,
        }
        assert block.language in follow, f"line {block.line}: nobody knows what to do with {block.language!r}"
        follow[block.language](block)

    def _save(self, block: Block) -> None:
        head, body = block.text.split("\n", 1)
        name, _, how = head.removeprefix("# ").partition(", ")
        file = Path(name)
        if not how:
            file.write_text(body)
        elif how == "added":
            file.write_text(file.read_text() + body)
        else:
            key = how.removeprefix("the line ")
            lines = file.read_text().splitlines(keepends=True)
            assert sum(line.startswith(key) for line in lines) == 1, f"line {block.line}: no one line {key}"
            file.write_text("".join(body if line.startswith(key) else line for line in lines))

    def _run(self, block: Block) -> None:
        if re.match(r"# \S+\.py\n", block.text):
            self._save(block)
            return
        with redirect_stdout(_Caught()) as out:
            exec(compile(block.text, f"the page, from line {block.line}", "exec"), self._names)
        self._printed = out.text()

    def _compare_with_print(self, block: Block) -> None:
        self._compare(block.text, self._printed, block.line)

    def _type(self, block: Block) -> None:
        for step in steps_of(block):
            words = shlex.split(step.command)
            if words[0] == "h2fdp":
                self._call(step, words[1:])
            elif step.command == "make demo":
                self._call(step, _demo())
            elif words[0] == "mkdir":
                Path(words[1]).mkdir()
            elif words[0] == "cd":
                self._monkeypatch.chdir(words[1])
            else:  # the environment is the one that the test runs in
                assert step.command == ". .venv/bin/activate", f"line {step.line}: {step.command}"

    def _call(self, step: Step, words: list[str]) -> None:
        self._monkeypatch.setattr(sys, "argv", ["h2fdp", *words])
        code = 0
        with redirect_stdout(_Caught()) as out, redirect_stderr(_Caught()) as err:
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        if code not in (0, MISTAKE) or (code == MISTAKE and out.text()):
            self.wrong.append(f"line {step.line}: exit code {code}\n{out.text()}{err.text()}")
        elif code == MISTAKE:
            self._compare(step.shown, err.text(), step.line)
        else:
            self._compare(step.shown, out.text(), step.line)

    def _compare(self, shown: str, found: str, line: int) -> None:
        if not agree(shown, found):
            self.wrong.append(f"line {line}: the page shows\n{shown}but this comes out\n{found}")


class _Caught(TextIOWrapper):
    """What is written to a stream in the encoding of today's terminals."""

    def __init__(self) -> None:
        super().__init__(BytesIO(), encoding="utf-8")

    def text(self) -> str:
        """All of it so far."""
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, BytesIO)
        return buffer.getvalue().decode()


def _demo() -> list[str]:
    """The command of `make demo`, on one host in this process: equal bits, without Ray's start."""
    makefile = (REPOSITORY / "Makefile").read_text()
    command = makefile.partition("\ndemo:")[2].splitlines()[1].strip()
    words = [str(REPOSITORY / word) if word.startswith("experiments/") else word for word in shlex.split(command)]
    assert words[0] == "$(BIN)/h2fdp", command
    return [*words[1:], "--set", "runtime.backend=inline", "--set", "runtime.hosts=1", "--out", os.path.abspath("demo")]
