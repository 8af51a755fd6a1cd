"""Field types of the files that users write; each carries the words for what would be right.

What a section and its keys mean is said in its docstring, and nowhere else.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_HEADING = re.compile(r"^(Attributes|Args|Raises|Returns):$", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> ", re.MULTILINE)
_ENTRY = re.compile(r"^    (?P<keys>\w[\w-]*(?:, \w[\w-]*)*): (?P<text>.*)$")


def description_of(section: type) -> str:
    """The docstring's own sentences, without what follows under headings, and without examples."""
    text = inspect.cleandoc(section.__doc__ or "")
    ends = [match.start() for match in (_HEADING.search(text), _EXAMPLE.search(text)) if match]
    return text[: min(ends, default=len(text))].strip()


def descriptions_of_keys(section: type) -> dict[str, str]:
    """Key -> what it means, also of the keys that a section inherits; lines for several keys are each of theirs.

    >>> class Steps:
    ...     '''Steps of SGD.
    ...
    ...     Attributes:
    ...         count: how many,
    ...             at most.
    ...         low, high: ends of the range.
    ...     '''
    >>> descriptions_of_keys(Steps)
    {'count': 'how many, at most.', 'low': 'ends of the range.', 'high': 'ends of the range.'}
    """
    descriptions: dict[str, str] = {}
    for base in reversed(section.__mro__):
        descriptions |= _stated(base.__dict__.get("__doc__") or "")
    return descriptions


def _stated(docstring: str) -> dict[str, str]:
    text = inspect.cleandoc(docstring)
    _, _, listed = text.partition("\nAttributes:\n")
    texts: dict[str, str] = {}
    keys: list[str] = []
    for line in listed.splitlines():
        if line and not line.startswith(" "):
            break
        entry = _ENTRY.match(line)
        if entry is not None:
            keys = entry["keys"].split(", ")
            texts |= dict.fromkeys(keys, entry["text"])
        elif line.strip():
            texts |= {key: f"{texts[key]} {line.strip()}" for key in keys}
    return texts


LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class Expect:
    """The words after "expected" in the message about a wrong value of this type."""

    text: str


class Section(BaseModel):
    """A mapping of a user's file: unknown keys, inexact types, NaN and infinities are refused.

    Attributes:
        other_names: of a whole file: what others call its keys -> the key, dotted, for messages.
        gone: keys that there were -> what to state instead.
    """

    other_names: ClassVar[Mapping[str, str]] = {}
    gone: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors show what each key means."""
        schema = handler(core_schema)
        described, meant = handler.resolve_ref_schema(schema), descriptions_of_keys(cls)
        described["description"] = description_of(cls)
        properties = described.get("properties", {})
        for key, values in properties.items():
            if key in meant:
                values["description"] = meant[key]
        for words in (field.validation_alias for field in cls.model_fields.values()):
            if isinstance(words, AliasChoices):
                properties |= {str(other): properties[str(words.choices[0])] for other in words.choices[1:]}
        return schema


SectionType = TypeVar("SectionType", bound=Section)
_ADDED: dict[str, list[Any]] = {}  # a section's name -> those whose keys and properties it has, too


def adds_keys(name: str) -> Callable[[type[SectionType]], type[SectionType]]:
    """A decorator of a section with keys that a capability adds to the section of this name, which is `extended`.

    Each key has a default, which leaves the capability out. Properties and methods replace those of the section.
    """

    def added(section: type[SectionType]) -> type[SectionType]:
        _ADDED.setdefault(name, []).append(section)
        return section

    return added


def extended(section: type[SectionType]) -> type[SectionType]:
    """The section with all keys that were added to it, behind its own; a decorator.

    >>> @adds_keys("Sheet")
    ... class Colours(Section):
    ...     colour: str | None = None
    >>> @extended
    ... class Sheet(Section):
    ...     size: int = 4
    >>> Sheet.model_validate({"colour": "red"}), without_added(Sheet.model_validate({"colour": "red"}))
    (Sheet(size=4, colour='red'), Sheet(size=4, colour=None))
    """
    bases: tuple[type[SectionType], ...] = (*_ADDED.get(section.__name__, ()), section)
    return create_model(section.__name__, __base__=bases, __module__=section.__module__, __doc__=section.__doc__)


def without_added(section: SectionType) -> SectionType:
    """The section in which each key that was added to it has its default."""
    added = [each.model_fields for each in _ADDED.get(type(section).__name__, ())]
    fields = {key: field for each in added for key, field in each.items()}
    return section.model_copy(update={key: each.get_default(call_default_factory=True) for key, each in fields.items()})


class NamedSection(Section):
    """A section that a word may abbreviate: `softmax` is short for {name: softmax}."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors accept the word too."""
        return {"anyOf": [{"type": "string"}, super().__get_pydantic_json_schema__(core_schema, handler)]}


