"""The `runtime:` section of an experiment: where to run, on how many hosts; what to do where Ray is missing."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from h2fdp.config.fields import LARGEST_INTEGER, Expect, Section
from h2fdp.errors import UserError
from h2fdp.training.engine import EngineName

IN_ONE_PROCESS = "compute in one process: --set runtime.backend=inline"


def require_ray() -> None:
    """Refuse what needs Ray where it is not installed.

    Raises:
        UserError: it is not.
    """
    if find_spec("ray") is None:
        raise UserError(f"Ray is not installed; run pip install ray, or {IN_ONE_PROCESS}", key="runtime.backend")


MOST_THREADS = 1024  # of an inline run
Hosts = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
Cpus = Annotated[float, Field(ge=0.0001, le=10_000)]


def _reachable(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if value != "auto" and not (host and colon and "/" not in value and port.isdigit()):
        raise ValueError(
            f'expected auto or HOST:PORT, found "{value}"'
            + ("; start h2fdp on a machine of the cluster instead of through Ray Client" if "://" in value else "")
        )
    if value != "auto" and int(port) > 65535:
        raise ValueError(f"expected a port of at most 65535, found {port}")
    return value


Address = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_reachable)]


class RuntimeSection(Section):
    """`runtime:`; what contradicts itself is refused, not ignored.

    Attributes:
        backend: `inline`, this process; `ray`, Ray actors; `auto`, inline unless another key asks for Ray.
        placement: which nodes share a host: whole subnets are `packed`; a host for each `subnet`, or for each
            `entity` (device, edge server, cloud).
        hosts: the number of Ray actors, or of threads with `inline`; `auto` is one for each CPU.
        cpus_per_host: CPUs that Ray keeps for a host; `auto` is 1 for `packed`, otherwise an even share of all.
        gpus_per_host: GPUs of a host; may be a fraction.
        address: address of a running Ray cluster, HOST:PORT, or `auto` on one of its machines; null starts one.
        engine: the code that trains devices; `auto` chooses by the experiment alone.
        checkpoint_every: intervals between checkpoints; 60 seconds, if these are sooner.
    """

    backend: Literal["auto", "inline", "ray"] = "auto"
    placement: Literal["packed", "subnet", "entity"] = "packed"
    hosts: Annotated[Literal["auto"] | Hosts, Expect("auto or a whole number of at least 1")] = "auto"
    cpus_per_host: Annotated[Literal["auto"] | Cpus, Expect("auto or a number from 0.0001 to 10000")] = "auto"
    gpus_per_host: Annotated[float, Field(ge=0, le=64), Expect("a number from 0 to 64")] = 0
    address: Annotated[Address | None, Expect("null, auto or HOST:PORT")] = None
    engine: Literal["auto", EngineName] = "auto"
    checkpoint_every: Annotated[int, Field(ge=1, le=LARGEST_INTEGER), Expect("a whole number of at least 1")] = 10

    @field_validator("placement", "address", mode="after")
    @classmethod
    def _not_inline(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("backend") == "inline" and value not in ("packed", None):
            raise ValueError(f'backend: inline is one process and has no {info.field_name}, found "{value}"')
        return value

    @field_validator("hosts", mode="after")
    @classmethod
    def _possible(cls, value: Any, info: ValidationInfo) -> Any:
        placement = info.data.get("placement")
        if value != "auto" and placement in ("subnet", "entity"):
            raise ValueError(f"expected auto with placement: {placement}, which has as many as nodes, found {value}")
        if info.data.get("backend") == "inline" and value != "auto" and value > MOST_THREADS:
            raise ValueError(f"expected at most {MOST_THREADS} threads with backend: inline, found {value}")
        return value


def inline_workers(section: RuntimeSection) -> int:
    """Threads of an inline run: `hosts`, by default one for each CPU that this process may use."""
    return usable_cpus() if section.hosts == "auto" else section.hosts


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def chosen_backend(section: RuntimeSection) -> Literal["inline", "ray"]:
    """`auto` is inline unless hosts, what a host takes, an address or a placement other than packed ask for Ray."""
    if section.backend != "auto":
        return section.backend
    asks_for_ray = (
        section.hosts not in ("auto", 1)
        or section.cpus_per_host not in ("auto", 1)
        or section.gpus_per_host > 0
        or section.address is not None
        or section.placement != "packed"
    )
    return "ray" if asks_for_ray else "inline"
