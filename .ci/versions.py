"""Versions of the runtime dependencies: `python .ci/versions.py lowest` or `... tested`.

`lowest` prints the lowest version of each that pyproject.toml allows, as constraints for pip. `tested` prints what this
interpreter has of them and of all that they need, as requirements.lock has it.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("mlflow", "tensorboard")  # that users ask for


def dependencies() -> list[Requirement]:
    """The runtime dependencies as pyproject.toml states them."""
    return [Requirement(each) for each in PROJECT["dependencies"]]


def lowest() -> list[str]:
    """`name==version` of each at its lower bound, and of what the extras add."""
    more = [Requirement(each) for extra in EXTRAS for each in PROJECT["optional-dependencies"][extra]]
    return [
        f"{each.name}=={bound.version}"
        for each in (*dependencies(), *more)
        for bound in each.specifier
        if bound.operator == ">="
    ]


def tested() -> list[str]:
    """`name==version` of each and of all that they need here, without what is of one machine alone (CUDA, `+cpu`)."""
    found: dict[str, str] = {}
    waiting = dependencies()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:  # what torch needs for its GPUs, which a CPU build has not
            continue
        waiting += [Requirement(each) for each in requires(name) or ()]
    return [f"{name}=={found[name]}" for name in sorted(found)]


if __name__ == "__main__":
    print("\n".join({"lowest": lowest, "tested": tested}[sys.argv[1]]()))
