"""Check a document against its schema and report every problem in one line: file, line, key, value, expectation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from h2fdp.config.fields import LARGEST_INTEGER, Expect, Options
from h2fdp.config.own_parts import placed
from h2fdp.config.parsing import Document
from h2fdp.errors import Problem, UserError, hint, meant

Schema = TypeVar("Schema", bound=BaseModel)
_LONGEST_QUOTE = 40
_MOST_PROBLEMS = 50
_SLIP = 0.85  # a key this like one of its section is a slip of the pen, and not another section's or program's
_KEY_ITSELF = "[key]"  # pydantic's last step where a key of a mapping is wrong, and not its value


def check(schema: type[Schema], document: Document) -> Schema:
    """The document's values as the schema's model.

    Raises:
        UserError: one problem for each wrong, missing or unknown key.
    """
    try:
        return placed(schema.model_validate(document.values(), context={"folder": document.folder}), document)
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
        return Problem(_unknown(str(trail.path[-1]), trail.owner, schema), where, key)
    if kind == "value_error":
        return Problem(detail["msg"].removeprefix("Value error, "), where, key)
    expected = " or ".join(dict.fromkeys(trail.expected)) or _words(detail)
    if kind == "missing":
        return Problem(f"the key is missing; expected {expected}", where, key)
    names = filter(re.compile(r"[\w-]+").fullmatch, re.split(r",? or |, ", expected.partition("one of ")[2]))
    return Problem(f"expected {expected}, found {quote(detail['input'])}{hint(detail['input'], names)}", where, key)


def _unknown(key: str, owner: type[BaseModel] | None, schema: type[BaseModel]) -> str:
    """A key that its section does not have: a slip of the pen, or what another choice, section or program has."""
    if instead := getattr(owner, "gone", {}).get(key):
        return f"this key is gone; {instead}"
    fields = {} if owner is None else owner.model_fields
    known = sorted(word for name, field in fields.items() for word in keys_of(name, field))
    if other := next((keys_of(name, field)[0] for name, field in fields.items() if key in keys_of(name, field)), None):
        return f"is another word for `{other}`; expected one of the two, found both"
    if owner is not None and issubclass(owner, Options):
        name = owner.model_fields["name"].default
        if any(key in sibling.model_fields for sibling in owner.siblings.values()):
            return f"`{key}` means nothing for {name}; allowed here: {', '.join(owner.model_fields)}"
    if near := key_meant(key, known, schema, owner):
        return f"unknown key; did you mean `{near}`?"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key"


def key_meant(
    key: str, known: Sequence[str], schema: type[BaseModel], owner: type[BaseModel] | None = None
) -> str | None:
    """The key that was meant: a slip of the pen for one of `known`, else what others call by that name, else another
    section's, else of `known` the nearest.

    Args:
        known: the keys of the section in which it stands.
        schema: of the whole file; null `owner` is the file itself.
    """
    if slip := meant(key, known, _SLIP):
        return slip
    ours: str | None = getattr(schema, "other_names", {}).get(key.lower().replace("-", "_"))
    if ours is not None:
        return ours
    sections = {name: _section(annotation_of(field)) for name, field in schema.model_fields.items()}
    if "." not in key and owner in (None, schema, *sections.values()):
        others = {name: below.model_fields for name, below in sections.items() if below not in (None, owner)}
        if slip := meant(key, [f"{name}.{each}" for name, below in others.items() for each in below], _SLIP):
            return slip
    return meant(key, known)


def _words(detail: dict[str, Any]) -> str:
    """The expectation in pydantic's words, for a type that brings none of its own."""
    return {
        "list_type": "a list",
        "dict_type": "keys and values",
        "model_type": "keys and values",
        "model_attributes_type": "keys and values",
        "finite_number": "a finite number",
    }.get(detail["type"], str(detail["msg"]).lower())


def quote(value: Any) -> str:
    """A value in few characters, as the user wrote it."""
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


