"""Digests of everything that the bits of a run depend on: equal digests, equal bits.

A part of a digest has a name and a value for each thing in it, so that a message can say which file changed. They see
what may compute something and no more: neither comments nor docstrings, nor libraries that the run does not use. Ray is
none of these: it carries arrays between processes and computes nothing, and a run may continue without it. Nor are the
libraries that read data and topologies: what they read is in the digest itself.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from hashlib import blake2b, file_digest
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from h2fdp.arithmetic import flushing
from h2fdp.config.own_answers import is_installed, is_own, opened
from h2fdp.config.own_parts import OwnPart, own_parts_in
from h2fdp.config.parsing import values_of
from h2fdp.data.federated import FederatedData
from h2fdp.data.images import user_cache
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.models.finetuning import digest_of
from h2fdp.network import Topology
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.records.atomic import digest_of_code, hash_of, read_checked_json, write_checked_json
from h2fdp.records.directory import PACKAGE, RunDirectory, versions
from h2fdp.records.noise_key import id_of
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.host import ARITHMETIC, COMPILERS, hardware

# Where a run computes and how it is watched changes no bit; the engine does, and is counted by itself.
_NOT_COUNTED = ("name", "runtime", "study", "sweep", "tracking", "tune")
# What chooses configurations or shows results: no bit of a run is made by it.
ABOVE_RUNS = ("audit", "cli", "integrity.py", "reports", "sweeps", "tuning", "__init__.py", "__main__.py")
Digest = dict[str, dict[str, str]]  # part -> name -> a digest, or words
OWN_CODE, READ, FROZEN = "own code", "files and variables", "frozen parameters"
OWN = (OWN_CODE, READ, FROZEN)  # where one of these changed, the rest of a run would be of another experiment
KEYED = ("data", READ)  # their values can be compared under one noise key only
_MOST = 4  # names in a message


@flushing(False)  # the same within a run and outside: numbers are read here
def run_digest(run: RunSetup, directory: RunDirectory) -> Digest:
    """The digest of everything that a run computes from, by part.

    Args:
        directory: has the run's configuration and topology.
    """
    written, parts = values_of(directory.config.read_text()), own_parts_of(run.config, run.drawn)
    own, homes = _digests_of_own(part.part for part in parts if not part.from_python)
    # A script hands these over, and it changes where it resumes.
    handed, homes_of_handed = _digests_of_own(part.part for part in parts if part.from_python)
    records = run.data.fingerprint()
    if run.prelude and run.image_shape is None and isinstance(run.given, FederatedData):
        records = run.given.fingerprint(stored=True)  # a prelude maps these, not what 32 bits hold of them
    device = run.blueprint.device.type
    names = _read_by(homes | homes_of_handed)
    return {
        "code": package_digests() | handed,
        OWN_CODE: own,
        READ: {name: _content(name, run.noise_key) for name in sorted(names)},
        FROZEN: untrained(run.blueprint.module()) | untrained(getattr(run.features, "encoder", None)),
        # Under the noise key, so that without it the records cannot be compared with guessed ones.
        "data": {"": blake2b(records.encode(), key=run.noise_key, digest_size=16).hexdigest()},
        "configuration": {
            directory.config.name: hash_of([json.dumps(counted(written), sort_keys=True)]),
            directory.topology.name: hash_of([directory.topology.read_text()]),
            "runtime.engine": run.blueprint.engine,
            "the file of model.from": run.warm_start or "",
        },
        "noise key": {"": id_of(run.noise_key)},
        "versions": versions(_libraries_of_run(run)),
        # A GPU may add up in another order each time, so nothing says that bits come again.
        "hardware": hardware() | {device: "" if device == "cpu" else secrets.token_hex(16)},
    }


def changes(run: RunSetup, now: Digest, before: Digest) -> dict[str, str]:
    """The parts in which two digests differ, and in words what differs there.

    Code that reads the same as before reads next what it read next before. So what it read then is looked at again.
    """
    found = {}
    for part, things in now.items():
        then = before.get(part, {})
        if part == READ:
            things = {name: _content(name, run.noise_key) for name in then}
        names = [name for name in then | things if then.get(name) != things.get(name)]
        if part == "versions":
            names = [f"{name} from {then.get(name)} to {things.get(name)}" for name in names]
        if names:
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            found[part] = f"{part} ({', '.join(names[:_MOST])}{more})" if any(names) else part
    if "noise key" in found:
        for part in KEYED:
            found.pop(part, None)
    return found


def _read_by(files: Iterable[Path]) -> set[str]:
    """The files and folders that the user's code in these files has read, and the variables, as `$NAME`, that it may
    read: those whose names any of them has, where one looks at any."""
    files = list(files)
    names = set[str]().union(*(opened.get(str(file.resolve()), ()) for file in files))
    text = b"\n".join(file.read_bytes() for file in files if not is_installed(file))
    if re.search(rb"environ|getenv", text):
        names |= {f"${name.decode()}" for name in re.findall(rb"[\"']([A-Za-z_]\w*)[\"']", text)}
    return names


def _content(name: str, key: bytes) -> str:
    """A digest of a file, of the names in a folder, or of a variable; empty where there is none."""
    path, digest = Path(name), blake2b(key=key, digest_size=16)
    try:
        if name.startswith("$"):
            digest.update(os.environ[name[1:]].encode("utf-8", "surrogateescape"))
        elif path.is_dir():
            digest.update("/".join(sorted({each.name for each in path.iterdir()} - {"__pycache__"})).encode())
        elif not path.is_file():  # a pipe would wait for its writer
            return ""
        else:
            with path.open("rb") as file:
                file_digest(file, lambda: digest)
    except (OSError, KeyError):
        return ""
    return digest.hexdigest()


def untrained(module: nn.Module | None) -> dict[str, str]:
    """Digests of buffers and of parameters that are not trained; each checkpoint has the trained ones."""
    if module is None:
        return {}
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: _value(tensor) for name, tensor in tensors if not tensor.requires_grad}


def _value(value: Any) -> str:
    """A digest of a plain value, an array or a tensor, or of a container or dataclass of them.

    Raises:
        TypeError: it holds something else.
    """
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return hash_of([type(value).__name__, *(each for key, one in pairs for each in (repr(key), _value(one)))])
    if hasattr(value, "dtype"):
        return digest_of(torch.as_tensor(value).cpu())
    if isinstance(value, bool | int | float | str | bytes | Path | None):
        return repr(value)
    raise TypeError(f"{type(value).__name__} holds values that are not in any file")


def counted(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that a run's bits depend on; a user's own parts count as code."""
    own = [key for key in ("data", "model") if isinstance(configuration.get(key), str)]
    return {key: value for key, value in configuration.items() if key not in (*_NOT_COUNTED, *own)}


