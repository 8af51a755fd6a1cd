"""What a change crosses: the files of the package that it touches, and the lines that stood in them to be read.

    python -m benchmarks.crossing BASE HEAD     # of the commits after BASE up to HEAD, as one change
    python -m benchmarks.crossing               # of the twelve features before this measure, each by its main commit

- files: modules of the package that existed at BASE and are changed or deleted at HEAD;
- rooms: the folders (or single modules) of the package that they are in;
- read: lines of code that these files had at BASE, which somebody had to read;
- new: modules that exist at HEAD alone;
- net: lines of code that the package has more at HEAD.

A feature should touch at most 7 files, which hold at most 1,500 lines. Lines of code are lines with a token that is no
comment and belongs to no docstring. A file that was moved counts as touched if its text changed.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tokenize
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
FILES, READ = 7, 1_500  # the most that a feature should need
# Main commits of features of 27 and 28 November 2026; what was mended afterwards is not counted.
FEATURES = {
    "association": "fc8ee3ac",
    "buffers, traces": "027c584e",
    "compression down": "3ac811c6",
    "relays": "1dbf014a",
    "band shares, over the air": "f0d766c0",
    "liars, robust rules": "538d41d3",
    "correlated noise": "2248b305",
    "device turns, budget shares": "741b2cad",
    "models of devices' own": "97d5ae85",
    "one message": "8f6f70f5",
    "models of subnets": "4b3c6a42",
    "private mean": "21f759c7",
}


@dataclass(frozen=True)
class Crossing:
    """The numbers of one change, see above."""

    files: int
    rooms: int
    read: int
    new: int
    net: int


def crossing(base: str, head: str, root: Path = ROOT) -> Crossing:
    """The numbers of the commits after `base` up to `head`, as one change.

    Args:
        root: folder of the checkout.

    Raises:
        subprocess.CalledProcessError: no such commits.
    """

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout

    def lines(commit: str, path: str) -> int:
        return lines_of_code(git("show", f"{commit}:{path}"))

    changes = [line.split("\t") for line in git("diff", "--name-status", "-M", base, head, "--", "h2fdp").splitlines()]

    def changed(before: str, after: str) -> bool:
        return git("show", f"{base}:{before}") != git("show", f"{head}:{after}")

    modules = [(kind[0], paths) for kind, *paths in changes if paths[-1].endswith(".py")]
    touched = [paths[0] for kind, paths in modules if kind in "MD" or (kind == "R" and changed(*paths))]
    return Crossing(
        files=len(touched),
        rooms=len({PurePosixPath(path).parts[1] for path in touched}),
        read=sum(lines(base, path) for path in touched),
        new=sum(kind == "A" for kind, _ in modules),
        net=sum(
            (0 if kind == "D" else lines(head, paths[-1])) - (0 if kind == "A" else lines(base, paths[0]))
            for kind, paths in modules
        ),
    )


def lines_of_code(text: str) -> int:
    """Lines that have code: no blanks, no comments, no strings that are statements.

    >>> lines_of_code('"A docstring."' + chr(10) * 2 + "x = [  # a list" + chr(10) + "    1]" + chr(10))
    2
    """
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def table(changes: dict[str, Crossing]) -> str:
    """A line for each change, and their medians."""
    rows = {name: [found.files, found.rooms, found.read, found.new, found.net] for name, found in changes.items()}
    if len(rows) > 1:
        rows["median"] = [round(statistics.median(column)) for column in zip(*rows.values(), strict=True)]
    width = max(map(len, rows))
    lines = [f"{'':{width}}  files  rooms   read    new     net"]
    for name, (files, rooms, read, new, net) in rows.items():
        lines.append(f"{name:{width}}  {files:5}  {rooms:5}  {read:5,}  {new:5}  {net:+6,}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commits", nargs="*", metavar="BASE HEAD", help="two commits; none: the twelve features")
    commits: list[str] = parser.parse_args().commits
    if commits and len(commits) != 2:
        parser.error(f"expected two commits, BASE and HEAD, or none; found {len(commits)}")
    changes = {"": tuple(commits)} if commits else {name: (f"{commit}^", commit) for name, commit in FEATURES.items()}
    try:
        print(table({name: crossing(*pair) for name, pair in changes.items()}))
    except subprocess.CalledProcessError as error:
        parser.error(error.stderr.strip().splitlines()[0])
    if commits:
        print(f"A feature should touch at most {FILES} files, which hold at most {READ:,} lines.")


if __name__ == "__main__":
    main()
