"""The memory of a process and of what comes from it."""

import subprocess
import sys

import pytest

from benchmarks.rivals.memory import peak_mb, tree

WITH_A_CHILD = """
import subprocess, sys
held = bytearray(b"x" * 60_000_000)
code = "import time; held = bytearray(b'x' * 80_000_000); print(flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_counts():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WITH_A_CHILD], text=True, **pipes) as parent:
        child = int(parent.stdout.readline())
        with peak_mb(parent.pid) as memory:
            assert tree(parent.pid) == {parent.pid, child}
            parent.stdin.flush()
            for _ in range(200):
                if memory.highest > 0:
                    break
                subprocess.run(["sleep", "0.1"], check=True)
        parent.stdin.close()
    assert 130 < memory.highest < 260
