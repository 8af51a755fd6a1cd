"""Check a document against its schema and tell every problem in one line: file, line, key, found, expected."""

from __future__ import annotations

import difflib
import math
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from h2fdp.config.document import Document
from h2fdp.config.fields import LARGEST_INTEGER, Options
from h2fdp.config.trail import follow
from h2fdp.errors import Problem, UserError

Schema = TypeVar("Schema", bound=BaseModel)
_LONGEST_QUOTE = 40
_MOST_PROBLEMS = 50


def check(schema: type[Schema], document: Document) -> Schema:
    """The document's values as the schema's model.

    Raises:
        UserError: one problem for each wrong, missing or unknown key.
    """
    try:
        return schema.model_validate(document.values(), context={"folder": document.folder})
    except ValidationError as error:
        problems: dict[tuple[str, str], Problem] = {}
        for detail in error.errors(include_url=False):
            problem = _problem(schema, document, dict(detail))
            # A wrong value of a union is reported once for each member: the first words are enough.
            problems.setdefault((problem.where, problem.key), problem)
        listed = list(problems.values())
        if len(listed) > _MOST_PROBLEMS:
            more = Problem(f"and {len(listed) - _MOST_PROBLEMS} more problems", document.name)
            listed = [*listed[:_MOST_PROBLEMS], more]
        raise UserError(listed) from None


def _problem(schema: type[BaseModel], document: Document, detail: dict[str, Any]) -> Problem:
    trail = follow(schema, detail["loc"])
    where, key = document.where(trail.path), document.key(trail.path)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Problem(_unknown(str(trail.path[-1]), trail.owner), where, key)
    if kind == "value_error":
        return Problem(detail["msg"].removeprefix("Value error, "), where, key)
    expected = " or ".join(dict.fromkeys(trail.expected)) or _words(detail)
    if kind == "missing":
        return Problem(f"the key is missing; expected {expected}", where, key)
    return Problem(f"expected {expected}, found {quote(detail['input'])}", where, key)


def _unknown(key: str, owner: type[BaseModel] | None) -> str:
    """A key that its section does not have: a slip of the pen, or an option of another choice."""
    fields = {} if owner is None else owner.model_fields
    known = sorted(field.alias or name for name, field in fields.items())
    if owner is not None and issubclass(owner, Options):
        name = owner.model_fields["name"].default
        if any(key in sibling.model_fields for sibling in owner.siblings.values()):
            return f"`{key}` means nothing for {name}; allowed here: {', '.join(owner.model_fields)}"
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"unknown key; did you mean `{close[0]}`?"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key"


def _words(detail: dict[str, Any]) -> str:
    """What would be right, in pydantic's words, for a type that brings none of its own."""
    return {
        "list_type": "a list",
        "dict_type": "keys and values",
        "model_type": "keys and values",
        "model_attributes_type": "keys and values",
        "finite_number": "a finite number",
    }.get(detail["type"], str(detail["msg"]).lower())


def quote(value: Any) -> str:
    """A found value in few characters, as the user wrote it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return "a number beyond 2^31"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 4] + '..."'


def json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema that editors use to complete and check a file."""
    return TypeAdapter(schema).json_schema()