class Options(Section):
    """The options of one named choice (see `Choices`): a subclass narrows `name` to its own, and has a field for each.

    Attributes:
        siblings: all choices of the same key by name.
        nulls: whether a resolved section of another choice has null for its options.
        listed: whether messages offer it; what the program writes into files by itself is read, and not offered.
        name: which choice this is.
    """

    siblings: ClassVar[Mapping[str, type[Options]]] = {}
    nulls: ClassVar[bool] = True
    listed: ClassVar[bool] = True

    name: str

    def options(self) -> dict[str, Any]:
        """All but the name.

        >>> Options(name="plain").options()
        {}
        """
        return {key: getattr(self, key) for key in type(self).model_fields if key != "name"}


def _shape(value: Any) -> str:
    """The shape of a value, or of a type: "mapping", "list" or "scalar"."""
    kind = value if isinstance(value, type) else type(value)
    return "mapping" if issubclass(kind, (dict, BaseModel)) else "list" if issubclass(kind, (list, tuple)) else "scalar"


class ByShape:
    """A union in which a value is the member of its shape, whose problems alone are reported.

    >>> from pydantic import TypeAdapter
    >>> sizes = TypeAdapter(Annotated[Count | list[Count] | None, BY_SHAPE])
    >>> sizes.validate_python([1, 2]), sizes.validate_python(3), sizes.validate_python(None)
    ([1, 2], 3, None)
    """

    @staticmethod
    def members(union: Any) -> list[Any]:
        """The members, those of one shape as one, with their shapes as tags."""
        by_shape: dict[str, list[Any]] = {}
        for each in get_args(union):
            bare = each.__origin__ if get_origin(each) is Annotated else each
            by_shape.setdefault(_shape(get_origin(bare) or bare), []).append(each)
        return [Annotated[reduce(or_, each), Tag(name)] for name, each in by_shape.items()]

    def __get_pydantic_core_schema__(self, union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members: Any = reduce(or_, self.members(union))
        return handler.generate_schema(Annotated[members, Discriminator(_shape)])


BY_SHAPE = ByShape()


def word_to_bool(value: Any) -> Any:
    """YAML 1.1 spelled booleans yes/no and on/off too; where a boolean is meant, they still are."""
    return {"yes": True, "on": True, "no": False, "off": False}.get(value, value) if isinstance(value, str) else value


Flag = Annotated[bool, BeforeValidator(word_to_bool), Expect("true or false")]
Text = Annotated[str, Field(min_length=1, max_length=4096), Expect("a text that is not empty")]


def ascending(value: list[Any]) -> list[Any]:
    """Two numbers, the second one not below the first.

    Raises:
        ValueError: it is.
    """
    if value[0] > value[1]:
        raise ValueError(f"expected the lowest value first, found [{value[0]:g}, {value[1]:g}]")
    return value


def _absolute(value: str, info: ValidationInfo) -> str:
    """The absolute path of one relative to the user's file."""
    folder = (info.context or {}).get("folder")
    try:
        return value if folder is None else str((folder / value).resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"no path: {error}") from None


FilePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute), Expect("the path of a file")]
Count = Annotated[int, Field(ge=1, le=LARGEST_INTEGER), Expect("a whole number of at least 1")]
Whole = Annotated[int, Field(ge=0, le=LARGEST_INTEGER), Expect("a whole number of at least 0")]
Number = Annotated[float, Expect("a finite number")]
Positive = Annotated[float, Field(gt=0), Expect("a finite number above 0")]
Delta = Annotated[float, Field(ge=1e-300, lt=1), Expect("a number of at least 1e-300, and below 1")]  # a normal number
# A factor of products that must neither vanish nor overflow in float32.
Magnitude = Annotated[float, Field(ge=1e-9, le=1e9), Expect("a number from 1e-9 to 1e9")]
NonNegative = Annotated[float, Field(ge=0), Expect("a finite number of at least 0")]
Probability = Annotated[float, Field(ge=0, le=1), Expect("a number from 0 to 1")]
Share = Annotated[float, Field(gt=0, le=1), Expect("a number above 0 and at most 1")]
