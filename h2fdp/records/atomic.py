"""Files that are either whole or not there: written beside their place, synced, renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from h2fdp.errors import UserError


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that takes `path`'s place when the block ends without an error.

    Args:
        private: nobody but its owner may read it, at any time.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # one that a crash left may have other permissions
    try:
        with open(part, "wb", opener=_owners if private else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Wait until the folder's own entries are on disk: a rename is not, until then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a whole text file, or nothing; `private` as for `replacing`."""
    with replacing(path, private=private) as file:
        file.write(text.encode())


@contextmanager
def output_file(path: Path, option: str, suffixes: Sequence[str] = ()) -> Iterator[None]:
    """Around what writes a file that a user named by an option; missing folders are made.

    Raises:
        UserError: a folder, another suffix, or it cannot be written.
    """
    if path.is_dir():
        raise UserError("is a folder; expected a file in it", str(path), option)
    if suffixes and path.suffix not in suffixes:
        raise UserError(f"expected a file that ends in {', '.join(suffixes)}, found {path.name}", option)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(path), option) from None
