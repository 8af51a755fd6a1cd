"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_RELAXED = {"reassoc", "contract", "nsz", "arcp"}  # of what is fast; what is not finite is not assumed away

_OPTIONS: Any = {"fastmath": _RELAXED, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that is compiled into the kernels that call it.

    Its sums may be taken in any order that the compiler finds, but by the same code for each device. Python cannot call
    it: ways in from there would take a quarter of the time that compiling takes.
    """
    return cast("Callable[Parameters, Result]", njit(**_OPTIONS)(function))


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that is compiled into the place of every call.

    What is called by name is compiled twice, by itself and with its caller, and sums come out in another order: a
    process that compiles would take the one, and processes that find the machine code on disk the other.
    """
    return cast("Callable[Parameters, Result]", njit(**_OPTIONS, forceinline=True)(function))


def digest_of_sources(folder: Path = Path(__file__).parent) -> int:
    """63 bits of a digest of all files of this folder."""
    texts = [file.name.encode() + b"|" + file.read_bytes() for file in sorted(folder.glob("*.py"))]
    return int.from_bytes(blake2b(b"||".join(texts), digest_size=8).digest(), "little") >> 1
