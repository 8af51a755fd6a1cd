"""How a run computes, so that equal seeds give equal bits whatever the number of threads.

How a sum is split over threads changes its last bits. So every sum and product is computed by one thread, and more
threads compute more parts side by side: blocks of subnets, batches of an evaluation, images of a fixed number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Found = TypeVar("Found")


def set_arithmetic() -> None:
    """How each thread of a run computes with torch.

    Besides one intra-op thread: numbers below 1e-38 count as 0. A noisy softmax model is full of such shares, and
    products with them took seven times as long. Convolutions on a GPU compute with 32 bits, too, which is not what
    torch does by default.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def run_arithmetic() -> Iterator[None]:
    """The arithmetic of a run in this thread: `one_thread`, and what `set_arithmetic` says."""
    with one_thread(), flushing(True):
        set_arithmetic()
        yield


@contextmanager
def flushing(on: bool) -> Iterator[None]:
    """Whether numbers below 1e-38 count as 0 in this thread, also those that are read from a text or written to one.

    >>> with flushing(True):
    ...     small = float("5e-324")
    >>> with flushing(False):
    ...     small == float("5e-324")
    False
    """
    before = bool(torch.tensor(2e-38) * 0.25 == 0)
    torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums and products of torch in this thread, and of NumPy in this process, are computed by one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _NUMPY:
            yield
    finally:
        torch.set_num_threads(before)


class _NumpysThreads:
    """The threads of NumPy's products, of which a process has one number: 1 while any of its threads asks for it."""

    def __init__(self) -> None:
        self._lock, self._asking = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._asking:
                self._limited = _products().limit(limits=1)
            self._asking += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._asking -= 1
            if not self._asking:
                self._limited.restore_original_limits()


_NUMPY = _NumpysThreads()


@cache
def _products() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")  # looked up once: that takes 0.04 s


@contextmanager
def worker_threads(count: int) -> Iterator[Executor | None]:
    """Threads that compute as a run does; None for a single one: the caller's does the same without them."""
    with ThreadPoolExecutor(count, "devices", initializer=set_arithmetic) as pool:
        yield pool if count > 1 else None


def on_threads(work: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """What `work` makes of each, in their order, on as many threads as torch has here, each with the arithmetic of a
    run. Within `work` torch has one, so that what it calls has no more.

    >>> on_threads(lambda _: torch.get_num_threads(), range(3))
    [1, 1, 1]
    """
    count = torch.get_num_threads()
    with run_arithmetic(), worker_threads(count) as pool:
        return list(map(work, items) if pool is None else pool.map(work, items))
