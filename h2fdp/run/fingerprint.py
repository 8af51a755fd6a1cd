"""Everything that the bits of a run depend on, as one digest: equal digests, equal bits."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

import torch
import yaml

from h2fdp.records import PACKAGE, RunDirectory, versions
from h2fdp.run.preparation import Preparation
from h2fdp.runtime.hardware import processor
from h2fdp.runtime.own_modules import own_sources

# Where a run computes and how it is watched changes no bit; the engine does, and is counted by itself.
_NOT_COUNTED = ("name", "runtime", "sweep", "tracking")
# What chooses configurations or shows results: no bit of a run is made by it.
ABOVE_RUNS = ("audit", "cli", "reports", "reproduction", "sweeps", "__main__.py")


def run_digest(run: Preparation, directory: RunDirectory, own_code: str) -> dict[str, str]:
    """By part (code, data, configuration, versions, hardware), so that what differs can be named.

    Args:
        directory: has the run's configuration and topology.
        own_code: `code_of` a user's own parts.
    """
    configuration = yaml.safe_load(directory.config.read_text())
    parts: dict[str, Any] = {
        "code": [package_digest(), own_code],
        "data": run.data.fingerprint(),
        "configuration": [
            json.dumps(counted(configuration), sort_keys=True),
            directory.topology.read_text(),
            run.blueprint.engine,
        ],
        "versions": versions(),
        "hardware": _hardware(run.blueprint.device),
    }
    return {name: hash_of([json.dumps(value)]) for name, value in parts.items()}


def counted(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that a run's bits depend on."""
    return {key: value for key, value in configuration.items() if key not in _NOT_COUNTED}


def code_of(parts: Iterable[Callable[..., Any]]) -> str:
    """A digest of a user's own functions and classes: their names, and all files of the user's that they come from.

    A part that cannot be read as a whole (typed in, wrapped, a function with values of its own) may be another one
    next time: its digest never comes again.
    """
    texts = []
    for part in parts:
        try:
            if not isinstance(part, type) and (getattr(part, "__closure__", None) or getattr(part, "__self__", None)):
                raise TypeError("holds values that no file says")
            texts += [f"{part.__module__}.{part.__qualname__}", *own_sources(part)]
        except (TypeError, AttributeError, OSError, UnicodeDecodeError):
            texts.append(secrets.token_hex(16))
    return hash_of(texts) if texts else ""


def name_of_attempt(digest: dict[str, str], checkpoint: dict[str, Any] | None, ledger: str) -> str:
    """A name for what is drawn from here on, which no other continuation shares.

    It is made from all that the next release depends on - the environment, the checkpoint, the ledger's `Mark` - so
    that an equal name stands for an equal release, to the bit.
    """
    known = ("digest", "attempt", "intervals", "ledger")  # which determine the model and all else in a checkpoint
    before = {} if checkpoint is None else {key: checkpoint[key] for key in known}
    return hash_of([json.dumps(digest), json.dumps(before), ledger])


@cache  # what this process runs is what it imported
def package_digest() -> str:
    """A digest of our own code, as far as a run is made by it."""
    files = {file.relative_to(PACKAGE): file for file in sorted(PACKAGE.rglob("*.py"))}
    made_by = {path: file for path, file in files.items() if path.parts[0] not in ABOVE_RUNS}
    return hash_of(text for path, file in made_by.items() for text in (str(path), file.read_text()))


def _hardware(device: torch.device) -> dict[str, Any]:
    found: dict[str, Any] = {"processor": processor(), "device": device.type}
    if device.type != "cpu":
        # A GPU may add up in another order each time, so nothing says that bits come again.
        found["never the same"] = secrets.token_hex(16)
    return found


def hash_of(texts: Iterable[str]) -> str:
    """A digest of texts, in which each keeps to itself: other texts of the same letters have another."""
    digest = blake2b(digest_size=16)
    for text in texts:
        data = text.encode()
        digest.update(f"{len(data)}|".encode() + data)
    return digest.hexdigest()
