"""Signals of a run that is watched from the terminal."""

import io
import os
import signal
import sys

import pytest

from h2fdp.cli.session import interruptible


def test_a_signal_that_comes_while_a_line_is_written_stops_the_run_all_the_same(monkeypatch, capfd):
    """A buffered stream refuses to be entered by a handler that interrupts its own write."""

    class Interrupted(io.RawIOBase):
        def writable(self):
            return True

        def write(self, text):
            os.kill(os.getpid(), signal.SIGTERM)
            return len(text)

    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Interrupted())))
    with interruptible() as interrupt:
        print("note: a line", file=sys.stderr, flush=True)
        assert interrupt.asked()
        assert interrupt.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert "stopping after this interval (SIGTERM again to stop at once)" in capfd.readouterr().err
