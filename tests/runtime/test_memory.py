"""Memory that holds nothing goes back to the system."""

import ctypes
import subprocess
import sys

import pytest

KEEPS_LITTLE = """
import numpy as np
from h2fdp.runtime.local_hosts import give_free_memory_back

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

before = held()
many = [np.ones(16_000, np.uint8) for _ in range(20_000)]  # 320 MB, in pieces that are no mappings of their own
many = many[::200]
kept = held() - before
give_free_memory_back()
print(kept, held() - before)
"""


@pytest.mark.process
@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not the GNU C library"
)
def test_freed_pages_between_small_things_that_stay_go_back():
    done = subprocess.run([sys.executable, "-c", KEEPS_LITTLE], check=True, capture_output=True, text=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 250e6  # what stays is between them, so that the allocator gives none back by itself
    assert left < 50e6
