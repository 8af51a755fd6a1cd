"""What the bits of a run depend on, as digests: equal digests, equal bits.

They see what may compute something and no more: neither comments nor docstrings, nor libraries that the run does not
use. Ray is none of these: it carries arrays between processes and computes nothing, and a run may continue without it.
Nor are the libraries that read data and topologies: what they read is in the digest itself.
"""

from __future__ import annotations

import ast
import inspect
import json
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from h2fdp.config.own_answers import is_installed, is_own
from h2fdp.config.own_parts import OwnPart, own_parts_in
from h2fdp.config.parsing import values_of
from h2fdp.data.images import user_cache
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.records import PACKAGE, RunDirectory, versions
from h2fdp.records.atomic import digest_of_code, hash_of, write_text
from h2fdp.records.noise_key import id_of
from h2fdp.run.setup import RunSetup
from h2fdp.runtime.host import ARITHMETIC, COMPILERS, processor

# Where a run computes and how it is watched changes no bit; the engine does, and is counted by itself.
_NOT_COUNTED = ("name", "runtime", "sweep", "tracking", "tune")
# What chooses configurations or shows results: no bit of a run is made by it.
ABOVE_RUNS = ("audit", "cli", "integrity.py", "reports", "sweeps", "tuning", "__init__.py", "__main__.py")
OWN_CODE = "own code"  # of parts that the run's files name


def run_digest(run: RunSetup, directory: RunDirectory) -> dict[str, str]:
    """By part, so that what differs can be named; the versions in words.

    Args:
        directory: has the run's configuration and topology.
    """
    written, parts = values_of(directory.config.read_text()), own_parts_of(run.config, run.drawn)
    configuration = json.dumps(counted(written), sort_keys=True)
    own = code_of(part.part for part in parts if not part.from_python)
    handed = code_of(part.part for part in parts if part.from_python)  # by a script, which changes where it resumes
    libraries, package = _libraries_of_run(run), package_digest()
    started = [] if run.warm_start is None else [run.warm_start]
    device = run.blueprint.device.type
    # A GPU may add up in another order each time, so nothing says that bits come again.
    again = [] if device == "cpu" else [secrets.token_hex(16)]
    return {
        "code": hash_of([package, handed]),
        OWN_CODE: own,
        # Under the noise key, so that without it the records cannot be compared with guessed ones.
        "data": blake2b(run.data.fingerprint().encode(), key=run.noise_key, digest_size=16).hexdigest(),
        "configuration": hash_of([configuration, directory.topology.read_text(), run.blueprint.engine, *started]),
        "noise key": id_of(run.noise_key),
        "versions": _words(versions(libraries)),
        "hardware": hash_of([processor(), device, *again]),
    }


def counted(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that a run's bits depend on; a user's own parts count as code."""
    own = [key for key in ("data", "model") if isinstance(configuration.get(key), str)]
    return {key: value for key, value in configuration.items() if key not in (*_NOT_COUNTED, *own)}


def _libraries_of_run(run: RunSetup) -> tuple[str, ...]:
    """Those that compute something in it."""
    noise = () if run.noise is None else ACCOUNTANTS[run.config.privacy.accountant].libraries
    return (*ARITHMETIC, *noise, *(COMPILERS if run.blueprint.engine == "compiled" else ()))


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def name_of_attempt(digest: dict[str, str], checkpoint: dict[str, Any] | None, ledger: str) -> str:
    """A name for what is drawn from here on, which no other continuation shares.

    It is made from all that the next release depends on - the environment, the checkpoint, the ledger's `Mark` - so
    that equal names mean equal releases, to the bit.
    """
    keys = ("digest", "attempt", "intervals", "ledger")  # which determine the model and all else in a checkpoint
    before = {} if checkpoint is None else {key: checkpoint[key] for key in keys}
    return hash_of([json.dumps(digest), json.dumps(before), ledger])


@cache  # what this process runs is what it imported
def package_digest(package: Path = PACKAGE) -> str:
    """A digest of our own code, as far as a run may be made by it.

    Parsing all of it takes a second. So the digest is kept in the user's cache folder, after a hash of the files' texts
    and of the version of Python whose parser read them.
    """
    files = [file.relative_to(package) for file in sorted(package.rglob("*.py"))]
    texts = {str(file): (package / file).read_text("utf-8") for file in files if file.parts[0] not in ABOVE_RUNS}
    key = hash_of([sys.version, *(each for file in texts.items() for each in file)])
    with suppress(OSError, RuntimeError, ValueError):  # no home, nothing is kept, or nothing that can be read
        kept_key, digest = (user_cache() / f"code-{hash_of([str(package)])}").read_text().split()
        if kept_key == key and len(digest) == len(key):
            return digest
    digest = hash_of(each for name, text in texts.items() for each in (name, digest_of_code(text)))
    with suppress(OSError, RuntimeError):  # no home, or nowhere to write
        user_cache().mkdir(parents=True, exist_ok=True)
        write_text(user_cache() / f"code-{hash_of([str(package)])}", f"{key} {digest}")
    return digest


def own_parts_of(config: ExperimentFile, topology: Topology) -> list[OwnPart]:
    """All own parts of an experiment: of its configuration, and of its topology."""
    return [*own_parts_in(config), *topology.radio.own_parts]


# What says that a part, or a file that it uses, cannot be read as a whole.
_UNREADABLE = (TypeError, AttributeError, ImportError, OSError, SyntaxError, ValueError)


def code_of(parts: Iterable[Any]) -> str:
    """A digest of a user's own functions, classes and dataclass objects; empty for none.

    It takes in the files of the user's that they come from or import, and the versions of the libraries that these
    import. A part that cannot be read as a whole (typed in, wrapped, a function with values of its own) may be another
    one next time: its digest never comes again.
    """
    texts = []
    for part in parts:
        try:
            if not isinstance(part, type) and (getattr(part, "__closure__", None) or getattr(part, "__self__", None)):
                raise TypeError("holds values that are not in any file")
            if is_dataclass(part) and not isinstance(part, type):  # its class and its fields say all
                texts.append(repr(part))
                part = type(part)
            home = sys.modules[part.__module__]
            if inspect.getsourcefile(part) != inspect.getsourcefile(home):
                raise TypeError(f"{part} is not of the file of the module that it names")
            files, libraries = _used_by(home)
            # What the home is called does not count: it is `__main__` in the process of a script.
            code = {"" if name == home.__name__ else name: digest_of_code(text) for name, text in files.items()}
            texts += [part.__qualname__, json.dumps(code, sort_keys=True), _words(versions(libraries))]
        except (*_UNREADABLE, LookupError):
            texts.append(secrets.token_hex(16))
    return hash_of(texts) if texts else ""


def _used_by(home: ModuleType) -> tuple[dict[str, bytes], list[str]]:
    """A module and all own modules that it imports, with their texts, and the installed libraries that these import."""
    texts: dict[str, bytes] = {}
    roots = {home.__name__.partition(".")[0]}  # a part may be a library's, too
    waiting = {home.__name__: Path(inspect.getfile(home))}
    while waiting:
        name, file = waiting.popitem()
        texts[name] = file.read_bytes()
        for imported in () if is_installed(file) else _imported(name, file, texts[name]):
            if (own_file := _own_file(imported)) is None:
                roots.add(imported.partition(".")[0])
            elif imported not in texts:
                waiting[imported] = own_file
    names = {name for root in roots - {"h2fdp"} for name in _distributions().get(root, ())}
    return texts, sorted(names - {"h2fdp"})


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
    """Of `a.b` both `a` and `a.b`."""
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
