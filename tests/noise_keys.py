"""Keys of noise for tests: one that is known, and the operating system's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from h2fdp.records import noise_key

KEY = bytes(range(16))
DRAWN = noise_key.drawn  # before conftest.py takes its place


@contextmanager
def keys_are(draw) -> Iterator[None]:
    """Runs that begin meanwhile draw their keys by this function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_key, "drawn", draw)
        yield


def known() -> bytes:
    return KEY
