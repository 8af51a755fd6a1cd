"""What stands between the fences of a Markdown page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\S*)(?: .*)?$")  # a directive has a path after its name
_PROMPT = "$ "


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: of its first line in the page, from 1.
    """

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Step:
    """A command after a prompt, and what the page shows below it."""

    command: str
    shown: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    blocks: list[Block] = []
    language, start, inside = "", 0, False
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if fence and not inside:
            language, start, inside = fence[1], number, True
        elif fence:
            blocks.append(Block(language, "\n".join(lines[start : number - 1]) + "\n", start + 1))
            inside = False
    assert not inside, f"{page}: the block of line {start} does not end"
    return blocks


def steps_of(block: Block) -> list[Step]:
    r"""The commands of a console block; a command goes on in the next line after a backslash."""
    steps: list[Step] = []
    lines = iter(enumerate(block.text.splitlines(), start=block.line))
    for number, line in lines:
        if line.startswith(_PROMPT):
            command = line.removeprefix(_PROMPT)
            while command.endswith("\\"):
                command = command[:-1] + next(lines)[1].strip()
            steps.append(Step(command, "", number))
        else:
            assert steps, f"line {number}: an output without a command"
            last = steps.pop()
            steps.append(Step(last.command, f"{last.shown}{line}\n", last.line))
    return steps
