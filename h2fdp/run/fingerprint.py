"""Everything that the bits of a run depend on, as one digest: equal digests, equal bits.

It sees what is computed and no more: neither comments nor the names of files, nor libraries that the run does not use.
Ray is none of these: it carries arrays between processes and computes nothing, and a run may continue without it.
Nor are the libraries that read data and topologies: what they read is in the digest itself.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from h2fdp.config.plain_yaml import values_of
from h2fdp.digests import Program, hash_of
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.records import PACKAGE, RunDirectory, versions
from h2fdp.run.kept_digests import kept_digests
from h2fdp.run.noise_key import id_of
from h2fdp.run.own_code import code_of, own_files_of, own_parts_of
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.hardware import ARITHMETIC, COMPILERS, processor

# Where a run computes and how it is watched changes no bit; the engine does, and is counted by itself.
_NOT_COUNTED = ("name", "runtime", "sweep", "tracking", "tune")
# What chooses configurations or shows results: no bit of a run is made by it.
ABOVE_RUNS = ("audit", "cli", "integrity", "reports", "sweeps", "tuning", "__init__.py", "__main__.py")


def run_digest(run: RunSetup, directory: RunDirectory) -> dict[str, str]:
    """By part (code, data, configuration, noise key, versions, hardware), so that what differs can be named.

    Args:
        directory: has the run's configuration and topology.
    """
    configuration = counted(values_of(directory.config.read_text()))
    hardware = _hardware(run.blueprint.device)
    parts: dict[str, Any] = {
        "code": [package_digest(), run.own.code, own_code_of(run)],
        "data": _of_data(run),
        "configuration": [
            json.dumps(configuration, sort_keys=True),
            directory.topology.read_text(),
            run.blueprint.engine,
            *([] if run.warm_start is None else [run.warm_start]),
        ],
        "noise key": id_of(run.noise_key),
        "versions": counted_versions(run),
        "hardware": hardware,
    }
    return {name: hash_of([json.dumps(value)]) for name, value in parts.items()}


def _of_data(run: RunSetup) -> str:
    """A digest of all records that nobody without the noise key can compare with records that they guess."""
    return blake2b(run.data.fingerprint().encode(), key=run.noise_key, digest_size=16).hexdigest()


def counted(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that a run's bits depend on; a user's own parts count as code."""
    own = [key for key in ("data", "model") if isinstance(configuration.get(key), str)]
    return {key: value for key, value in configuration.items() if key not in (*_NOT_COUNTED, *own)}


def name_of_attempt(digest: dict[str, str], checkpoint: dict[str, Any] | None, ledger: str) -> str:
    """A name for what is drawn from here on, which no other continuation shares.

    It is made from all that the next release depends on - the environment, the checkpoint, the ledger's `Mark` - so
    that equal names mean equal releases, to the bit.
    """
    known = ("digest", "attempt", "intervals", "ledger")  # which determine the model and all else in a checkpoint
    before = {} if checkpoint is None else {key: checkpoint[key] for key in known}
    return hash_of([json.dumps(digest), json.dumps(before), ledger])


def counted_versions(run: RunSetup) -> dict[str, str]:
    """The versions of the libraries that compute something in this run."""
    return versions((*ARITHMETIC, *_libraries_of_noise(run), *_compilers_of(run)))


def own_code_of(run: RunSetup) -> str:
    """A digest of the code of a user's own parts that the run's files name."""
    return code_of(part.part for part in own_parts_of(run.config, run.drawn))


def own_files(run: RunSetup) -> dict[str, str]:
    """The files of all own parts of a run, and of what these use -> a digest of what each defines."""
    return {**run.own.files, **own_files_of(part.part for part in own_parts_of(run.config, run.drawn))}


def package_digest(package: Path = PACKAGE) -> str:
    """A digest of what our own code defines, as far as a run is made by it."""
    return _digests_of(package)[0]


def code_by_module(package: Path = PACKAGE) -> dict[str, str]:
    """Module of our own code -> a digest of what it defines by itself."""
    return dict(_digests_of(package)[1])


@cache  # what this process runs is what it imported
def _digests_of(package: Path) -> tuple[str, dict[str, str]]:
    files = {file.relative_to(package): file for file in sorted(package.rglob("*.py"))}
    made_by = {path: file for path, file in files.items() if path.parts[0] not in ABOVE_RUNS}
    sources = {_module(path): file.read_bytes() for path, file in made_by.items()}

    def make() -> tuple[str, dict[str, str]]:
        program = Program(sources)
        return program.digest(), program.by_module()

    return kept_digests(str(package), sources, make) if package == PACKAGE else make()


def _module(path: Path) -> str:
    return ".".join(("h2fdp", *path.with_suffix("").parts))


def _libraries_of_noise(run: RunSetup) -> tuple[str, ...]:
    return () if run.noise is None else ACCOUNTANTS[run.config.privacy.accountant].libraries


def _compilers_of(run: RunSetup) -> tuple[str, ...]:
    return COMPILERS if run.blueprint.engine == "compiled" else ()


def _hardware(device: torch.device) -> dict[str, Any]:
    found: dict[str, Any] = {"processor": processor(), "device": device.type}
    if device.type != "cpu":
        # A GPU may add up in another order each time, so nothing says that bits come again.
        found["never the same"] = secrets.token_hex(16)
    return found
