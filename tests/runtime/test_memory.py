"""Memory that holds nothing goes back to the system."""

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

from h2fdp.runtime.lockstep import give_free_memory_back
from tests.forks import in_a_child


def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def keeps_little():
    give_free_memory_back()  # what earlier tests left free in the parent would be used first, and would not count
    before = held()
    many = [np.ones(16_000, np.uint8) for _ in range(20_000)]  # 320 MB, in pieces that are no mappings of their own
    many = many[::200]
    assert held() - before > 250e6  # what stays is between them, so that the allocator gives none back by itself
    give_free_memory_back()
    assert held() - before < 50e6
    assert len(many) == 100


@pytest.mark.process
@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not the GNU C library"
)
def test_freed_pages_between_small_things_that_stay_go_back():
    assert in_a_child(keeps_little) == 0