@dataclass
class Trail:
    """The place to which an error's path leads.

    Attributes:
        path: the user's steps, without the labels of union members that pydantic puts between them.
        owner: the section that holds the last step.
        expected: the words of the last step's type.
    """

    path: list[str | int] = field(default_factory=list)
    owner: type[BaseModel] | None = None
    expected: list[str] = field(default_factory=list)


def follow(schema: type[BaseModel], location: Sequence[str | int]) -> Trail:
    """Walk the schema along an error's location."""
    trail = Trail(expected=["keys and values"])
    here: Any = schema
    mapping: Any = Any
    for step in location:
        if step == _KEY_ITSELF:
            trail.expected = _expectations(_key(mapping))
            continue
        members = _members(here)
        if len(members) > 1 and isinstance(step, str):
            here = _labelled(step, members)
            continue
        trail.path.append(step)
        trail.owner = _section(here)
        known = _field(trail.owner, step) if trail.owner is not None and isinstance(step, str) else None
        mapping = here
        here = _item(here) if known is None else annotation_of(known)
        trail.expected = _expectations(here)
    return trail


def _field(section: type[BaseModel], key: str) -> FieldInfo | None:
    """The field that a key of a file names."""
    return next((info for name, info in section.model_fields.items() if key in keys_of(name, info)), None)


def keys_of(name: str, info: FieldInfo) -> list[str]:
    """The keys of a file that mean a field: the one that is written, then other words for it."""
    stated = info.validation_alias
    return [str(each) for each in stated.choices] if isinstance(stated, AliasChoices) else [info.alias or name]


def annotation_of(info: FieldInfo) -> Any:
    """The type of a field as it was written, which pydantic takes apart."""
    return Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation


def _members(annotation: Any) -> list[Any]:
    """The members of a union that pydantic labels in a location: all but None; one member for any other type."""
    for item in getattr(annotation, "__metadata__", ()):
        if hasattr(item, "members"):  # named choices, or shapes
            members: list[Any] = item.members(get_args(annotation)[0])
            return members
    bare = _bare(annotation)
    if get_origin(bare) in (Union, UnionType):
        members = [member for member in get_args(bare) if member is not NoneType]
        return _members(members[0]) if len(members) == 1 else members  # a union within `| None`
    return [annotation]


def _labelled(label: str, members: list[Any]) -> Any:
    """The member that a label means: by its tag, else by its name; anything when none does."""
    for member in members:
        tags = [item.tag for item in getattr(member, "__metadata__", ()) if isinstance(item, Tag)]
        if label in (*tags, getattr(_bare(member), "__name__", None)):
            return member
    return Any


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _section(annotation: Any) -> type[BaseModel] | None:
    """The one section that an annotation contains."""
    bare = [_bare(member) for member in _members(annotation)]
    found = [member for member in bare if isinstance(member, type) and issubclass(member, BaseModel)]
    return found[0] if len(found) == 1 else None


def _item(annotation: Any) -> Any:
    """The type of the items of a list, a tuple or a mapping."""
    (member, *others) = _members(annotation)
    arguments = [argument for argument in get_args(_bare(member)) if argument is not Ellipsis]
    return arguments[-1] if arguments and not others else Any


def _key(annotation: Any) -> Any:
    """The type of the keys of a mapping."""
    arguments = get_args(_bare(annotation))
    return arguments[0] if arguments else Any


def _texts(metadata: Sequence[Any]) -> list[str]:
    return [item.text for item in metadata if isinstance(item, Expect)]


def _expectations(annotation: Any) -> list[str]:
    """The words of a type: its own, else those of its members."""
    own = _texts(getattr(annotation, "__metadata__", ()))
    if own:
        return own
    members = _members(annotation)
    if members != [annotation]:
        return [text for member in members for text in _expectations(member)]
    bare = _bare(members[0])
    if get_origin(bare) is Literal:
        words = [str(word) for word in get_args(bare)]
        return [f"one of {', '.join(words)}" if len(words) > 1 else words[0]]
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return ["keys and values"]
    return ["a list"] if get_origin(bare) in (list, tuple) else []
