"""A user's own parts by name: `mymodule:Net` in a file, of a module next to that file or where Python looks for it.

Modules of equal names in different folders are kept apart.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import operator
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from h2fdp.config.own_answers import FAILURES, Origin, Words, failure, shown, typed
from h2fdp.config.parsing import Document
from h2fdp.errors import hint

# Of models, whose modules need not be named: `torchvision:resnet18`. Next to a name of theirs may stand files.
LIBRARIES = ("torchvision", "timm", "transformers")
WEIGHTS, CONFIG = "weights", "config"
PATTERN = r"^([^:]*/)?[^:/]+:[A-Za-z_][\w.]*$"
_EXAMPLE = "expected module:Name, as mymodule:Net"


# Of each module from the folder of a user's file: folder, file, when that changed. Others may have equal names.
_loaded: dict[str, tuple[Path, Path, int]] = {}


def resolve(reference: str, folder: Path) -> tuple[str, Any]:
    """The object of `[folder/]module:Name`, and a reference that names it from any folder.

    A module is looked for in `folder`, then where Python looks; one with a folder of its own, relative to `folder`,
    nowhere else. `module.py:Name` means the same as `module:Name`.

    Raises:
        ValueError: there is no such module or name, or the module fails.
    """
    if not re.fullmatch(PATTERN, reference):
        raise ValueError(f'{_EXAMPLE}, found "{reference[:60]}"')
    place, _, attribute = reference.rpartition(":")
    stated, slash, module_name = place.rpartition("/")
    module_name = module_name.removesuffix(".py")
    home = (folder / (stated + slash)).resolve()
    if _file_of(home, module_name) is not None:
        module, written = _from_folder(home, module_name), f"{home}/{module_name}:{attribute}"
    elif slash:
        raise ValueError(f"expected a module, found no file {home / module_name}.py")
    else:
        module, written = _from_path(module_name, home), f"{module_name}:{attribute}"
    part: Any = module
    for step in attribute.split("."):
        if not hasattr(part, step):
            near = hint(step, (name for name in dir(part) if not name.startswith("_")))
            raise ValueError(f"{getattr(module, '__file__', None) or module.__name__} has no `{step}`{near}")
        part = getattr(part, step)
    return written, part


def _file_of(folder: Path, module: str) -> Path | None:
    stem = folder.joinpath(*module.split("."))
    return next((file for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py") if file.is_file()), None)


def _from_folder(folder: Path, name: str) -> ModuleType:
    """A module of a user's folder; those of equal names from other folders, and old ones, are forgotten."""
    file = _file_of(folder, name)
    assert file is not None, "the folder has it"
    modules = [(module, home) for module, (home, _, _) in _loaded.items()]
    changed = any(home == folder and _time(source) != time for home, source, time in _loaded.values())
    for module, home in modules:
        shadowed = home != folder and _file_of(folder, module.partition(".")[0]) is not None
        if shadowed or (changed and home == folder):
            sys.modules.pop(module, None)
            del _loaded[module]
    loaded = sys.modules.get(name)
    if loaded is not None:
        known_file = getattr(loaded, "__file__", None)
        if known_file and Path(known_file).resolve() == file.resolve():
            return loaded
        taken = f"the module {name} of {known_file or 'Python itself'} is loaded under that name"
        raise ValueError(f"{taken}; expected a file of another name than {file}")
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        return _imported(name)
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # for what its functions import later
        for new in set(sys.modules) - before:
            path = getattr(sys.modules[new], "__file__", None)
            if path and Path(path).resolve().is_relative_to(folder):
                _loaded[new] = folder, Path(path), _time(Path(path))


def _time(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0


def _from_path(name: str, folder: Path) -> ModuleType:
    try:
        return _imported(name)
    except ModuleNotFoundError:
        if name.partition(".")[0] in LIBRARIES:
            raise ValueError(f"{name} is not installed; expected it: pip install {name.partition('.')[0]}") from None
        raise ValueError(f"there is no module `{name}` in {folder} or on Python's path") from None


def _imported(name: str) -> ModuleType:
    """Import a module.

    Raises:
        ModuleNotFoundError: there is none of this name.
        ValueError: it fails, with the user's line that fails.
    """
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except FAILURES as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"the module {name} cannot be imported: {failure(error)}") from error


Section = TypeVar("Section", bound=BaseModel)


@dataclass(frozen=True)
class OwnKind:
    """The requirements on a user's own part.

    Attributes:
        what: in words, as "a server update".
        methods: what its objects must have; a kind without methods is a function, which is called as it is.
        reserved: keys next to `name` that say what is done with the part; no options of it.
        files: those of them that are paths of files.
        libraries: a part may be one of `LIBRARIES`, with weights and a configuration in files.
    """

    what: str
    methods: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    libraries: bool = False

    def mistake(self, name: str, part: Any) -> str:
        """The mistake of a part, in words; empty where it has none."""
        if not self._is_object(part) and not callable(part):
            return f"expected a class or a function, found {name}, which is {typed(part)}"
        missing = [method for method in self.methods if not hasattr(part, method)]
        if missing and (isinstance(part, type) or self._is_object(part)):
            return f"expected {self.what}, found {name}, which has no `{missing[0]}`"
        if inspect.isabstract(part):
            return f"expected {self.what}, found {name}, which does not define `{min(part.__abstractmethods__)}`"
        return ""

    def _is_object(self, part: Any) -> bool:
        return bool(self.methods) and not isinstance(part, type) and hasattr(part, self.methods[0])


