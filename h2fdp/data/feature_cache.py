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
from collections.abc import Callable
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from h2fdp.data.images import user_cache
from h2fdp.wording import note

_DIGEST = 16  # bytes
_BLOCK = 256  # records
_MANY = 2_000  # records, of which the wait is long

Kept = TypeVar("Kept", bound=np.generic)


def kept_array(
    key: str, shape: tuple[int, int], kind: type[Kept], computed: Callable[[], NDArray[Kept]]
) -> NDArray[Kept]:
    """An array from the cache; else what is computed, which is then kept.

    Args:
        key: a digest of all that the array depends on.
    """
    path = user_cache() / "features" / f"{key}.npy"
    found = _read(path, key)
    if found is not None and found.shape == shape and found.dtype == kind:
        return found
    value = computed()
    _write(value, path, key)
    return value


def kept_rows(
    key: str,
    width: int,
    records: NDArray[Any],
    rows_of: Callable[[NDArray[Any]], NDArray[np.float16]],
    what: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> NDArray[np.float16]:
    """(n, width) a row for each record, from the cache, or computed and kept there.

    Args:
        key: a digest of all that a row depends on but the record.
        rows_of: (m, ...) -> (m, width); a row depends on its own record alone, to the bit.
        what: is computed, in words.
        meanwhile: called where that will take long.
    """
    from h2fdp.arithmetic import on_threads

    folder = user_cache() / "features" / key
    kind = np.dtype([("name", f"V{_DIGEST}"), ("row", np.float16, (width,))])
    names = [blake2b(each.data, digest_size=_DIGEST).digest() for each in np.ascontiguousarray(records)]
    places = {name: place for place, name in enumerate(names)}  # of equal records one
    rows, missing = np.empty((len(names), width), np.float16), set(places)
    for path in folder.glob("*.npy") if missing else ():
        if (block := _read(path, key)) is not None and block.dtype == kind:
            for name, row in zip(map(bytes, block["name"]), block["row"], strict=True):
                if name in missing:
                    missing.remove(name)
                    rows[places[name]] = row
    wanted = [place for name, place in places.items() if name in missing]
    if many := len(wanted) > _MANY:
        note(f"computing {what} of {len(wanted):,} images, once")
        meanwhile()
    with tqdm(total=len(wanted), disable=not (many and sys.stderr.isatty()), leave=False) as bar:

        def computed(first: int) -> None:
            at = wanted[first : first + _BLOCK]
            block = np.empty(len(at), kind)
            block["name"], block["row"] = np.array([names[each] for each in at], kind["name"]), rows_of(records[at])
            rows[at] = block["row"]
            _write(block, folder / f"{blake2b(block['name'].tobytes(), digest_size=_DIGEST).hexdigest()}.npy", key)
            bar.update(len(at))

        on_threads(computed, range(0, len(wanted), _BLOCK))
    return rows[[places[name] for name in names]] if len(places) < len(names) else rows


def _digest(key: str, content: memoryview) -> bytes:
    return blake2b(content, key=key.encode(), digest_size=_DIGEST).digest()


def _read(path: Path, key: str) -> NDArray[Any] | None:
    """What was written under this key; None where there is nothing, or anything else."""
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
