"""The grid of a `sweep:` section: every combination of its values, each with a name that a folder can have."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from typing import Any

import yaml

from h2fdp.config import Document
from h2fdp.config.check import quote
from h2fdp.config.parsing import Node, plain_scalar
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import Setting

SWEEP = "sweep"
MOST_POINTS = 100_000
_LONGEST_NAME = 150  # of a folder; file systems take 255 bytes
_UNSAFE = re.compile(r"[^\w.+\-=,]")
_JOINS = re.compile(r"[^\w\-]")  # in a key of a mapping
_CHANGED = "extends"  # the key of what the others change


@dataclass(frozen=True)
class Point:
    """One combination of swept values.

    Attributes:
        name: of its folder, as `seed=1,privacy.epsilon=0.5`; no other point of the grid has it.
        settings: key, value and place of each, in the order of the file.
    """

    name: str
    settings: tuple[Setting, ...]

    @property
    def values(self) -> dict[str, Any]:
        """Swept key -> value."""
        return {setting.key: setting.value for setting in self.settings}


def points_of(document: Document) -> list[Point]:
    """The points of a document's `sweep:` section, the last key changing fastest.

    A key of several dotted keys, separated by commas, has lists of as many values: they change together.

    Raises:
        UserError: every problem of the section.
    """
    content = document.root.content
    section = content.get(SWEEP) if isinstance(content, dict) else None
    if section is None or not isinstance(section.content, dict) or not section.content:
        where = document.where((SWEEP,))
        raise UserError("the sweep is empty; expected keys with lists of values, as `seed: [1, 2, 3]`", where, SWEEP)
    axes: list[list[tuple[Setting, ...]]] = []
    problems: list[Problem] = []
    owners: dict[str, str] = {}
    for written, node in section.content.items():
        keys = [key.strip() for key in written.split(",")]
        for key in keys:
            problem = "is swept twice" if key in owners else _unusable(key)
            if problem:
                problems.append(Problem(problem, node.where, f"{SWEEP}.{key}"))
            owners[key] = written
        values, told = values_of_axis(keys, node, f"{SWEEP}.{written}")
        axes.append(values)
        problems += told
    if problems:
        raise UserError(problems)
    count = math.prod(map(len, axes))
    if count > MOST_POINTS:
        raise UserError(f"expected at most {MOST_POINTS:,} runs, found {count:,}", section.where, SWEEP)
    combined = [tuple(each for part in parts for each in part) for parts in product(*axes)]
    return [Point(name_of({setting.key: setting.value for setting in each}), each) for each in combined]


def _unusable(key: str) -> str:
    if not key:
        return "expected a dotted key between commas, found nothing"
    return "`sweep` cannot be a key of the grid" if key.partition(".")[0] == SWEEP else ""


def values_of_axis(keys: Sequence[str], node: Node, key: str) -> tuple[list[tuple[Setting, ...]], list[Problem]]:
    """The values of one line of a section, each as the settings that it stands for.

    Args:
        key: of messages.
    """
    if not isinstance(node.content, list) or not node.content:
        found = quote(node.plain())
        return [], [Problem(f"expected a list of at least one value, found {found}", node.where, key)]
    found_values: list[tuple[Setting, ...]] = []
    problems: list[Problem] = []
    seen: list[str] = []
    for item in node.content:
        parts = [item] if len(keys) == 1 else item.content
        if not isinstance(parts, list) or len(parts) != len(keys):
            text = f"expected a list of {len(keys)} values, one for each key, found {quote(item.plain())}"
            problems.append(Problem(text, item.where, key))
            continue
        plain = item.plain()
        if (same := canonical(plain)) in seen:
            problems.append(Problem(f"the value {word(plain)} comes twice", item.where, key))
        seen.append(same)
        found_values.append(
            tuple(Setting(name, part.plain(), part.where) for name, part in zip(keys, parts, strict=True))
        )
    return found_values, problems


def canonical(value: Any) -> str:
    """Equal for equal values, 1 and 1.0 among them."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(value, sort_keys=True)


def word(value: Any) -> str:
    """A value as compact YAML, which reads back as the same value.

    >>> [word(each) for each in (0.5, 1e-05, True, None, "hfl", "1", {"name": "mlp", "hidden": 64})]
    ['0.5', '1e-05', 'true', 'null', 'hfl', '"1"', '{name: mlp, hidden: 64}']
    """
    if isinstance(value, str):
        return value if value and plain_scalar(value) == value else json.dumps(value)
    if isinstance(value, (dict, list)):
        return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf).strip()
    return repr(value) if isinstance(value, float) else json.dumps(value)


def name_of(values: Mapping[str, Any]) -> str:
    """Keys and values as the name of a folder; where letters of a value had to give way, a digest of it follows.

    >>> name_of({"seed": 1, "privacy.epsilon": 0.5})
    'seed=1,privacy.epsilon=0.5'
    >>> name_of({"method": {"extends": "h2fdp", "privacy": {"name": "dp-sgd", "noise_multiplier": 2.0}}})
    'method=h2fdp+privacy.name=dp-sgd+privacy.noise_multiplier=2.0'
    >>> name_of({"method.server": {"name": "my_server:Lion", "step": 0.01}, "seed": 1})
    'method.server=my_server_Lion+step=0.01-7489375b,seed=1'
    """
    plain = {key: _plain_word(value) for key, value in values.items()}
    safe = ",".join(f"{key}={_readable(values[key]) if text is None else text}" for key, text in plain.items())
    if not _UNSAFE.search(safe) and len(safe.encode()) <= _LONGEST_NAME:
        return safe
    text, safe = ",".join(f"{key}={word(value)}" for key, value in values.items()), _UNSAFE.sub("_", safe)
    kept = safe.encode()[:_LONGEST_NAME].decode(errors="ignore")
    return f"{kept}-{_digest(text)}"


def _readable(value: Any) -> str:
    """A value in letters that folders may have, some of them replaced, and a digest of it."""
    text = word(value)
    if isinstance(value, dict):
        (_, first), *others = value.items() or [("", "")]
        text = "+".join([word(first), *(f"{key}={word(part)}" for key, part in others)])
    return f"{_UNSAFE.sub('_', text)}-{_digest(word(value))}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _plain_word(value: Any) -> str | None:
    """A value in letters that folders may have, from which it can be read back; None where these do not suffice.

    A mapping is its values joined by `+`, each with its dotted key, but for a first one that names what the others
    change. A scalar has none of the letters that join parts.
    """
    if not isinstance(value, (dict, list)):
        text = word(value)
        return None if _UNSAFE.search(text) or any(letter in text for letter in "+=,") else text
    if isinstance(value, list):
        parts = [None if isinstance(each, (dict, list)) else _plain_word(each) for each in value]
        return None if None in parts or len(parts) < 2 else "+".join(map(str, parts))
    leaves = _leaves(value)
    if not leaves or None in leaves.values():
        return None
    first, *others = leaves.items()
    lead = first[1] if others and first[0] == _CHANGED else "=".join(map(str, first))
    return "+".join([str(lead), *(f"{key}={text}" for key, text in others)])


def _leaves(value: Mapping[Any, Any], above: str = "") -> dict[str, str | None]:
    """Dotted key -> plain word of everything in a mapping; None for what has none."""
    found: dict[str, str | None] = {}
    for key, part in value.items():
        name = f"{above}{key}" if isinstance(key, str) and key and not _JOINS.search(key) else ""
        if name and isinstance(part, dict) and part:
            found |= _leaves(part, f"{name}.")
        else:
            found[name] = None if not name or isinstance(part, (dict, list)) else _plain_word(part)
    return found
