"""User modules that are not installed packages, and so must be sent to other machines."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType


def is_own(module: ModuleType) -> bool:
    """Whether a module is the user's: neither installed nor ours."""
    file = getattr(module, "__file__", None)
    return bool(file) and module.__name__.partition(".")[0] != "h2fdp" and not is_installed(Path(str(file)))


def is_installed(file: Path) -> bool:
    """Whether a file is in one of the folders of Python's own and of installed libraries."""
    return any(file.resolve().is_relative_to(folder) for folder in _installation())


@cache
def _installation() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_path(kind)).resolve() for kind in kinds)
