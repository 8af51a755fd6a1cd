"""A user's YAML file as values that remember their place, read within bounds of size, depth and expansion.

The event stream is turned into values here rather than by PyYAML's loaders: these resolve `no` to false, drop
duplicate keys in silence, construct objects, and their C composer crashes on deep nesting. A plain word means what the
core schema of YAML 1.2 says, in which 1e-5 is a number and `no` is a word. CSV files have no such rules: what separates
their columns is guessed.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from h2fdp.errors import Problem, UserError, near_file, reason_of

_DOTTED = re.compile(r"[^.\[\]]+(\[[0-9]{1,9}\])*(\.[^.\[\]]+(\[[0-9]{1,9}\])*)*")
_STEP = re.compile(r"\[[0-9]+\]|[^.\[\]]+")


@dataclass
class Node:
    """A value with the place it was written at; `content` is a scalar, a list of nodes or a dict of nodes.

    A value of a mapping has the place of its key. `size` counts the values in it and `depth` the levels below it,
    aliases followed: a few lines of text can stand for billions of values, or for thousands of levels.
    """

    content: Any
    where: str
    size: int = 1
    depth: int = 0

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.content, dict):
            return {key: child.plain() for key, child in self.content.items()}
        if isinstance(self.content, list):
            return [child.plain() for child in self.content]
        return self.content


@dataclass
class Document:
    """A user's file, or a part of one: its name, its values, and where each was written.

    `labels` gives the words with which messages begin for the values below a path, where the user's file does not have
    these keys itself: for a part that was cut out of a larger file, or a graph's nodes.
    """

    name: str
    root: Node
    folder: Path
    labels: dict[tuple[str | int, ...], str] = field(default_factory=dict)

    def values(self) -> Any:
        """The plain values, as dicts, lists and scalars."""
        return self.root.plain()

    def where(self, path: Sequence[str | int]) -> str:
        """The place of the value at a path; of its nearest parent when there is none."""
        node = self.root
        for step in path:
            content = node.content
            keys = content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
            if step not in keys:
                break
            node = content[step]
        return node.where

    def key(self, path: Sequence[str | int]) -> str:
        """A path as users write and read it: ``edges[1].devices.distance_m``."""
        depths = (depth for depth in range(len(path), -1, -1) if tuple(path[:depth]) in self.labels)
        labelled = next(depths, 0)
        text = self.labels.get(tuple(path[:labelled]), "")
        for step in path[labelled:]:
            text += f"[{step}]" if isinstance(step, int) else (f".{step}" if text else str(step))
        return text

    def copy(self) -> Document:
        """A document that can be written to without changing this one: what is written to is copied first."""
        return replace(self, root=replace(self.root))

    def part(self, key: str) -> Document:
        """The part of a mapping under a key, whose messages still name the whole path."""
        assert isinstance(self.root.content, dict)
        return Document(self.name, self.root.content[key], self.folder, {(): self.key((key,))})

    def set(self, dotted: str, value: Any, where: str) -> None:
        """Write a value at a dotted key, as `--set` does; sections that are missing are made.

        Items of lists are reached as the messages spell them: ``edges[1].trusted``.
        """
        self.put(_steps(dotted, where), value, where, dotted)

    def put(self, path: Sequence[str | int], value: Any, where: str, dotted: str) -> None:
        """Write a value at a path, of which messages speak as `dotted`."""
        *parents, last = path
        node = self.root
        for step in parents:
            node = _put_child(node, step, None, where, dotted)
        _put_child(node, last, _node(value, where), where, dotted)


def _steps(dotted: str, where: str) -> list[str | int]:
    """The steps of a dotted key: ``edges[1].trusted`` is ``edges``, 1, ``trusted``."""
    if not _DOTTED.fullmatch(dotted):
        raise UserError("expected a dotted key, as `training.intervals` or `edges[0].trusted`", where, dotted)
    return [int(word[1:-1]) if word.startswith("[") else word for word in _STEP.findall(dotted)]


def _put_child(parent: Node, step: str | int, child: Node | None, where: str, dotted: str) -> Node:
    """Put a child at a step, or a copy of the child that is there: a node may be shared with an alias, which must
    not change with it."""
    if isinstance(step, int):
        if not isinstance(parent.content, list) or step >= len(parent.content):
            raise UserError(f"there is no item [{step}]", where, dotted)
        parent.content = list(parent.content)
        parent.content[step] = child or replace(parent.content[step])
    else:
        if not isinstance(parent.content, dict):
            raise UserError(f"there is no section to set `{step}` in", where, dotted)
        parent.content = dict(parent.content)
        parent.content[step] = child or replace(parent.content.get(step, Node({}, where)))
    placed: Node = parent.content[step]
    return placed


def empty_document(name: str, folder: Path, values: Any = None) -> Document:
    """A document that no file holds: values from Python, some of which may have places of their own, or none."""
    return Document(name, _node(values if values is not None else {}, name), folder)


def _node(value: Any, where: str) -> Node:
    if isinstance(value, Node):
        return value
    if isinstance(value, dict):
        return Node({key: _node(child, where) for key, child in value.items()}, where)
    if isinstance(value, (list, tuple)):
        return Node([_node(child, where) for child in value], where)
    return Node(value, where)


DEEPEST_NESTING = 50
LARGEST_EXPANSION = 1_000_000  # values after aliases are followed; ten per cent of what a file of 5 MB can hold
_MOST_PROBLEMS = 50
# Of libyaml where PyYAML has it: six times as fast, with the same text.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT_TAGS = ("tag:yaml.org,2002:str", "!")


_RIGHT = {  # what is wrong as a rule where libyaml says this
    "did not find expected node content": "; is a bracket or a brace before it still open?",
    "did not find expected key": "; is it indented as the lines before it?",
    "mapping values are not allowed in this context": "; is it indented as the lines before it, with one colon?",
    "could not find expected ':'": "; expected `key: value`",
}


def parse(text: str, name: str) -> Node:
    """Parse YAML text into nodes; `name` stands before the line numbers."""
    reader = _Reader(name, yaml.parse(text, Loader=_LOADER))
    try:
        root = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        if "nesting depth" in str(error.problem):  # of the library, which may read ahead of the events that are counted
            raise UserError(f"nested deeper than {DEEPEST_NESTING} levels", where) from None
        tab = mark is not None and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])
        text = str(error.problem or error.context)
        right = "; indent with spaces, not with tabs" if tab else _RIGHT.get(text, "")
        raise UserError(f"not valid YAML: {text}{right}", where) from None
    except yaml.YAMLError as error:
        raise UserError(f"not valid YAML: {' '.join(str(error).split())}", name) from None
    if reader.problems:
        raise UserError(reader.problems)
    if root is None:
        raise UserError("the file is empty", name)
    return root


class _Reader:
    """Nodes of a stream of events; depth is bounded before they recurse."""

    def __init__(self, name: str, events: Iterator[Any]) -> None:
        self.name, self.problems = name, list[Problem]()
        self._events = events
        self._anchors: dict[str | None, Node] = {}  # the last one without an anchor under None, which no alias has

    def document(self) -> Node | None:
        """The only document of the stream; None where it has none."""
        root = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise UserError("a second document begins here; expected one", self._where(event))
                root = self._node(next(self._events), 0)
        return root

    def _where(self, event: Any) -> str:
        return f"{self.name}:{event.start_mark.line + 1}"

    def _node(self, event: Any, depth: int) -> Node:
        """The node that an event begins, so many levels below the root."""
        if len(self.problems) >= _MOST_PROBLEMS:
            raise UserError(self.problems)
        where = self._where(event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise UserError(f"the alias *{event.anchor} refers to nothing defined before it", where)
            return replace(self._anchors[event.anchor], where=where)
        scalar = isinstance(event, yaml.ScalarEvent)
        if event.tag is not None and not (scalar and event.tag in _TEXT_TAGS):
            self.problems.append(Problem(f"the tag {event.tag} is not allowed here", where))
        if scalar:
            plain = event.tag is None and event.implicit[0]
            node = Node(plain_scalar(event.value) if plain else event.value, where)
        elif depth >= DEEPEST_NESTING:
            raise UserError(f"nested deeper than {DEEPEST_NESTING} levels", where)
        else:
            node = (
                self._mapping(where, depth) if isinstance(event, yaml.MappingStartEvent) else self._list(where, depth)
            )
        self._anchors[event.anchor] = node
        return node

    def _list(self, where: str, depth: int) -> Node:
        node = Node([], where)
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            node.content.append(self._within(node, event, depth))
        return node

    def _mapping(self, where: str, depth: int) -> Node:
        node, merged = Node({}, where), list[Node]()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            read = self._within(node, event, depth)
            if isinstance(read.content, (dict, list)):
                raise UserError("a key is a single word, not a list or a mapping", read.where)
            key = str(read.content)
            child = replace(self._within(node, next(self._events), depth), where=read.where)
            if key == "<<":
                sources = child.content if isinstance(child.content, list) else [child]
                if not all(isinstance(source.content, dict) for source in sources):
                    raise UserError("the merge key << takes a mapping, or a list of them", child.where, "<<")
                merged += sources
            elif key in node.content:
                first = node.content[key].where.removeprefix(f"{self.name}:")
                self.problems.append(Problem(f"duplicate key (first on line {first})", child.where, key))
            else:
                node.content[key] = child
        for source in merged:
            for key, child in source.content.items():
                node.content.setdefault(key, child)
        return node

    def _within(self, parent: Node, event: Any, depth: int) -> Node:
        """The node within another one, whose size and depth it adds to."""
        node = self._node(event, depth + 1)
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if parent.size > LARGEST_EXPANSION:
            raise UserError(f"more than {LARGEST_EXPANSION:,} values, aliases followed", self._where(event))
        if parent.depth > DEEPEST_NESTING:
            raise UserError(f"nested deeper than {DEEPEST_NESTING} levels, aliases followed", self._where(event))
        return node


_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_WORDS |= {f"{sign}.inf": float(f"{sign}inf") for sign in ("", "+", "-")} | {".nan": math.nan}
_DIGITS_AT_MOST = 400  # Python refuses to convert integers of more than 4,300 digits; no key here needs ten


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar.

    >>> [plain_scalar(word) for word in ("12", "1e-5", "0x10", "no", "~", "True", "1_000")]
    [12, 1e-05, 16, 'no', None, True, '1_000']
    """
    word = text.lower() if text in (text.lower(), text.capitalize(), text.upper()) else text
    if word in _WORDS:
        return _WORDS[word]
    if len(text) <= _DIGITS_AT_MOST and (_INTEGER.fullmatch(text) or _OTHER_BASE.fullmatch(text)):
        return int(text, 10 if _INTEGER.fullmatch(text) else 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMAL_COMMA = r"^([+-]?\d+),(\d+)$"  # a number that has one


def separated(cells: Callable[[str], list[str]], stated: str | None = None) -> tuple[str, list[str]]:
    """The mark between columns of a CSV file, by its first line, and the cells of that line.

    Args:
        cells: the cells of the first line, if a mark separates them.
        stated: the mark; null: a comma, semicolon, tab or bar, whichever gives most cells.

    >>> separated("a;b,5;c".split)
    (';', ['a', 'b,5', 'c'])
    """
    return max(((mark, cells(mark)) for mark in stated or _SEPARATORS), key=lambda each: len(each[1]))


def separated_by(file: Path, mark: str, commas: bool) -> str:
    """A sentence about what was guessed of a CSV file."""
    return f"{file.name}: columns are separated by {_SEPARATORS[mark]}{' and have decimal commas' if commas else ''}"


def read_csv(path: Path, most: int, note: Callable[[str], None]) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The first line of a CSV file, and the number and the cells of each line below that is not empty.

    Where columns are not separated by commas, numbers may have decimal commas.

    Args:
        note: takes a sentence about what was guessed.

    Raises:
        UserError: it cannot be read, or has more than `most` such lines.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(file)
        mark, header = separated(lambda mark: next(csv.reader(lines, delimiter=mark, skipinitialspace=True), []))
        reader = csv.reader(lines, delimiter=mark, skipinitialspace=True)
        rows = [(reader.line_num, [each.strip() for each in row]) for row in reader if any(map(str.strip, row))][1:]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot be read: {reason_of(error)}", str(path)) from None
    if mark != ",":
        stated, rows = rows, [(line, [re.sub(DECIMAL_COMMA, r"\1.\2", each) for each in row]) for line, row in rows]
        note(separated_by(path, mark, commas=stated != rows))
    if len(rows) > most:
        raise UserError(f"expected at most {most:,} lines, found {len(rows):,}", str(path))
    return [each.strip() for each in header], rows


LARGEST_FILE_BYTES = 5_000_000


def read_text(path: Path) -> str:
    """The text of a user's file, or a UserError that says why it cannot be one."""
    name = str(path)
    try:
        if not path.is_file():
            text = "expected a regular file" if path.exists() else f"no such file{near_file(path)}"
            raise UserError("expected a file, found a directory" if path.is_dir() else text, name)
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UserError(f"larger than {LARGEST_FILE_BYTES // 1_000_000} MB; expected a smaller file", name)
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {reason_of(error)}", name) from None
    if not text.strip():
        raise UserError("the file is empty", name)
    return text


def read_document(path: str | Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        UserError: with every problem of the file's form: missing, too large, not YAML, duplicate keys, tags.
    """
    path = Path(path)
    document = Document(str(path), parse(read_text(path), str(path)), path.parent)
    if not isinstance(document.root.content, dict):
        raise UserError("expected keys and values (`key: value`) at the top level", document.root.where)
    return document


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values, of mappings in mappings.

    >>> dict(dotted({"a": 1, "b": {"c": 2}}))
    {'a': 1, 'b.c': 2}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def text_of(values: Mapping[str, Any]) -> str:
    """A mapping as YAML, in the order of its keys.

    >>> text_of({"seed": 1, "data": {"name": "digits"}})
    'seed: 1\\ndata:\\n  name: digits\\n'
    """
    return str(yaml.dump(values, Dumper=_DUMPER, sort_keys=False, width=120))


def values_of(text: str) -> Any:
    """The values of a text that `text_of` wrote; texts of users are for `read_document`.

    Raises:
        yaml.YAMLError: it is no YAML, or has tags.

    >>> values_of("seed: 1\\ndata: {name: digits}\\n")
    {'seed': 1, 'data': {'name': 'digits'}}
    """
    return yaml.load(text, Loader=_LOADER)
