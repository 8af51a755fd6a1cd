"""What a process computes with: where all of it is the same, equal draws give equal bits."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path

import torch

from h2fdp.protocol import NodeGroup
from h2fdp.records import versions

ARITHMETIC = ("numpy", "torch")  # libraries that compute every run
COMPILERS = ("llvmlite", "numba")  # those that write what the compiled engine runs
_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "DNNL_MAX_CPU_ISA",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NUMBA_OPT",
)


@cache
def processor() -> str:
    """A digest of this process's CPU and of the instruction sets that libraries take of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name {platform.machine()} {platform.processor()}"]
    words = ("model name", "flags", "Features", "CPU part")
    known = {
        "processor": sorted({line for line in lines if line.startswith(words)}),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
    }
    return _digest(known)


def lacks_bfloat16() -> bool:
    """Whether this process's CPU is known to have no products of bfloat16 numbers."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return flags.isdisjoint({"avx512_bf16", "avx_ne_convert", "amx_bf16", "bf16"})


def arithmetic() -> str:
    """A digest of the `processor` and of the versions of what computes."""
    return _digest([processor(), versions((*ARITHMETIC, *COMPILERS))])


def _digest(known: object) -> str:
    return blake2b(json.dumps(known).encode(), digest_size=8).hexdigest()


def kinds_of(edges: NodeGroup) -> Mapping[str, str]:
    """Host -> its `arithmetic`, of all hosts that these edge servers are on; empty where this process is all."""
    found: Mapping[str, str] = getattr(edges, "kinds", {})
    return found


def alike(edges: NodeGroup) -> bool:
    """Whether every host of these edge servers computes as this process does."""
    return set(kinds_of(edges).values()) <= {arithmetic()}
