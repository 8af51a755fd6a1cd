"""Field types of the files that users write; each carries the words for what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from h2fdp.config.descriptions import description_of, descriptions_of_keys

LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class Expect:
    """The words after "expected" in the message about a wrong value of this type."""

    text: str


class Section(BaseModel):
    """A mapping of a user's file: unknown keys, inexact types, NaN and infinities are refused.

    Attributes:
        other_names: of a whole file: what others call its keys -> the key, dotted, for messages.
    """

    other_names: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors show what each key means."""
        schema = handler(core_schema)
        described, meant = handler.resolve_ref_schema(schema), descriptions_of_keys(cls)
        described["description"] = description_of(cls)
        for key, values in described.get("properties", {}).items():
            if key in meant:
                values["description"] = meant[key]
        return schema


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


def shape(value: Any) -> str:
    """Which of "mapping", "list" and "scalar" a value is.

    A union whose members are told apart by it, ``Annotated[Annotated[Positive, Tag("scalar")] | Annotated[Uniform,
    Tag("mapping")], Discriminator(shape), Expect(...)]``, reports the problems of the member that the user meant only.
    """
    if isinstance(value, (dict, BaseModel)):
        return "mapping"
    return "list" if isinstance(value, (list, tuple)) else "scalar"


def _word_to_bool(value: Any) -> Any:
    """YAML 1.1 spelled booleans yes/no and on/off too; where a boolean is meant, they still are."""
    return {"yes": True, "on": True, "no": False, "off": False}.get(value, value) if isinstance(value, str) else value


Flag = Annotated[bool, BeforeValidator(_word_to_bool), Expect("true or false")]
Text = Annotated[str, Field(min_length=1, max_length=4096), Expect("a text that is not empty")]


def _absolute(value: str, info: ValidationInfo) -> str:
    """A path relative to the user's file, found from anywhere."""
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
# A factor of products that must neither vanish nor overflow in float32.
Magnitude = Annotated[float, Field(ge=1e-9, le=1e9), Expect("a number from 1e-9 to 1e9")]
NonNegative = Annotated[float, Field(ge=0), Expect("a finite number of at least 0")]
Probability = Annotated[float, Field(ge=0, le=1), Expect("a number from 0 to 1")]
Share = Annotated[float, Field(gt=0, le=1), Expect("a number above 0 and at most 1")]
OpenProbability = Annotated[float, Field(gt=0, lt=1), Expect("a number above 0 and below 1")]
