"""From the place that pydantic names in an error to the user's key and the words for what belongs there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

from h2fdp.config.fields import Expect


@dataclass
class Trail:
    """Where an error's path leads.

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
    for step in location:
        members = _members(here)
        if len(members) > 1 and isinstance(step, str):
            here = _labelled(step, members)
            continue
        trail.path.append(step)
        trail.owner = _section(here)
        known = _field(trail.owner, step) if trail.owner is not None and isinstance(step, str) else None
        if known is not None:
            here, texts = known.annotation, _texts(known.metadata)
        else:
            here, texts = _item(here), []
        trail.expected = texts or _expectations(here)
    return trail


def _field(section: type[BaseModel], key: str) -> FieldInfo | None:
    """The field that a key of a file stands for."""
    return next((info for name, info in section.model_fields.items() if key == (info.alias or name)), None)


def _members(annotation: Any) -> list[Any]:
    """The members of a union that pydantic labels in a location: all but None; one member for any other type."""
    bare = _bare(annotation)
    if get_origin(bare) in (Union, UnionType):
        return [member for member in get_args(bare) if member is not NoneType]
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
    """The one section that an annotation stands for."""
    bare = [_bare(member) for member in _members(annotation)]
    found = [member for member in bare if isinstance(member, type) and issubclass(member, BaseModel)]
    return found[0] if len(found) == 1 else None


def _item(annotation: Any) -> Any:
    """The type of the items of a list, a tuple or a mapping."""
    (member, *others) = _members(annotation)
    arguments = [argument for argument in get_args(_bare(member)) if argument is not Ellipsis]
    return arguments[-1] if arguments and not others else Any


def _texts(metadata: Sequence[Any]) -> list[str]:
    return [item.text for item in metadata if isinstance(item, Expect)]


def _expectations(annotation: Any) -> list[str]:
    """The words of a type: its own, else those of its members."""
    own = _texts(getattr(annotation, "__metadata__", ()))
    if own:
        return own
    members = _members(annotation)
    if len(members) > 1:
        return [text for member in members for text in _expectations(member)]
    bare = _bare(members[0])
    if get_origin(bare) is Literal:
        words = [str(word) for word in get_args(bare)]
        return [f"one of {', '.join(words)}" if len(words) > 1 else words[0]]
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return ["keys and values"]
    if members[0] is not annotation and _texts(getattr(members[0], "__metadata__", ())):
        return _texts(members[0].__metadata__)
    return ["a list"] if get_origin(bare) in (list, tuple) else []
