"""Rows as JSON lines, synced when they are appended, with checksums: the ledger, and the decisions of controllers.

NaN and the infinities, which JSON has not, become null. For `privacy.jsonl` the file `checksums/privacy.jsonl` has the
CRC-32 of each of its lines, eight hexadecimal digits a line. They are written after the lines: a process that dies
between the two leaves lines without a checksum, never a checksum without its line, so a file with fewer lines than
checksums was cut.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any
from zlib import crc32

from h2fdp.errors import UserError
from h2fdp.records.atomic import replacing

SUMS = "checksums"
WIDTH = 9  # of a checksum and the end of its line


def sums_path(path: Path) -> Path:
    """The path of the checksums of a file of a run."""
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


def check_lines(*paths: Path, grows: bool = False) -> None:
    """Check files that a run wrote as a whole, of those that are there.

    Args:
        grows: lines may have been added since.

    Raises:
        UserError: a line was changed, or lines are missing.
    """
    for path in filter(Path.is_file, paths):
        sums, number = KnownSums(path), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                sums.check(number, line)
        sums.check_count(number)
        if not grows and 0 < len(sums) < number:
            text = f"the line was added after the run wrote the file: expected {len(sums)} lines, found {number}"
            raise UserError(text, f"{path}:{len(sums) + 1}")


def cut_sums(path: Path, lines: int) -> None:
    """Keep the checksums of a file's first lines."""
    sums = sums_path(path)
    if sums.exists() and sums.stat().st_size > lines * WIDTH:
        os.truncate(sums, lines * WIDTH)


_BLOCK = 1 << 20


@dataclass(frozen=True)
class Mark:
    """A place in a file: the number of bytes before it, and a digest of these."""

    bytes: int
    digest: str


class JsonLines:
    """Appends groups of rows; each `append` returns when the rows are on disk.

    A line without its end was being written when the writer died, so nothing of its group was released: it is cut off.

    Args:
        begins: the bytes of the file that stand. What follows them was written before a crash, by work that is done
            again: the same rows must come again, and are not written twice. By default the whole file stands.

    Raises:
        UserError: the bytes that stand are not there, or others; by `append`: other rows than those that must come
            again.
    """

    def __init__(self, path: Path, begins: Mark | None = None) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)
        try:
            whole = _cut_torn_line(path, self._file.fileno())
            self._at = whole if begins is None else begins.bytes
            self._digest = _digest_of_start(path, self._at) if begins is None else check_start(path, begins)
            self._left = whole - self._at
            self._sums = complete_sums(path, whole)
            self._redone = path.open("rb")
            self._redone.seek(self._at)
        except BaseException:
            self._file.close()
            raise

    def mark(self) -> Mark:
        """The rows so far."""
        return Mark(self._at, self._digest.hexdigest())

    def append(self, rows: Iterable[dict[str, Any]]) -> int:
        """Write rows, one JSON object a line, and wait for the disk; how many there were."""
        lines = [json.dumps(row) for row in rows]
        if lines:
            data = ("\n".join(lines) + "\n").encode()
            written = self._redone.read(min(len(data), self._left))
            self._left -= len(written)
            if data[: len(written)] != written:
                raise self._changed(data, written)
            if len(written) < len(data):
                self._write(data[len(written) :])
            self._at += len(data)
            self._digest.update(data)
        return len(lines)

    def _write(self, data: bytes) -> None:
        before = os.fstat(self._file.fileno()).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) or 0 :]
            os.fdatasync(self._file.fileno())
            with sums_path(self._path).open("ab", buffering=0) as sums:
                sums.write(sums_of(data.splitlines(keepends=True)))
            self._sums += data.count(b"\n")
        except BaseException:
            with suppress(OSError):  # rows of a group that does not happen; a torn line is cut off later too
                cut_sums(self._path, self._sums)
                os.ftruncate(self._file.fileno(), before)
            raise

    def _changed(self, again: bytes, written: bytes) -> UserError:
        """The message about rows in the file that differ from those that replace them."""
        same = next(place for place, byte in enumerate(written) if byte != again[place])
        start = again.rfind(b"\n", 0, same) + 1
        found, expected = (each[start:].partition(b"\n")[0].decode(errors="replace") for each in (written, again))
        text = "this row is not the one that the run writes again here: the file was changed after the run wrote it"
        return UserError(
            f"{text}, so the run cannot be resumed; expected {expected}, found {found}",
            f"{self._path}:{line_number(self._path, self._at + start)}",
        )

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redone.close()
        self._file.close()