@dataclass(frozen=True)
class OwnPart:
    """A part of a run that the user wrote: a class, a function, or an object handed in from Python.

    Attributes:
        name: `[folder/]module:Name` as a resolved file says it, or the qualified name of an object from Python.
        part: the object that the name refers to.
        given: what stands next to the name.
        from_python: it was handed in, so that no file can bring it back.
        where, key: where it was named, and the dotted key.
    """

    name: str
    part: Any
    kind: OwnKind
    given: Mapping[str, Any] = field(default_factory=dict)
    from_python: bool = False
    where: str = field(default="", compare=False)
    key: str = field(default="", compare=False)

    @property
    def origin(self) -> Origin:
        """The name and the place of the part, for messages."""
        return Origin(self.name, self.where, self.key)

    @property
    def library(self) -> str:
        """The one of `LIBRARIES` that it is of; empty for none."""
        root = self.name.partition(":")[0].partition(".")[0]
        return root if self.kind.libraries and root in LIBRARIES and not self.from_python else ""

    def options(self) -> dict[str, Any]:
        """Keyword arguments of the class or function."""
        reserved = (*self.kind.reserved, *((WEIGHTS, CONFIG) if self.library else ()))
        return {key: option for key, option in self.given.items() if key not in reserved}

    @property
    def function(self) -> Callable[..., Any]:
        """The part as a function that has its options."""
        options = self.options()
        function: Callable[..., Any] = partial(self.part, **options) if options else self.part
        return function

    def make(self) -> Any:
        """An object of the part's kind; of an object handed in, a copy, so that runs share no state.

        Raises:
            UserError: the class or function fails, or makes something else.
        """
        if self.kind._is_object(self.part):
            return copy.deepcopy(self.part)
        try:
            made = self.part(**self.options())
        except FAILURES as error:
            raise self.origin.failed("", error, "cannot be made") from error
        missing = [method for method in self.kind.methods if not hasattr(made, method)]
        if missing:
            raise self.origin.wrong("", self.kind.what, Words(f"{shown(made)} without `{missing[0]}`"))
        return made

    def written(self) -> dict[str, Any] | str:
        """The part as a resolved configuration states it."""
        return self.name if self.from_python else {"name": self.name, **self.given}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Instances only: they are made while a choice is read."""
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(cls.written)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A mapping with a name of this form and any options."""
        text = "A part of your own: the module, or its file, and the name in it."
        name = {"type": "string", "pattern": PATTERN, "description": text}
        return {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": True}


def own_part(value: Any, folder: Path, kind: OwnKind) -> OwnPart:
    """The part that a file names, or that Python hands in.

    Args:
        value: {name: "module:Name", option: value, ...}, or an object.
        folder: of the user's file, where modules are looked for first.

    Raises:
        ValueError: states the value and what would be right.
    """
    if not isinstance(value, Mapping):
        own = OwnPart(_qualified(value), value, kind, from_python=True)
    else:
        value = _of_library(value) if kind.libraries else value
        name, part = resolve(value["name"], folder)
        given = {key: option for key, option in value.items() if key != "name"}
        own = OwnPart(name, part, kind, given)
        files = (*kind.files, *((WEIGHTS, CONFIG) if own.library else ()))
        paths = {key: str((folder / given[key]).resolve()) for key in files if isinstance(given.get(key), str)}
        own = replace(own, given=given | paths)
    mistake = kind.mistake(own.name.rpartition("/")[2], own.part) or _wrong_options(own)
    if mistake:
        raise ValueError(mistake)
    return own


def _of_library(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """`torchvision:resnet18` and `timm:resnet18`, as one would write them, by where the function is."""
    library, _, name = str(value["name"]).partition(":")
    if library == "torchvision":
        return {**value, "name": f"torchvision.models:{name}"}
    if library == "timm" and name != "create_model":
        return {"model_name": name, **value, "name": "timm:create_model"}
    return value


def placed(section: Section, document: Document, path: tuple[str | int, ...] = ()) -> Section:
    """A checked section of a document, whose own parts know where they were named."""
    changed: dict[str, Any] = {}

    def inside(value: Any, step: tuple[str | int, ...]) -> Any:
        if isinstance(value, OwnPart):
            return replace(value, where=document.where(step), key=document.key(step))
        if isinstance(value, list) and value and isinstance(value[0], BaseModel):
            items = [inside(each, (*step, at)) for at, each in enumerate(value)]
            return value if all(map(operator.is_, items, value)) else items
        return placed(value, document, step) if isinstance(value, BaseModel) else value

    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if (new := inside(value, (*path, info.alias or name))) is not value:
            changed[name] = new
    return section.model_copy(update=changed) if changed else section


def own_parts_in(section: BaseModel) -> list[OwnPart]:
    """All own parts of a checked section, at any depth."""
    parts = []
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, OwnPart):
            parts.append(value)
        elif isinstance(value, BaseModel):
            parts += own_parts_in(value)
    return parts


def _wrong_options(part: OwnPart) -> str:
    """Options that the part does not take, or does not get; empty where they fit or the signature is unknown."""
    if part.kind._is_object(part.part) or part.library == "transformers":  # whose options are a configuration's
        return ""
    try:
        signature = inspect.signature(part.part)
    except (TypeError, ValueError):
        return ""
    try:  # a function gets its first arguments when it is called
        (signature.bind if part.kind.methods else signature.bind_partial)(**part.options())
    except TypeError as error:
        return f"the options do not fit {part.name.rpartition('/')[2]}{signature}: {error}"
    return ""


def _qualified(part: Any) -> str:
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"