def _libraries_of_run(run: RunSetup) -> tuple[str, ...]:
    """The libraries that compute something in a run."""
    noise = () if run.noise is None else ACCOUNTANTS[run.config.privacy.accountant].libraries
    return (*ARITHMETIC, *noise, *(COMPILERS if run.blueprint.engine == "compiled" else ()))


def name_of_attempt(digest: Digest, checkpoint: dict[str, Any] | None, ledger: str) -> str:
    """A name for what is drawn from here on, which no other continuation shares.

    It is made from all that the next release depends on - the environment, the checkpoint, the ledger's `Mark` - so
    that equal names mean equal releases, to the bit.
    """
    keys = ("digest", "attempt", "intervals", "ledger")  # which determine the model and all else in a checkpoint
    before = {} if checkpoint is None else {key: checkpoint[key] for key in keys}
    return hash_of([json.dumps(digest), json.dumps(before), ledger])


_FORMAT = 2  # of what is kept; raised where equal files get other digests


@cache  # what this process runs is what it imported
def package_digests(package: Path = PACKAGE) -> dict[str, str]:
    """A digest of each file of our own code, as far as a run may be made by it.

    Parsing all of it takes a second. So digests are kept in the user's cache folder, after a hash of the files' texts
    and of the version of Python whose parser read them.
    """
    files = [file.relative_to(package) for file in sorted(package.rglob("*.py"))]
    texts = {str(file): (package / file).read_text("utf-8") for file in files if file.parts[0] not in ABOVE_RUNS}
    key = hash_of([str(_FORMAT), sys.version, *(each for file in texts.items() for each in file)])
    with suppress(OSError, RuntimeError, UserError):  # no home, nothing is kept, or nothing that can be read
        kept = read_checked_json(user_cache() / f"code-{hash_of([str(package)])}")
        if kept and kept.get("key") == key:
            return dict(kept["files"])
    digests = {f"h2fdp/{name}": digest_of_code(text) for name, text in texts.items()}
    with suppress(OSError, RuntimeError):  # no home, or nowhere to write
        user_cache().mkdir(parents=True, exist_ok=True)
        write_checked_json(user_cache() / f"code-{hash_of([str(package)])}", {"key": key, "files": digests}, None)
    return digests


