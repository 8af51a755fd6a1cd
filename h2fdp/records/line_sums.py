"""Checksums of the lines of a run's text files: which line was changed after the run wrote it.

For `privacy.jsonl` the file `checksums/privacy.jsonl` has the CRC-32 of each of its lines, eight hexadecimal digits a
line. They are written after the lines: a process that dies between the two leaves lines without a checksum, never a
checksum without its line, so a file with fewer lines than checksums was cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

from h2fdp.errors import UserError
from h2fdp.records.atomic import replacing

SUMS = "checksums"
WIDTH = 9  # of a checksum and the end of its line


def sums_path(path: Path) -> Path:
    """Where the checksums of a file of a run are."""
    return path.parent / SUMS / path.name


def sums_of(lines: Iterable[bytes]) -> bytes:
    """The checksums of lines, their ends included."""
    return b"".join(b"%08x\n" % crc32(line) for line in lines)


class KnownSums:
    """The checksums that are there of a file's lines; none of a file that is no run's, or of an earlier version's."""

    def __init__(self, path: Path) -> None:
        self._file = path
        try:
            self._bytes = sums_path(path).read_bytes()
        except OSError:
            self._bytes = b""

    def __len__(self) -> int:
        return len(self._bytes) // WIDTH

    def check(self, number: int, line: bytes) -> None:
        """Raise a UserError if a line, counted from 1, is not the one that was written."""
        begin = (number - 1) * WIDTH
        stated = self._bytes[begin : begin + WIDTH]
        if len(stated) == WIDTH and stated != b"%08x\n" % crc32(line):
            text = f"the line was changed after the run wrote it: it does not match its checksum ({SUMS}/"
            raise UserError(f"{text}{self._file.name})", f"{self._file}:{number}")

    def check_count(self, lines: int) -> None:
        """Raise a UserError if a file has fewer lines than were written."""
        if lines < len(self):
            text = f"the file was cut after the run wrote it: expected {len(self)} lines, found {lines}"
            raise UserError(text, f"{self._file}:{lines + 1}")


def write_sums(path: Path) -> None:
    """State the checksums of a text file that is whole."""
    sums_path(path).parent.mkdir(exist_ok=True)
    with path.open("rb") as file, replacing(sums_path(path)) as sums:
        sums.write(sums_of(file))


def checked_lines(path: Path, *, grows: bool = False) -> Iterator[bytes]:
    """The lines of a file that a run wrote as a whole.

    Args:
        grows: lines may have been added since.

    Raises:
        UserError: a line was changed, or lines are missing.
    """
    known, number = KnownSums(path), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            known.check(number, line)
            yield line
    known.check_count(number)
    if not grows and 0 < len(known) < number:
        text = f"the line was added after the run wrote the file: expected {len(known)} lines, found {number}"
        raise UserError(text, f"{path}:{len(known) + 1}")


def check_lines(*paths: Path, grows: bool = False) -> None:
    """Raise a UserError if one of these files, which a run wrote as a whole, was changed; files that are not there are
    no concern of it. `grows` is as in `checked_lines`."""
    for path in paths:
        if path.is_file():
            for _ in checked_lines(path, grows=grows):
                pass


def cut_sums(path: Path, lines: int) -> None:
    """Keep the checksums of a file's first lines."""
    sums = sums_path(path)
    if sums.exists() and sums.stat().st_size > lines * WIDTH:
        os.truncate(sums, lines * WIDTH)
