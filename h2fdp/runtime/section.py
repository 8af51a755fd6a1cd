"""The `runtime:` section of an experiment: where to run, on how many hosts."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field

from h2fdp.config.fields import LARGEST_INTEGER, Expect, Positive, Section

Hosts = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]


class RuntimeSection(Section):
    """`runtime:`; values that later versions will bring are refused, not ignored."""

    backend: Annotated[Literal["auto", "inline", "ray"], Expect("one of auto, inline, ray")] = "auto"
    placement: Annotated[Literal["packed"], Expect("packed (the only placement of this version)")] = "packed"
    hosts: Annotated[Literal["auto"] | Hosts, Expect("auto or a whole number of at least 1")] = "auto"
    cpus_per_host: Annotated[float, Field(ge=0.01, le=10_000), Expect("a number from 0.01 to 10000")] = 1
    gpus_per_host: Annotated[float, Field(ge=0, le=64), Expect("a number from 0 to 64")] = 0
    address: Annotated[None, Expect("null (this version starts Ray on this machine)")] = None
    engine: Annotated[Literal["auto", "fastest", "loop", "stacked"], Expect("one of auto, fastest, loop, stacked")] = (
        "auto"
    )
    checkpoint_every: Annotated[int, Field(ge=1, le=LARGEST_INTEGER), Expect("a whole number of at least 1")] = 10
    checkpoint_seconds: Positive | None = 60


def inline_workers(section: RuntimeSection) -> int:
    """Threads of an inline run: `hosts`, by default one for each CPU that this process may use."""
    return len(os.sched_getaffinity(0)) if section.hosts == "auto" else section.hosts


def chosen_backend(section: RuntimeSection) -> Literal["inline", "ray"]:
    """`auto` is inline unless something asks for Ray: here, a number of hosts."""
    if section.backend == "auto":
        return "inline" if section.hosts in ("auto", 1) else "ray"
    return section.backend
