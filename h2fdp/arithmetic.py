"""The arithmetic of a run, by which equal seeds give equal bits whatever the number of threads.

How a sum is split over threads changes its last bits. So every sum and product is computed by one thread, and more
threads compute more parts side by side: blocks of subnets, batches of an evaluation, images of a fixed number.
"""

from __future__ import annotations

import os
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

# A child has none of the threads among which torch would split a product, and would wait for them for ever.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def set_arithmetic() -> None:
    """Set torch's arithmetic for a thread of a run.

    There is one intra-op thread, and numbers below 1e-38 count as 0. A noisy softmax model is full of such shares,
    and products with them took seven times as long. Convolutions on a GPU compute with 32 bits, too, which is not
    what torch does by default.
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


class _OneThread:
    """The threads of products, of which a process has one number: 1 while any of its threads asks for it.

    What torch is given in one thread, MKL takes for all: the last one that asked has torch's number again.
    """

    def __init__(self) -> None:
        self._lock, self._asking, self._before = Lock(), 0, 1

    def __enter__(self) -> None:
        with self._lock:
            if not self._asking:
                self._limited, self._before = _products().limit(limits=1), torch.get_num_threads()
            self._asking += 1
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._asking -= 1
            if not self._asking:
                self._limited.restore_original_limits()
                torch.set_num_threads(self._before)


_ONE_THREAD = _OneThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums and products of torch and of NumPy are computed by one thread each."""
    with _ONE_THREAD:
        yield


@cache
def _products() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")  # looked up once: that takes 0.04 s


@contextmanager
def worker_threads(count: int) -> Iterator[Executor | None]:
    """Threads that compute as a run does; None for a single one: the caller's does the same without them."""
    with ThreadPoolExecutor(count, "devices", initializer=set_arithmetic) as pool:
        yield pool if count > 1 else None


def on_threads(work: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """The results of `work` for the items, in their order, on as many threads as torch has here, each with the
    arithmetic of a run. Within `work` torch has one thread, so that what it calls has no more.

    >>> on_threads(lambda _: torch.get_num_threads(), range(3))
    [1, 1, 1]
    """
    count = torch.get_num_threads()
    with run_arithmetic(), worker_threads(count) as pool:
        return list(map(work, items) if pool is None else pool.map(work, items))
