"""TensorBoard's event files: scalars by step, written without TensorBoard.

A file is a chain of records - length, masked CRC-32C of the length, an `Event` in protocol buffers' wire format, masked
CRC-32C of that (TensorFlow, `tensorflow/core/lib/io/record_writer.cc` and `core/util/event.proto`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from h2fdp.records.atomic import replacing

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed


class EventFile:
    """Scalars of a run, one event for each step.

    Args:
        past: (seconds since 1970, step, scalars) of the steps that are done; what else was in the file is gone.
    """

    def __init__(self, path: Path, past: Iterable[tuple[float, int, Mapping[str, float]]] = ()) -> None:
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            file.write(_record(_double(1, 0.0) + _text(3, b"brain.Event:2")))
            for event in past:
                file.write(_record(_event(*event)))
        self._path = path

    def add(self, time: float, step: int, scalars: Mapping[str, float]) -> None:
        """One step; it can be read at once."""
        with self._path.open("ab", buffering=0) as file:
            file.write(_record(_event(time, step, scalars)))


def _event(time: float, step: int, scalars: Mapping[str, float]) -> bytes:
    values = (_text(1, _text(1, tag.encode()) + b"\x15" + struct.pack("<f", value)) for tag, value in scalars.items())
    return _double(1, time) + b"\x10" + _varint(step) + _text(5, b"".join(values))


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _text(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> list[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return found


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum of RFC 3720, appendix B.4.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
