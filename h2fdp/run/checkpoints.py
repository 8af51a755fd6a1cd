"""When a run is written down, so that it can go on after whatever ends it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

from h2fdp.protocol import IntervalPlan
from h2fdp.records import RunDirectory, about
from h2fdp.records.checkpoint import save_checkpoint
from h2fdp.run import steps
from h2fdp.run.recorders import Journal, Recorder, Row
from h2fdp.run.state import RunState
from h2fdp.runtime import RuntimeSection

_log = logging.getLogger(__name__)


class HostsDiffer(Exception):
    """Intervals cannot be repeated on these hosts: they would not come out the same."""


class Checkpoints(Recorder):
    """Writes checkpoints every `checkpoint_every` intervals or `checkpoint_seconds`, whichever comes first.

    Args:
        digest: of the environment (`run_digest`); a run that continues in an equal one repeats bits, in others it draws
            afresh.
        journal: whose marks go into a checkpoint.
        seconds: a clock.
    """

    def __init__(
        self,
        directory: RunDirectory,
        section: RuntimeSection,
        digest: dict[str, str],
        state: RunState,
        journal: Journal,
        *,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._section = section
        self._digest = digest
        self._state = state
        self._journal = journal
        self._seconds = seconds
        self._last = self._started = seconds()
        self._saved: int | None = None

    def hosts_differ(self) -> None:
        """Hosts are of other kinds than this machine: who computes what next time is not known, so neither are bits.

        Raises:
            HostsDiffer: the run is to repeat intervals, with the same draws.
        """
        if self._state.ledger is not None:
            raise HostsDiffer
        self._digest = self._digest | {"hardware": secrets.token_hex(16)}

    def begin(self) -> None:
        """Before the first interval of a run, or of its continuation with fresh draws: what it draws from here on is
        on disk before it is used, and nothing can continue from what was before."""
        self._write(alone=True)

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """See `Recorder`; writes a checkpoint if one is due."""
        every, seconds = self._section.checkpoint_every, self._section.checkpoint_seconds
        late = seconds is not None and self._seconds() - self._last >= seconds
        if late or len(self._state.rows) % every == 0:
            self.save()

    def save(self) -> None:
        """Write one now, unless it is there."""
        if self._saved != len(self._state.rows):
            self._write(alone=False)

    def _write(self, *, alone: bool) -> None:
        now, done = self._seconds(), len(self._state.rows)
        values = self._state.values(self._journal) | {"digest": self._digest}
        values["wall_s"] += now - self._started
        self._state.rows.write(self._directory.metrics)
        steps.reached("checkpoint", done)
        path = save_checkpoint(self._directory.checkpoints, done, values, alone=alone)
        self._last, self._saved = now, done
        _log.info("checkpoint", extra=about(interval=done, file=path.name, bytes=path.stat().st_size))
