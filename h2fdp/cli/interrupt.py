"""Ctrl-C and SIGTERM: once to stop after the interval, twice to stop at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether a run was asked to stop, and how a process says so when it ends.

    Ctrl-C is 130, SIGTERM (a batch system's or a container's) 143: 128 and the signal's number, as shells have it.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def asked(self) -> bool:
        """Whether the run is to stop after this interval."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Of a process that stopped for it."""
        return 128 + (self.signal or signal.SIGINT)

    def listen(self) -> None:
        """Take the signals; again after libraries that take them for themselves were started."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        again = "Ctrl-C again" if number == signal.SIGINT else "SIGTERM again"
        print(f"stopping after this interval ({again} to stop at once)", file=sys.stderr, flush=True)


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Signals ask the block to stop; a second one is a KeyboardInterrupt."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    interrupt = Interrupt()
    interrupt.listen()
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
