"""A user's own modules: found beside the file first, imported, and told apart from modules of equal names elsewhere."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from h2fdp.config.user_code import FAILURES, failure

PATTERN = r"^([^:]*/)?[^:/]+:[A-Za-z_][\w.]*$"
_EXAMPLE = "expected module:Name, as mymodule:Net"


@dataclass(frozen=True)
class _Loaded:
    """A module that came from the folder of a user's file: another folder may have modules of equal names."""

    folder: Path
    file: Path
    stamp: tuple[int, int]

    @property
    def stale(self) -> bool:
        """The file is another one now."""
        return not self.file.is_file() or _stamp(self.file) != self.stamp


_loaded: dict[str, _Loaded] = {}


def resolve(reference: str, folder: Path) -> tuple[str, Any]:
    """What `[folder/]module:Name` stands for, and the reference by which it is found from anywhere.

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
            close = difflib.get_close_matches(step, vars(part) if hasattr(part, "__dict__") else (), n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise ValueError(f"{_shown(module)} has no `{step}`{hint}")
        part = getattr(part, step)
    return written, part


def _file_of(folder: Path, module: str) -> Path | None:
    stem = folder.joinpath(*module.split("."))
    return next((file for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py") if file.is_file()), None)


def _from_folder(folder: Path, name: str) -> ModuleType:
    """A module of a user's folder; those of equal names from other folders, and old ones, are forgotten."""
    file = _file_of(folder, name)
    assert file is not None, "the folder has it"
    changed = any(origin.stale for origin in _loaded.values() if origin.folder == folder)
    for known, origin in list(_loaded.items()):
        shadowed = origin.folder != folder and _file_of(folder, known.partition(".")[0]) is not None
        if shadowed or (changed and origin.folder == folder):
            sys.modules.pop(known, None)
            del _loaded[known]
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
                _loaded[new] = _Loaded(folder, Path(path), _stamp(Path(path)))


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size


def _from_path(name: str, folder: Path) -> ModuleType:
    try:
        return _imported(name)
    except ModuleNotFoundError:
        text = f"expected a module beside the file or where Python looks, found no `{name}` in {folder} or there"
        raise ValueError(text) from None


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


def _shown(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or module.__name__)
