"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numba
from filelock import FileLock, Timeout

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_RELAXED = {"reassoc", "contract", "nsz", "arcp"}  # of what is fast; what is not finite is not assumed away
_LONGEST_S = 300.0  # many times what compiling takes: whoever waited for so long compiles it, too
_OPTIONS: Any = {"fastmath": _RELAXED, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that is compiled into the kernels that call it.

    Its sums may be taken in any order that the compiler finds, but by the same code for each device. Python cannot call
    it: ways in from there would take a quarter of the time that compiling takes.
    """
    return cast("Callable[Parameters, Result]", numba.njit(**_OPTIONS)(function))


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that is compiled into the place of every call.

    What is called by name is compiled twice, by itself and with its caller, and sums come out in another order: a
    process that compiles would take the one, and processes that find the machine code on disk the other.
    """
    return cast("Callable[Parameters, Result]", numba.njit(**_OPTIONS, forceinline=True)(function))


def digest_of_sources(folder: Path = Path(__file__).parent) -> int:
    """63 bits of a digest of all files of this folder."""
    texts = [file.name.encode() + b"|" + file.read_bytes() for file in sorted(folder.glob("*.py"))]
    return int.from_bytes(blake2b(b"||".join(texts), digest_size=8).digest(), "little") >> 1


class CompiledOnce(Generic[Parameters, Result]):
    """A compiled function that holds no lock of the interpreter.

    Its machine code is kept in NUMBA_CACHE_DIR, beside the file or in the user's cache folder, the first that can be
    written to. Hosts of a run start together, and so do the runs of a sweep: the first that calls the function compiles
    it, and the others wait for that instead of doing the same. Where nothing can be written or locked, each compiles.

    Attributes:
        dispatcher: numba's.
        lock: the file that a process holds while it compiles or reads; None where there is no place to write to.
    """

    def __init__(self, function: Callable[Parameters, Result]) -> None:
        self.lock: Path | None = None
        try:
            self.dispatcher: Any = numba.njit(nogil=True, cache=True)(function)
            folder = self.dispatcher.stats.cache_path
            self.lock = None if folder is None else Path(folder) / f"{function.__module__}.lock"
        except RuntimeError:
            self.dispatcher = numba.njit(nogil=True)(function)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        assert not kwargs, "compiled functions take their arguments in order"
        if not self.dispatcher.overloads:  # `signatures` makes a list at each call
            self._compile(tuple(numba.typeof(each) for each in args))  # type: ignore[no-untyped-call]
        return cast("Result", self.dispatcher(*args))

    def _compile(self, kinds: tuple[Any, ...]) -> None:
        """Under the lock, or without one after a while."""
        with ExitStack() as held:
            if self.lock is not None:
                with suppress(Timeout, OSError, NotImplementedError):
                    held.enter_context(FileLock(self.lock, timeout=_LONGEST_S))
            self.dispatcher.compile(kinds)
