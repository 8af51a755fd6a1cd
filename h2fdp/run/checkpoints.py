"""When a run is written down, so that it can go on after whatever ends it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

from h2fdp.records import JsonLines, RunDirectory, about
from h2fdp.records.checkpoint import save_checkpoint
from h2fdp.run.state import Progress
from h2fdp.runtime import RuntimeSection

_log = logging.getLogger(__name__)


class HostsDiffer(Exception):
    """Intervals cannot be repeated on these hosts: they would not come out the same."""


class Checkpoints:
    """Writes checkpoints every `checkpoint_every` intervals or `checkpoint_seconds`, whichever comes first.

    Args:
        digest: of the environment (`run_digest`); a run that goes on in an equal one repeats bits, in others it draws
            afresh.
        seconds: a clock.
    """

    def __init__(
        self,
        directory: RunDirectory,
        section: RuntimeSection,
        digest: dict[str, str],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._section = section
        self._digest = digest
        self._seconds = seconds
        self._last = self._started = seconds()
        self._saved: int | None = None

    def tell_mixed(self, progress: Progress) -> None:
        """Hosts are of other kinds than this machine: who computes what next time is not known, so neither are bits.

        Raises:
            HostsDiffer: the run is to repeat intervals, with the same draws.
        """
        if progress.ledger is not None:
            raise HostsDiffer
        self._digest = self._digest | {"hardware": secrets.token_hex(16)}

    def begin(self, progress: Progress, ledger: JsonLines, decisions: JsonLines) -> None:
        """Before the first interval of a run, or of its continuation with fresh draws: what it draws from here on is
        on disk before it is used, and nothing of what was before can be gone on from."""
        self._write(progress, ledger, decisions, alone=True)

    def save_if_due(self, progress: Progress, ledger: JsonLines, decisions: JsonLines) -> None:
        """After an interval."""
        every, seconds = self._section.checkpoint_every, self._section.checkpoint_seconds
        late = seconds is not None and self._seconds() - self._last >= seconds
        if late or len(progress.rows) % every == 0:
            self.save(progress, ledger, decisions)

    def save(self, progress: Progress, ledger: JsonLines, decisions: JsonLines) -> None:
        """Write one now, unless it is there."""
        if self._saved != len(progress.rows):
            self._write(progress, ledger, decisions, alone=False)

    def _write(self, progress: Progress, ledger: JsonLines, decisions: JsonLines, *, alone: bool) -> None:
        now = self._seconds()
        values = progress.values(ledger.mark(), decisions.mark()) | {"digest": self._digest}
        values["wall_s"] += now - self._started
        progress.rows.write(self._directory.metrics)
        path = save_checkpoint(self._directory.checkpoints, len(progress.rows), values, alone=alone)
        self._last, self._saved = now, len(progress.rows)
        _log.info("checkpoint", extra=about(interval=len(progress.rows), file=path.name, bytes=path.stat().st_size))