def check_start(path: Path, mark: Mark) -> blake2b:
    """The digest of the bytes that a mark names.

    Raises:
        UserError: they are not there, or others.
    """
    size = path.stat().st_size if path.exists() else -1
    digest = _digest_of_start(path, mark.bytes) if size >= mark.bytes else None
    if digest is None or digest.hexdigest() != mark.digest:
        for _ in read_json_lines(path):  # which names the line, if it is damaged
            pass
        raise UserError("the file was changed after the run wrote it, so the run cannot be resumed", str(path))
    return digest


def cut(path: Path, length: int) -> None:
    """Shorten a file to its first bytes."""
    if path.exists() and path.stat().st_size > length:
        cut_sums(path, line_number(path, length) - 1)
        os.truncate(path, length)


def _cut_torn_line(path: Path, descriptor: int) -> int:
    """Bytes of the file up to the end of its last whole line; the rest is cut off."""
    size, end, at = os.fstat(descriptor).st_size, 0, 0
    for block in _blocks(path, size):
        if (newline := block.rfind(b"\n")) >= 0:
            end = at + newline + 1
        at += len(block)
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def _blocks(path: Path, length: int) -> Iterator[bytes]:
    """The first bytes of a file, a part at a time: a ledger may be larger than memory."""
    if length <= 0:
        return
    with path.open("rb") as file:
        while length > 0 and (block := file.read(min(length, _BLOCK))):
            yield block
            length -= len(block)


def complete_sums(path: Path, length: int) -> int:
    """Write the checksums that are missing of the lines in the first bytes of a file, as a process that died leaves it;
    the number of these lines.

    Raises:
        UserError: there are more checksums than lines.
    """
    lines, known_sums = line_number(path, length) - 1, KnownSums(path)
    known_sums.check_count(lines)
    sums_path(path).parent.mkdir(exist_ok=True)
    if len(known_sums) < lines:
        cut_sums(path, len(known_sums))
        with path.open("rb") as file, sums_path(path).open("r+b" if len(known_sums) else "wb") as sums:
            for _ in range(len(known_sums)):
                file.readline()
            sums.seek(len(known_sums) * WIDTH)
            sums.write(sums_of(file.readline() for _ in range(lines - len(known_sums))))
    return lines


def _digest_of_start(path: Path, length: int) -> blake2b:
    digest = blake2b(digest_size=16)
    for block in _blocks(path, length):
        digest.update(block)
    return digest


def line_number(path: Path, place: int) -> int:
    """The number, from 1, of the line that this byte of a file belongs to."""
    return 1 + sum(block.count(b"\n") for block in _blocks(path, place))


def read_json_lines(path: Path, begin: int = 0, end: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a ledger or of decisions, or of a part of the file between two bytes.

    A last line without its end was being written when the writer died: its interval had not started, so nothing of it
    was released.

    Raises:
        UserError: there is no such file, or a line of it is damaged, or was changed or lost after it was written.
    """
    sums = KnownSums(path)
    try:
        number = line_number(path, begin) - 1
        with path.open("rb") as file:
            file.seek(begin)
            for line in file:
                begin += len(line)
                if end is not None and begin > end:
                    return
                if not line.endswith(b"\n"):
                    break
                number += 1
                sums.check(number, line)
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    raise UserError("the line is damaged; expected one JSON object", f"{path}:{number}") from None
                yield row
        if end is None:
            sums.check_count(number)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", str(path)) from None
