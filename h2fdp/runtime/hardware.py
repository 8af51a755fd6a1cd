"""What kind of processor this is: equal kinds add up in the same order, so equal draws give equal bits."""

from __future__ import annotations

import platform
from functools import cache
from hashlib import blake2b
from pathlib import Path

from h2fdp.nodes import Team


@cache
def processor() -> str:
    """A digest of the CPU's model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name {platform.machine()} {platform.processor()}"]
    words = ("model name", "flags", "Features", "CPU part")
    known = sorted({line for line in lines if line.startswith(words)})
    return blake2b("\n".join(known).encode(), digest_size=8).hexdigest()


def alike(edges: Team) -> bool:
    """Whether every host of these edge servers is of the same kind as this machine."""
    kinds: frozenset[str] = getattr(edges, "processors", frozenset())
    return kinds <= {processor()}
