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
_UNSAFE = re.compile(r"[^\w.+\-]+")


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
    seen: set[str] = set()
    for written, node in section.content.items():
        keys = [key.strip() for key in written.split(",")]
        for key in keys:
            problem = "is swept twice" if key in seen else _unusable(key)
            if problem:
                problems.append(Problem(problem, node.where, f"{SWEEP}.{key}"))
            seen.add(key)
        values, wrong = values_of_axis(keys, node, f"{SWEEP}.{written}")
        axes.append(values)
        problems += wrong
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
        value = quote(node.plain())
        return [], [Problem(f"expected a list of at least one value, found {value}", node.where, key)]
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
        named = zip(keys, parts, strict=True)
        found_values.append(tuple(Setting(name, part.plain(), part.where) for name, part in named))
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
    >>> name_of({"method": {"extends": "h2fdp", "privacy": "dp-sgd"}, "seed": 1})
    'method=extends_h2fdp_privacy_dp-sgd-17d3b6e9,seed=1'
    """
    name = ",".join(f"{_UNSAFE.sub('_', key)}={_plain_word(value)}" for key, value in values.items())
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"{name.encode()[:_LONGEST_NAME].decode(errors='ignore')}-{_digest(name)}"


def _plain_word(value: Any) -> str:
    text = word(value)
    plain = _UNSAFE.sub("_", text)
    return plain if plain == text else f"{plain.strip('_')}-{_digest(text)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
