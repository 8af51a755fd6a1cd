"""What a run is made of, in words: kept beside its checkpoints, so that a resume can name what changed.

Whether anything changed is decided by `fingerprint.run_digest`; this only says what.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from h2fdp.config.plain_yaml import values_of
from h2fdp.digests import hash_of
from h2fdp.errors import UserError
from h2fdp.records import SCHEMA_VERSION, RunDirectory
from h2fdp.records.checked_json import VERSION, read_checked_json, write_checked_json
from h2fdp.records.checkpoint import make_folder
from h2fdp.run.fingerprint import code_by_module, counted, counted_versions, own_code_of, own_files
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.hardware import description

IDENTITY = "identity.json"
_MOST = 5
_OWN = "code of your own"
OWN_FILES = "own files"


def identity_of(run: RunSetup, directory: RunDirectory) -> dict[str, dict[str, str]]:
    """Part -> what it is made of, by names that a user knows."""
    configuration = counted(values_of(directory.config.read_text()))
    words = dict(_flat(configuration)) | {"engine": run.blueprint.engine, "model.from": str(run.warm_start)}
    words["topology.yaml"] = blake2b(directory.topology.read_bytes(), digest_size=8).hexdigest()
    return {
        "code": code_by_module() | {_OWN: hash_of([run.own.code, own_code_of(run)])},
        OWN_FILES: own_files(run),
        "configuration": words,
        "versions": counted_versions(run),
        "hardware": description() | {"device": run.blueprint.device.type},
    }


def store_identity(run: RunSetup, directory: RunDirectory) -> None:
    """Keep what the run is made of from here on."""
    make_folder(directory.checkpoints)
    values = {VERSION: SCHEMA_VERSION, **identity_of(run, directory)}
    write_checked_json(directory.checkpoints / IDENTITY, values, indent=None)


def stored_identity(directory: RunDirectory) -> dict[str, Any]:
    """What was kept; nothing where that is lost or damaged."""
    try:
        return read_checked_json(directory.checkpoints / IDENTITY) or {}
    except UserError:
        return {}


def differences(part: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs in a part, the first few by name.

    >>> list(differences("versions", {"versions": {"torch": "2.3"}}, {"versions": {"torch": "2.4"}}))
    ['torch was 2.3, is 2.4']
    """
    before, after = then.get(part), now.get(part)
    if not before or not after:
        return
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if part == "code" and (files := changed_files(then, now.get(OWN_FILES, {}))):  # which say more
        names = [*files, *(name for name in names if name != _OWN)]
    for name in names[:_MOST]:
        was, found = before.get(name), after.get(name)
        yield name if part == "code" or name == "topology.yaml" else f"{name} was {was}, is {found}"
    if len(names) > _MOST:
        yield f"{len(names) - _MOST} more"


def changed_files(then: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """The user's files that define something else than they did.

    Args:
        then: a stored identity.
        now: file -> a digest.

    >>> changed_files({"own files": {"net.py": "a", "b.py": "c"}}, {"net.py": "d", "b.py": "c"})
    ['net.py']
    """
    before = then.get(OWN_FILES, {})
    return [name for name in before if before[name] != now.get(name)]


def _flat(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(values, Mapping) and values:
        for name, part in values.items():
            yield from _flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, json.dumps(values, default=str)
