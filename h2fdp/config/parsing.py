"""A user's YAML file as nodes, read within bounds of size, depth and expansion; values as YAML text of our own.

The event stream is turned into values here rather than by PyYAML's loaders: these resolve `no` to false, drop
duplicate keys in silence, construct objects, and their C composer crashes on deep nesting. A plain word means what the
core schema of YAML 1.2 says, in which 1e-5 is a number and `no` is a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from h2fdp.config.document import Document, Node
from h2fdp.errors import Problem, UserError

DEEPEST_NESTING = 50
LARGEST_EXPANSION = 1_000_000  # values after aliases are followed; ten per cent of what a file of 5 MB can hold
_MOST_PROBLEMS = 50
# Of libyaml where PyYAML has it: six times as fast, with the same text.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT_TAGS = ("tag:yaml.org,2002:str", "!")


def parse(text: str, name: str) -> Node:
    """Parse YAML text into nodes; `name` stands before the line numbers."""
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        if "nesting depth" in str(error.problem):  # of the library, which may read ahead of the events that are counted
            raise UserError(f"nested deeper than {DEEPEST_NESTING} levels", where) from None
        tab = mark is not None and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])
        hint = "; indent with spaces, not with tabs" if tab else ""
        raise UserError(f"not valid YAML: {error.problem or error.context}{hint}", where) from None
    except yaml.YAMLError as error:
        raise UserError(f"not valid YAML: {' '.join(str(error).split())}", name) from None
    if builder.problems:
        raise UserError(builder.problems)
    if builder.root is None:
        raise UserError("the file is empty", name)
    return builder.root


@dataclass
class _Open:
    """A collection whose end has not been read: the node, its anchor, and a mapping's pending key."""

    node: Node
    anchor: str | None
    key: str | None = None
    key_where: str = ""
    merges: list[Node] = field(default_factory=list)


class _Builder:
    """Builds nodes from events, with an explicit stack: depth is bounded before anything recurses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}

    def take(self, event: yaml.Event) -> None:
        if len(self.problems) >= _MOST_PROBLEMS:
            raise UserError(self.problems)
        assert event.start_mark is not None, "every event of a parsed text has its place"
        where = f"{self.name}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise UserError("a second document begins here; expected one", where)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise UserError(f"the alias *{event.anchor} refers to nothing defined before it", where)
            self._place(replace(self._anchors[event.anchor], where=where), where)
        elif isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, where), where)
            self._anchor(event.anchor, node)
            self._place(node, where)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._stack) >= DEEPEST_NESTING:
                raise UserError(f"nested deeper than {DEEPEST_NESTING} levels", where)
            if event.tag is not None:
                self.problems.append(Problem(f"the tag {event.tag} is not allowed here", where))
            empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._stack.append(_Open(Node(empty, where), event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(self._stack.pop(), where)

    def _scalar(self, event: yaml.ScalarEvent, where: str) -> Any:
        if event.tag is None:
            return plain_scalar(event.value) if event.implicit[0] else event.value
        if event.tag not in _TEXT_TAGS:
            self.problems.append(Problem(f"the tag {event.tag} is not allowed here", where))
        return event.value

    def _anchor(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _close(self, opened: _Open, where: str) -> None:
        for merged in opened.merges:
            for key, child in merged.content.items():
                opened.node.content.setdefault(key, child)
        self._anchor(opened.anchor, opened.node)
        self._place(opened.node, where)

    def _place(self, node: Node, where: str) -> None:
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.node.size += node.size
        parent.node.depth = max(parent.node.depth, node.depth + 1)
        if parent.node.size > LARGEST_EXPANSION:
            raise UserError(f"more than {LARGEST_EXPANSION:,} values, aliases followed", where)
        if parent.node.depth > DEEPEST_NESTING:
            raise UserError(f"nested deeper than {DEEPEST_NESTING} levels, aliases followed", where)
        if isinstance(parent.node.content, list):
            parent.node.content.append(node)
        elif parent.key is None:
            parent.key, parent.key_where = self._key(node, where), where
        else:
            self._put(parent, parent.key, replace(node, where=parent.key_where))
            parent.key = None

    def _key(self, node: Node, where: str) -> str:
        if isinstance(node.content, (dict, list)):
            raise UserError("a key is a single word, not a list or a mapping", where)
        return node.content if isinstance(node.content, str) else str(node.plain())

    def _put(self, parent: _Open, key: str, node: Node) -> None:
        if key == "<<":
            sources = node.content if isinstance(node.content, list) else [node]
            if not all(isinstance(source.content, dict) for source in sources):
                raise UserError("the merge key << takes a mapping, or a list of them", node.where, "<<")
            parent.merges += sources
        elif key in parent.node.content:
            first = parent.node.content[key].where.removeprefix(f"{self.name}:")
            self.problems.append(Problem(f"duplicate key (first on line {first})", node.where, key))
        else:
            parent.node.content[key] = node


_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
    ".inf": float("inf"),
    "+.inf": float("inf"),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
_DIGITS_AT_MOST = 400  # Python refuses to convert integers of more than 4,300 digits; no key here needs ten


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar.

    >>> [plain_scalar(word) for word in ("12", "1e-5", "0x10", "no", "~", "True", "1_000")]
    [12, 1e-05, 16, 'no', None, True, '1_000']
    """
    word = text.lower() if text in (text.lower(), text.capitalize(), text.upper()) else text
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(text) and len(text) <= _DIGITS_AT_MOST:
        return int(text)
    if _OTHER_BASE.fullmatch(text) and len(text) <= _DIGITS_AT_MOST:
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


LARGEST_FILE_BYTES = 5_000_000


def read_text(path: Path) -> str:
    """The text of a user's file, or a UserError that says why it cannot be one."""
    name = str(path)
    try:
        if path.is_dir():
            raise UserError("expected a file, found a directory", name)
        if not path.exists():
            raise UserError("no such file", name)
        if not path.is_file():
            raise UserError("expected a regular file", name)
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UserError(f"larger than {LARGEST_FILE_BYTES // 1_000_000} MB; expected a smaller file", name)
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not a text file (expected YAML in UTF-8)", name) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", name) from None
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


def text_of(values: Mapping[str, Any]) -> str:
    """A mapping as YAML, in the order of its keys.

    >>> text_of({"seed": 1, "data": {"name": "digits"}})
    'seed: 1\\ndata:\\n  name: digits\\n'
    """
    return str(yaml.dump(values, Dumper=_DUMPER, sort_keys=False, width=120))


def values_of(text: str) -> Any:
    """What a text says that `text_of` wrote; what users write is for `read_document`.

    Raises:
        yaml.YAMLError: it is no YAML, or has tags.

    >>> values_of("seed: 1\\ndata: {name: digits}\\n")
    {'seed': 1, 'data': {'name': 'digits'}}
    """
    return yaml.load(text, Loader=_LOADER)
