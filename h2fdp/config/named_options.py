"""A choice among named things with options of their own: a model, an objective, a server update.

Each choice is a pydantic model with its options, distinguished by `name`. A field of a schema takes any of them, a word
that abbreviates one with its defaults, or a user's own part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, Union

from pydantic import (
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from h2fdp.config.check import quote
from h2fdp.config.fields import Options
from h2fdp.config.own_parts import PATTERN, OwnKind, OwnPart, own_part
from h2fdp.errors import hint

OptionsType = TypeVar("OptionsType", bound=Options)
Registered = TypeVar("Registered", bound=Options)
_OWN: Literal["module:Name"] = "module:Name"
_FILES = (".csv", ".parquet", ".npz")
_DOTTED = r"[^\s:]*[A-Za-z_]\w*\.[A-Za-z_]\w*"  # a point where a colon belongs


class Choices(Generic[OptionsType]):
    """The named choices of one key, each an `Options` model.

    Args:
        own: what a user's own part must be; None where none is accepted.
        unnamed: the choice that a mapping without a name stands for; None where a name is required.
        instead: names that are no choices, or are none any more -> a predicate that says what to state.

    >>> colours: Choices[Options] = Choices()
    >>> @colours.register
    ... class Grey(Options):
    ...     name: Literal["grey"] = "grey"
    ...     lightness: float = 0.5
    >>> @colours.register
    ... class Red(Options):
    ...     name: Literal["red"] = "red"
    >>> colours.read("grey").options(), colours.read({"name": "grey", "lightness": 0.9}).options()
    ({'lightness': 0.5}, {'lightness': 0.9})
    """

    def __init__(
        self, own: OwnKind | None = None, unnamed: str | None = None, instead: Mapping[str, str] | None = None
    ) -> None:
        self.own, self.unnamed, self.instead = own, unnamed, instead or {}
        self.models: dict[str, type[Options]] = {}

    def register(self, model: type[Registered]) -> type[Registered]:
        """Add a choice; a decorator of its options."""
        self.models[model.model_fields["name"].default] = model
        model.siblings = self.models
        return model

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all choices that are offered, in the order in which they were registered."""
        return tuple(name for name, model in self.models.items() if model.listed)

    def members(self, union: Any = None) -> list[Any]:
        """The types of the choices, each with its name as a tag."""
        return [*(Annotated[model, Tag(name)] for name, model in self.models.items()), Annotated[OwnPart, Tag(_OWN)]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the union of all choices that are registered by then."""

        def complete(value: Any, info: ValidationInfo) -> Any:
            return self.complete(value, (info.context or {}).get("folder") or Path.cwd())

        def written(value: Any, plain: Callable[[Any], Any]) -> Any:
            return self.written(value, plain(value))

        union: Any = Annotated[Union[tuple(self.members())], Discriminator(self._tag)]  # noqa: UP007
        schema = core_schema.with_info_before_validator_function(complete, handler.generate_schema(union))
        schema["serialization"] = core_schema.wrap_serializer_function_ser_schema(written)
        return schema

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors accept the word too, and know the names."""
        words: list[JsonSchemaValue] = [{"type": "string", "enum": list(self.names)}]
        if self.own is not None:
            words.append({"type": "string", "pattern": PATTERN})
        return {"anyOf": [*words, handler(schema)]}

    def read(self, value: Any, folder: Path | None = None) -> OptionsType | OwnPart:
        """A value as a file has it, read by itself; modules are looked for in `folder`."""
        kind: TypeAdapter[OptionsType | OwnPart] = TypeAdapter(Annotated[Any, self])
        return kind.validate_python(value, context={"folder": folder})

    def _tag(self, value: Any) -> str:
        """The name of the choice that a value is; a value that can be none is judged as the first."""
        if isinstance(value, OwnPart):
            return _OWN
        name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
        return name if name in self.models else self.names[0]

    def complete(self, value: Any, folder: Path) -> Any:
        """A word as a mapping, an own part loaded; null stands for an option's default, whether it has one or not."""
        if isinstance(value, (Options, OwnPart)):
            return value
        word = isinstance(value, str)
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            if self.own is None or isinstance(value, (int, float, list, tuple, type(None))):
                raise self._wrong_name(f"expected {self._expected}, found {quote(value)}", value, word=True)
            return own_part(value, folder, self.own)
        if self.unnamed is not None and "name" not in value:
            value = {"name": self.unnamed, **value}
        name = value.get("name")
        if "name" not in value:
            raise self._wrong_name(f"the key is missing; expected {self._expected}", value)
        if isinstance(name, str) and ":" in name and self.own is not None:
            return own_part(value, folder, self.own)
        if not isinstance(name, str) or name not in self.models:
            if predicate := self.instead.get(str(name).lower().replace("_", "")):
                raise self._wrong_name(f"{quote(name)} {predicate}", name, word)
            near = hint(name, self.names)
            if not near and self.own is not None and isinstance(name, str) and re.fullmatch(_DOTTED, name):
                near = f"; did you mean `{':'.join(name.rsplit('.', 1))}`?"
            of_files = any("path" in each.model_fields for each in self.models.values())
            if isinstance(name, str) and (name.endswith(_FILES) or (of_files and (folder / name).exists())):
                near = "; a file or folder is the `path` of one of them"
            raise self._wrong_name(f"expected {self._expected}, found {quote(name)}{near}", name, word)
        return {key: option for key, option in value.items() if option is not None}

    @property
    def _expected(self) -> str:
        return f"one of {', '.join(self.names)}{'' if self.own is None else f', or {_OWN}'}"

    def _wrong_name(self, text: str, value: Any, word: bool = False) -> ValidationError:
        """A mistake at the key `name`, or at the choice's own where a word stands for it."""
        problem = PydanticCustomError("value_error", "{text}", {"text": text})
        place = () if word else (self.names[0], "name")
        return ValidationError.from_exception_data(
            "choice", [InitErrorDetails(type=problem, loc=place, input=str(value))]
        )

    def written(self, value: Options | OwnPart, mapping: Any) -> Any:
        """The mapping of a choice, with null for the options of others."""
        if isinstance(value, OwnPart):
            return mapping
        return {"name": value.name} | dict.fromkeys(self._all_options()) | mapping

    def stated(self, value: Options | OwnPart) -> Any:
        """A choice in the fewest words that a file needs: a word, or a mapping with its own options alone."""
        if isinstance(value, OwnPart):
            return value.written()
        if value.name == self.unnamed:
            return value.options()
        return {"name": value.name, **value.options()} if value.options() else value.name

    def _all_options(self) -> Iterable[str]:
        shown = [model for model in self.models.values() if model.nulls]
        return [key for model in shown for key in model.model_fields if key != "name"]


# A method by name: its choices on the axes that differ from the defaults, and one line about it.
NAMED_METHODS: dict[str, tuple[dict[str, Any], str]] = {}


def name_method(name: str, description: str, **axes: Any) -> None:
    """Give a point on the axes a name, for `method:` and `h2fdp methods`."""
    NAMED_METHODS[name] = axes, description
