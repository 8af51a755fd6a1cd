"""A user's own modules: what is not installed, and so is neither on other machines nor told by a version."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def is_own(module: ModuleType) -> bool:
    """Whether a module is the user's: neither installed nor ours."""
    file = getattr(module, "__file__", None)
    if not file or module.__name__.partition(".")[0] == "h2fdp":
        return False
    path = Path(file).resolve()
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(path.is_relative_to(folder) for folder in installed)


def own_sources(part: Callable[..., Any]) -> list[str]:
    """The text of the file that defines a function or class, and of every own module that this one uses by name.

    Raises:
        TypeError, OSError: there is no such file.
    """
    texts = {"": Path(inspect.getsourcefile(part) or "").read_text()}
    home = sys.modules.get(part.__module__ or "")
    if home is None:
        raise TypeError(f"{part} belongs to no module")
    waiting = [home]
    while waiting:
        module = waiting.pop()
        if module.__name__ in texts or not is_own(module):
            continue
        texts[module.__name__] = Path(inspect.getsourcefile(module) or "").read_text()
        for value in list(vars(module).values()):
            used = value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
            if used is not None:
                waiting.append(used)
    return [text for _, text in sorted(texts.items())]
