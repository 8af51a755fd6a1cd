"""Everything that the bits of a run depend on: as one digest (equal digests, equal bits), and in words.

The digest sees what may compute something and no more: neither comments nor docstrings, nor libraries that the run does
not use. Ray is none of these: it carries arrays between processes and computes nothing, and a run may continue without
it. Nor are the libraries that read data and topologies: what they read is in the digest itself.

The words, `identity.json`, are kept beside a run's checkpoints, so that a resume can name what changed. Whether
anything changed is decided by the digest.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from h2fdp.config.parsing import values_of
from h2fdp.data.images import user_cache
from h2fdp.errors import UserError
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.records import PACKAGE, SCHEMA_VERSION, RunDirectory, versions
from h2fdp.records.atomic import write_text
from h2fdp.records.checkpoint import make_folder
from h2fdp.records.summary import VERSION, digest_of_code, hash_of, read_checked_json, write_checked_json
from h2fdp.run.noise_key import id_of
from h2fdp.run.own_code import code_of, own_files_of, own_parts_of
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.hardware import ARITHMETIC, COMPILERS, description, processor

# Where a run computes and how it is watched changes no bit; the engine does, and is counted by itself.
_NOT_COUNTED = ("name", "runtime", "sweep", "tracking", "tune")
# What chooses configurations or shows results: no bit of a run is made by it.
ABOVE_RUNS = ("audit", "cli", "integrity", "reports", "sweeps", "tuning", "__init__.py", "__main__.py")

IDENTITY = "identity.json"
_OWN = "code of your own"
_OWN_FILES = "files of your own"
_MOST = 5


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
    """A digest of our own code, as far as a run may be made by it."""
    return hash_of([json.dumps(code_by_file(package))])


@cache  # what this process runs is what it imported
def code_by_file(package: Path = PACKAGE) -> dict[str, str]:
    """File of our own code, as far as a run may be made by it -> a digest of what it computes.

    Parsing all of it takes more than a second. So the digests are kept in the user's cache folder, under a hash of the
    files' texts and of the version of Python whose parser read them.
    """
    files = [file.relative_to(package) for file in sorted(package.rglob("*.py"))]
    made_by = [file for file in files if file.parts[0] not in ABOVE_RUNS]
    texts = {f"h2fdp/{file.as_posix()}": (package / file).read_text("utf-8") for file in made_by}
    key = hash_of([sys.version, *(each for file in texts.items() for each in file)])
    with suppress(OSError, RuntimeError, ValueError, LookupError, TypeError):  # nothing is kept that can be read
        kept = json.loads(_kept(package).read_bytes())[key]
        return {file: kept[file] for file in texts}
    made = {file: digest_of_code(text) for file, text in texts.items()}
    with suppress(OSError, RuntimeError):  # no home, or nowhere to write
        _kept(package).parent.mkdir(parents=True, exist_ok=True)
        write_text(_kept(package), json.dumps({key: made}))
    return made


def _kept(package: Path) -> Path:
    return user_cache() / f"code-{hash_of([str(package)])}.json"


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


def identity_of(run: RunSetup, directory: RunDirectory) -> dict[str, dict[str, str]]:
    """Part -> what it is made of, by names that a user knows."""
    configuration = counted(values_of(directory.config.read_text()))
    words = dict(_flat(configuration)) | {"engine": run.blueprint.engine, "model.from": str(run.warm_start)}
    words["topology.yaml"] = blake2b(directory.topology.read_bytes(), digest_size=8).hexdigest()
    return {
        "code": code_by_file() | {_OWN: hash_of([run.own.code, own_code_of(run)])},
        _OWN_FILES: own_files(run),
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
    """What was kept; nothing where that is lost, damaged, or of a version with other digests of code."""
    try:
        found = read_checked_json(directory.checkpoints / IDENTITY) or {}
    except UserError:
        return {}
    return found if _OWN_FILES in found else {}


def differences(part: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs in a part, the first few by name.

    >>> list(differences("versions", {"versions": {"torch": "2.3"}}, {"versions": {"torch": "2.4"}}))
    ['torch was 2.3, is 2.4']
    """
    before, after = then.get(part), now.get(part)
    if not before or not after:
        return
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if part == "code" and (files := changed_files(then, now.get(_OWN_FILES, {}))):  # which say more
        names = [*files, *(name for name in names if name != _OWN)]
    for name in names[:_MOST]:
        was, found = before.get(name), after.get(name)
        yield name if part == "code" or name == "topology.yaml" else f"{name} was {was}, is {found}"
    if len(names) > _MOST:
        yield f"{len(names) - _MOST} more"


def changed_files(then: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """The user's files whose code is not what it was.

    Args:
        then: a stored identity.
        now: file -> a digest.

    >>> changed_files({"files of your own": {"net.py": "a"}}, {"net.py": "b"})
    ['net.py']
    """
    before = then.get(_OWN_FILES, {})
    return [name for name in before if before[name] != now.get(name)]


def _flat(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(values, Mapping) and values:
        for name, part in values.items():
            yield from _flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, json.dumps(values, default=str)
