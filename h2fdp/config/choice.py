"""A choice among named things with options of their own: a model, an objective, a schedule."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.functional_validators import field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from h2fdp.config.fields import Expect, NamedSection


class Choice(NamedSection):
    """A name with its options; the name alone is short for {name: ...}.

    A subclass states `choices` and a field, by default None, for every option of any of them. Options that are not
    given get the defaults of the name; those that mean nothing for it are refused.

    Attributes:
        choices: name -> option -> default; a default of None stands for itself.
    """

    choices: ClassVar[Mapping[str, Mapping[str, Any]]]

    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """What is expected of a name."""
        cls.model_fields["name"].metadata = [Expect(f"one of {', '.join(cls.choices)}")]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors accept the word too, and know the names."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        names = {"type": "string", "enum": list(cls.choices)}
        schema["anyOf"][0] = names
        schema["anyOf"][1]["properties"]["name"] = names
        return schema

    def options(self) -> dict[str, Any]:
        """The options that the name takes, all of them."""
        return {key: getattr(self, key) for key in self.choices[self.name]}

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in cls.choices:
            return value
        stated = {key: option for key, option in value.items() if option is not None}
        return {**cls.choices[value["name"]], **stated}

    @field_validator("name", mode="before")
    @classmethod
    def _known(cls, name: Any) -> Any:
        if isinstance(name, str) and name not in cls.choices:
            close = difflib.get_close_matches(name, cls.choices, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise ValueError(f'expected one of {", ".join(cls.choices)}, found "{name[:40]}"{hint}')
        return name

    @field_validator("*", mode="before")
    @classmethod
    def _means_something(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.data.get("name")
        if info.field_name == "name" or name is None or value is None:
            return value
        if info.field_name not in cls.choices[name]:
            allowed = ", ".join(("name", *cls.choices[name]))
            raise ValueError(f"`{info.field_name}` means nothing for {name}; allowed here: {allowed}")
        return value
