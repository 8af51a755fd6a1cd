"""A user's file as values that remember their place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError

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
            known = content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
            if step not in known:
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
    """A document that no file holds: values from Python, or none."""
    return Document(name, _node(values if values is not None else {}, name), folder)


def _node(value: Any, where: str) -> Node:
    if isinstance(value, dict):
        return Node({key: _node(child, where) for key, child in value.items()}, where)
    if isinstance(value, (list, tuple)):
        return Node([_node(child, where) for child in value], where)
    return Node(value, where)