def package_digest() -> str:
    """One digest of all of it."""
    return hash_of(each for item in package_digests().items() for each in item)


def own_parts_of(config: ExperimentFile, topology: Topology) -> list[OwnPart]:
    """All own parts of an experiment: of its configuration, and of its topology."""
    return [*own_parts_in(config), *topology.own_parts]


# What says that a part, or a file that it uses, cannot be read as a whole.
_UNREADABLE = (TypeError, AttributeError, ImportError, OSError, SyntaxError, ValueError)


def code_of(parts: Iterable[Any]) -> str:
    """One digest of a user's own functions, classes and dataclass objects, without what they read; empty for none."""
    found, _ = _digests_of_own(parts)
    return hash_of(each for item in sorted(found.items()) for each in item) if found else ""


def _digests_of_own(parts: Iterable[Any]) -> tuple[dict[str, str], set[Path]]:
    """Digests of a user's own functions, classes and dataclass objects by file, and the files.

    These are the files of the user's that they come from or import; the versions of the libraries that these import
    count, too. A part that cannot be read as a whole (typed in, wrapped, a function with values of its own) may be
    another one next time: its digest never comes again.
    """
    found, homes = dict[str, str](), set[Path]()
    for part in parts:
        name = getattr(part, "__qualname__", type(part).__qualname__)
        found[name] = ""
        try:
            if inspect.isfunction(part) and is_installed(inspect.getfile(inspect.unwrap(part))):
                part = inspect.unwrap(part)  # libraries wrap theirs, and their versions say all
            if not isinstance(part, type) and (getattr(part, "__closure__", None) or getattr(part, "__self__", None)):
                raise TypeError("holds values that are not in any file")
            if is_dataclass(part) and not isinstance(part, type):  # its class and its fields say all
                found[name] = _value(part)
                part = type(part)
            home = sys.modules[part.__module__]
            if inspect.getsourcefile(part) != inspect.getsourcefile(home):
                raise TypeError(f"{part} is not of the file of the module that it names")
            files, libraries = _used_by(home)
            homes |= set(files)
            for file in files:  # named by where it is from here: the folder, and `__main__`, are of one process
                found[os.path.relpath(file, Path(inspect.getfile(home)).parent)] = digest_of_code(file.read_bytes())
            found |= versions(libraries)
        except (*_UNREADABLE, LookupError):
            found[name] = secrets.token_hex(16)
    return found, homes


def _used_by(home: ModuleType) -> tuple[list[Path], list[str]]:
    """The files of a module and of all own modules that it imports, and the installed libraries that these import."""
    files: dict[str, Path] = {}
    roots = {home.__name__.partition(".")[0]}  # a part may be a library's, too
    waiting = {home.__name__: Path(inspect.getfile(home))}
    while waiting:
        name, file = waiting.popitem()
        files[name] = file
        for imported in () if is_installed(file) else _imported(name, file, file.read_bytes()):
            if (own_file := _own_file(imported)) is None:
                roots.add(imported.partition(".")[0])
            elif imported not in files:
                waiting[imported] = own_file
    names = {name for root in roots - {"h2fdp"} for name in _distributions().get(root, ())}
    return list(files.values()), sorted(names - {"h2fdp"})


_distributions = cache(packages_distributions)  # half a second


@lru_cache(maxsize=1024)
def _imported(module: str, file: Path, text: bytes) -> frozenset[str]:
    """Names that may be modules which a module imports, in functions too: of `from a import b` both `a` and `a.b`."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {name for alias in node.names for name in _with_packages(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            names |= {*_with_packages(origin), *(f"{origin}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _with_packages(name: str) -> Iterator[str]:
    """The names of a module and of its packages: of `a.b` both `a` and `a.b`."""
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _own_file(name: str) -> Path | None:
    """The file of a user's module, which may not be imported yet; None where it is none."""
    if name in sys.modules:
        return Path(inspect.getfile(sys.modules[name])) if is_own(sys.modules[name]) else None
    parent, _, _ = name.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", []) if parent else None
    spec = PathFinder.find_spec(name, path)
    if spec is None or not spec.origin or not spec.origin.endswith(".py") or is_installed(Path(spec.origin)):
        return None
    return Path(spec.origin)
