"""Fetch a data set through torchvision: quietly, with a time limit, and into place only when it is whole."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

# URLError and BadGzipFile are OSErrors; torchvision itself raises RuntimeErrors.
_FAILURES = (OSError, RuntimeError, ValueError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error)
SILENCE_AT_MOST_S = 10.0  # for a connection and for each read of one


def download(reader: str, root: Path, folder: str, files: list[str]) -> str:
    """Download torchvision's data set `reader` and put its files into root/folder.

    Torchvision writes where it reads and would take an interrupted file for a whole one at the next start. So it
    works in a folder of its own beside the destination, from which whole files are moved.

    Returns:
        why it failed, in a few words; empty when it did not.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as workshop:
            with _time_limit(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                getattr(import_module("torchvision.datasets"), reader)(workshop, download=True)
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name in files:
                os.replace(Path(workshop) / folder / name, root / folder / name)
    except _FAILURES as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1].strip("<>") if lines else type(error).__name__
    return ""


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Torchvision sets no time limit of its own, and a firewall that drops packets would hold it for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_AT_MOST_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
