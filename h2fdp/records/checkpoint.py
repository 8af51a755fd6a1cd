"""Checkpoints: one file each, whole or not there, verified when it is read.

A file is a line with the format's version, a line with the SHA-256 of the rest, and the rest: plain values and tensors
in torch's format, read without running code of the file's.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from h2fdp.errors import UserError
from h2fdp.records.atomic import replacing

FORMAT = 4
_MAGIC = b"h2fdp checkpoint "
_KEPT = 2  # the newest, and one more in case a disk loses it


def save_checkpoint(folder: Path, interval: int, values: dict[str, Any], *, alone: bool = False) -> Path:
    """Write the checkpoint after `interval` intervals; the older ones go, but for one (`alone`: all of them).

    Args:
        values: dicts, lists, tuples, strings, numbers, None, tensors and arrays, which come back as tensors.
    """
    make_folder(folder)
    buffer = io.BytesIO()
    torch.save(_plain(values), buffer)
    path = folder / f"{interval:09d}.ckpt"
    with replacing(path, private=True) as file:
        file.write(_MAGIC + b"%d\n" % FORMAT + sha256(buffer.getbuffer()).hexdigest().encode() + b"\n")
        file.write(buffer.getbuffer())
    for old in [each for each in _newest_first(folder) if each != path][0 if alone else _KEPT - 1 :]:
        old.unlink()
    return path


class Outcomes:
    """Digests of the model after each interval of a run, so that one that is done again is seen to be the same.

    The inputs of a user's code cannot be listed in full. Of an interval that comes out otherwise under the same noise
    nothing may be recorded: the difference of both is that of two updates. A line is on disk before anything is
    recorded of its interval; one that was cut off counts as none.

    Args:
        path: of the file, which may be there.
        secret: keys the digests, as a model may be public to its observers alone; up to 64 bytes.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret = path, secret
        whole, _, rest = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")
        self._of = dict(line.rsplit(b" ", 1) for line in whole.splitlines() if b" " in line)
        self._end = b"\n" if rest else b""

    def same(self, attempt: str, interval: int, model: torch.Tensor) -> bool:
        """Whether this interval never came out before, and is noted now, or came out the same, to the bit.

        Args:
            attempt: see `Streams`: under other draws all is another release.
            model: (M,).
        """
        key = f"{attempt or '-'} {interval}".encode()
        digest = blake2b(model.cpu().numpy().tobytes(), digest_size=16, key=self._secret).hexdigest().encode()
        if key not in self._of:
            self._of[key] = digest
            with self._path.open("ab") as file:
                file.write(self._end + key + b" " + digest + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._end = b""
        return self._of[key] == digest


def make_folder(folder: Path) -> None:
    """The folder of checkpoints, which its owner alone may read: they say more than was ever released."""
    folder.mkdir(mode=0o700, exist_ok=True)


def load_checkpoint(folder: Path, damaged: Callable[[Path], None]) -> dict[str, Any] | None:
    """The newest checkpoint that is whole; None where there is none.

    Args:
        damaged: called with each file that is not.

    Raises:
        UserError: a checkpoint of a format that this version does not read.
    """
    for path in _newest_first(folder):
        values = read_checkpoint(path)
        if values is not None:
            return values
        damaged(path)
    return None


def _plain(values: Any) -> Any:
    """The value without NumPy's types, which torch reads only by running code."""
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return type(values)(_plain(value) for value in values)
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values if values.flags.writeable else values.copy())
    return values.item() if isinstance(values, np.generic) else values


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ckpt"), reverse=True)


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The values of a checkpoint; None where it is damaged.

    Raises:
        UserError: it cannot be read, or is of a format that this version does not read.
    """
    try:
        head, digest, rest = path.read_bytes().split(b"\n", 2)
    except ValueError:  # too few lines
        return None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", str(path)) from None
    version = head.removeprefix(_MAGIC)
    if sha256(rest).hexdigest().encode() != digest or version == head:
        return None
    if version != b"%d" % FORMAT:
        text = f"a checkpoint of format {version.decode(errors='replace')[:9]}, this version reads {FORMAT}"
        raise UserError(f"{text}; resume with the version of h2fdp that wrote it", str(path))
    values: dict[str, Any] = torch.load(io.BytesIO(rest), weights_only=True)
    return values
