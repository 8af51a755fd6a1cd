"""The code of a user's own parts, known by the files that define it."""

from __future__ import annotations

import ast
import inspect
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from h2fdp.config.own_parts import OwnPart, is_installed, is_own, own_parts_in
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.records import versions
from h2fdp.records.summary import digest_of_code, hash_of
from h2fdp.topology import Topology

# What says that a part, or a file that it uses, cannot be read as a whole.
_UNREADABLE = (TypeError, AttributeError, ImportError, OSError, SyntaxError, ValueError)


def code_of(parts: Iterable[Any]) -> str:
    """A digest of a user's own functions, classes and dataclass objects.

    It takes in all modules of the user's that they come from or use, and the versions of the libraries that these
    import. A part that cannot be read as a whole (typed in, wrapped, a function with values of its own) may be another
    one next time: its digest never comes again.
    """
    texts = []
    for part in parts:
        try:
            if not isinstance(part, type) and (getattr(part, "__closure__", None) or getattr(part, "__self__", None)):
                raise TypeError("holds values that are not in any file")
            if is_dataclass(part) and not isinstance(part, type):  # its class and its fields say all
                texts.append(repr(part))
                part = type(part)
            home = _home(part)
            modules = _own_modules(home)
            # What the home is called does not count: it is `__main__` in the process of a script.
            code = {"" if name == home.__name__ else name: digest_of_code(text) for name, (_, text) in modules.items()}
            texts += [part.__qualname__, json.dumps(code, sort_keys=True), json.dumps(versions(_libraries_of(modules)))]
        except _UNREADABLE:
            texts.append(secrets.token_hex(16))
    return hash_of(texts) if texts else ""


def own_parts_of(config: ExperimentFile, topology: Topology) -> list[OwnPart]:
    """All own parts of an experiment: of its configuration, and of its topology."""
    return [*own_parts_in(config), *topology.radio.own_parts]


def own_files_of(parts: Iterable[Any]) -> dict[str, str]:
    """The user's files that parts come from or use -> a digest of what each computes.

    Files of parts that cannot be read as a whole are left out (see `code_of`), and the script that is run: it has to
    change so that it resumes a run.
    """
    found: dict[str, str] = {}
    for part in parts:
        maker = type(part) if is_dataclass(part) and not isinstance(part, type) else part
        try:
            modules = _own_modules(_home(maker)).items()
            found |= {
                str(file): digest_of_code(text)
                for name, (file, text) in modules
                if name != "__main__" and not is_installed(file)
            }
        except _UNREADABLE:
            continue
    return found


def _own_modules(home: ModuleType) -> dict[str, tuple[Path, bytes]]:
    """A module and all own modules that it uses: name -> file and text.

    They are found by what a module has names for and by the imports in its text, those in functions too.

    Raises:
        TypeError, ImportError, OSError, SyntaxError, ValueError: one of them has no file that can be read.
    """
    found: dict[str, tuple[Path, bytes]] = {}
    waiting = {home.__name__: _source_of(home)}
    while waiting:
        name, file = waiting.popitem()
        found[name] = file, file.read_bytes()
        if not is_installed(file):
            used = {*_used_by(sys.modules.get(name)), *_imported(name, *found[name])}
            waiting |= {module: path for module, path in _own_files(used).items() if module not in found}
    return found


def _libraries_of(modules: Mapping[str, tuple[Path, bytes]]) -> list[str]:
    """The installed libraries that modules are of, or import, by the names of their distributions."""
    names = {name for module, source in modules.items() for name in (module, *_imported(module, *source))}
    roots = {name.partition(".")[0] for name in names} - {"h2fdp", *sys.stdlib_module_names}
    return sorted({name for root in roots for name in _distributions().get(root, ()) if name != "h2fdp"})


@cache  # half a second
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@lru_cache(maxsize=1024)
def _imported(module: str, file: Path, text: bytes) -> frozenset[str]:
    """Names that may be modules which a module imports, in functions too: of `from a import b` both `a` and `a.b`."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _home(part: Callable[..., Any]) -> ModuleType:
    home = sys.modules.get(part.__module__ or "")
    if home is None or inspect.getsourcefile(part) != inspect.getsourcefile(home):
        raise TypeError(f"{part} is not of the file of the module that it names")
    return home


def _used_by(module: ModuleType | None) -> Iterator[str]:
    """The modules that a module has names for, or for what they define."""
    for value in list(vars(module).values()) if module else ():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str):
            yield name


def _own_files(names: Iterable[str]) -> dict[str, Path]:
    """Those of these names that are the user's modules, and the packages that these are in -> their files."""
    files = {}
    for name in names:
        for end in (*(end for end, letter in enumerate(name) if letter == "."), len(name)):
            module = name[:end]
            if module in sys.modules:
                file = _source_of(sys.modules[module]) if is_own(sys.modules[module]) else None
            else:
                file = _file_on_path(module)
            if file is not None:
                files[module] = file
    return files


def _source_of(module: ModuleType) -> Path:
    if (file := inspect.getsourcefile(module)) is None:
        raise OSError(f"{module} has no source")
    return Path(file)


def _file_on_path(name: str) -> Path | None:
    """The file of a user's module that is not imported yet, found without importing it."""
    parent, _, _ = name.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", []) if parent else None
    found = PathFinder.find_spec(name, path)
    if found is None or not found.origin or not found.origin.endswith(".py") or is_installed(Path(found.origin)):
        return None
    return Path(found.origin)
