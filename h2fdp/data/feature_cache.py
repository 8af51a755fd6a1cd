"""Rows of numbers of single records in the user's cache, by a digest of the record.

They are in blocks, each written when it is computed: data sets share the rows of equal records, and an interrupted
computation goes on where it was. A file ends in a digest of it and of what it depends on: what was cut off, changed, or
put in the place of another is computed again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from h2fdp.arithmetic import on_threads
from h2fdp.data.images import user_cache

_DIGEST = 16  # bytes
_BLOCK = 256  # records
MANY = 2_000  # records, of which the wait is long


def kept(key: str, computed: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """An array from the cache; else what is computed, which is then kept.

    Args:
        key: a digest of all that the array depends on.
    """
    path = user_cache() / "features" / f"{key}.npy"
    if (found := _read(path, key)) is None:
        _write(found := computed(), path, key)
    return found


def kept_rows(
    key: str,
    width: int,
    records: NDArray[Any],
    rows_of: Callable[[NDArray[Any]], NDArray[np.floating[Any]]],
    begin: Callable[[int], None],
    together: int = 1,
) -> NDArray[np.float16]:
    """(n, width) a row for each record, from the cache, or computed and kept there.

    Args:
        key: a digest of all that a row depends on but the records.
        rows_of: (m, ...) -> (m, width).
        begin: called before, with the number of records whose rows have to be computed.
        together: a row depends on these so many records and on its place among them, to the bit; 1: on its own alone.
    """
    folder, size = user_cache() / "features" / key, max(together, _BLOCK)
    kind = np.dtype([("name", f"V{_DIGEST}"), ("row", np.float16, (width,))])
    names = list(_names(records, together))
    places = {name: place for place, name in enumerate(names)}  # of equal records one
    rows, missing = np.empty((len(names), width), np.float16), set(places)
    own = [_block(folder, list(places)[first : first + size]) for first in range(0, len(places), size)]
    for path in dict.fromkeys([*own, *folder.glob("*.npy")]):  # other blocks may have some of these records
        if missing and (block := _read(path, key)) is not None:
            for name, row in zip(map(bytes, block["name"]), block["row"], strict=True):
                if name in missing:
                    missing.remove(name)
                    rows[places[name]] = row
    wanted = [place for name, place in places.items() if name in missing]
    if wanted:
        begin(len(wanted))
    with tqdm(total=len(wanted), disable=len(wanted) <= MANY or not sys.stderr.isatty(), leave=False) as bar:

        def computed(first: int) -> None:
            at = wanted[first : first + size]
            block = np.empty(len(at), kind)
            block["name"], block["row"] = np.array([names[each] for each in at], kind["name"]), rows_of(records[at])
            rows[at] = block["row"]
            _write(block, _block(folder, [names[each] for each in at]), key)
            bar.update(len(at))

        on_threads(computed, range(0, len(wanted), size))
    return rows[[places[name] for name in names]] if len(places) < len(names) else rows


def _names(records: NDArray[Any], together: int) -> Iterator[bytes]:
    """A digest for each record: of it and the others that it is computed with, and of its place among them."""
    for first in range(0, len(records), together):
        part = np.ascontiguousarray(records[first : first + together])
        digest = blake2b(part.data, digest_size=_DIGEST)
        for place in range(len(part)):
            own = digest.copy()
            own.update(place.to_bytes(4))
            yield own.digest()


def _block(folder: Path, names: list[bytes]) -> Path:
    """The file of the rows of these records."""
    return folder / f"{blake2b(b''.join(names), digest_size=_DIGEST).hexdigest()}.npy"


def _digest(key: str, content: memoryview) -> bytes:
    return blake2b(content, key=key.encode(), digest_size=_DIGEST).digest()


def _read(path: Path, key: str) -> NDArray[Any] | None:
    """The rows written under this key; None where there is nothing, or anything else."""
    with contextlib.suppress(Exception):  # NumPy, zipfile and ast have many for a damaged file
        content = memoryview(path.read_bytes())
        if content[-_DIGEST:] == _digest(key, content[:-_DIGEST]):
            found: NDArray[Any] = np.load(BytesIO(content[:-_DIGEST]), allow_pickle=False)
            return found
    return None


def _write(array: NDArray[Any], path: Path, key: str) -> None:
    """Written next to its place, then renamed: a process that reads meanwhile finds all of it or nothing."""
    np.save(buffer := BytesIO(), array)
    with contextlib.suppress(OSError, RuntimeError):  # no home, or nowhere to write: the next process computes again
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(buffer.getbuffer())
                file.write(_digest(key, buffer.getbuffer()))
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
