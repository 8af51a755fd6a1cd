"""Connect this process to Ray: a cluster of its own on this machine, or one that runs already."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from filelock import FileLock, Timeout
from ray._private import ray_constants

from h2fdp.config.own_answers import is_own
from h2fdp.errors import UserError
from h2fdp.records.directory import PACKAGE
from h2fdp.runtime.placement import IN_ONE_PROCESS
from h2fdp.wording import note

# No usage report; and a host without GPUs must not hide those of the machine from the process that it is in.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

_FOLDERS = Path("/tmp")  # not TMPDIR: the sockets below may have paths of 107 characters
_STORE_BYTES = 2**29  # models and updates on their way, in addition to the records
_SECONDS_TO_CONNECT = 10.0
_TOKEN = "are RAY_AUTH_MODE and RAY_AUTH_TOKEN those that it was started with?"
_LARGEST_STORE = 0.3  # of memory, as Ray's own default
_PROCESS_OF_ITS_OWN = f"start it in a process of its own (multiprocessing's `spawn`), or {IN_ONE_PROCESS}"
_one_thread = threading.RLock()  # of a process: what connects it to Ray is global
_processes: set[int] = set()  # that used Ray: this one, and any that it is a fork of
_FROM_AFAR = (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.RayError)


@contextmanager
def ray_session(address: str | None, data_bytes: int) -> Iterator[None]:
    """Ray, started here or joined at an address, for as long as the context lasts; one that this process has is used.

    Args:
        address: `auto`, HOST:PORT, or None for a cluster of this run's own.
        data_bytes: size of the records that travel to hosts.

    Raises:
        UserError: no cluster answers at the address, or it does not take our token; another thread runs on Ray, or the
            process that this one was forked from used Ray.
    """
    if _processes - {os.getpid()}:
        text = "Ray does not survive a fork, and the process that this one was forked from used it"
        raise UserError(f"{text}; {_PROCESS_OF_ITS_OWN}", key="runtime.backend")
    if not _one_thread.acquire(blocking=False):
        text = "another thread of this process runs on Ray; wait for it"
        raise UserError(f"{text}, {_PROCESS_OF_ITS_OWN}", key="runtime.backend")
    _processes.add(os.getpid())
    with contextlib.ExitStack() as stack:
        stack.callback(_one_thread.release)
        stack.enter_context(_own_modules_by_value())
        if ray.is_initialized():
            yield
            return
        print("note: starting processes on Ray, which takes some seconds", file=sys.stderr, flush=True)
        with _one_line_of_ray(), _joined(address) if address else _started(data_bytes):
            try:
                yield
            finally:
                ray.shutdown()


@contextmanager
def _one_line_of_ray() -> Iterator[None]:
    """Reports of Ray's servers, as of a lost machine, become notes of one sentence. Ray prints a paragraph among the
    results on standard output."""
    before = ray._private.worker.print_to_stdstream

    def tell(data: Any, ignore_prefix: bool) -> None:
        note(f"Ray: {' '.join(' '.join(data['lines']).split()).partition('. ')[0]}")

    ray._private.worker.print_to_stdstream = tell
    try:
        yield
    finally:
        ray._private.worker.print_to_stdstream = before


@contextmanager
def _started(data_bytes: int) -> Iterator[None]:
    """A cluster on this machine that no one else can use, in a folder that goes with it."""
    with _own_token(), _loopback(), _own_folder() as folder:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        # address="local": an address in the environment belongs to somebody else's cluster.
        # log_to_driver: what actors print belongs to no terminal; their errors come back with the call.
        try:
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=int(min(_STORE_BYTES + 2 * data_bytes, _LARGEST_STORE * memory)),
                _temp_dir=str(folder),
            )
        except Exception as error:  # Ray has no class for it
            ray.shutdown()
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            text = f"Ray did not start on this machine ({reason}); try again when it has more room, or {IN_ONE_PROCESS}"
            raise UserError(text, key="runtime.backend") from error
        yield


@contextmanager
def _loopback() -> Iterator[None]:
    """Ray's servers listen at 127.0.0.1 alone, as they do by default where a machine is no part of clusters (macOS,
    Windows). With an address of a network they would listen on every network that this machine is in."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """A cluster that somebody started; our package travels to its machines."""
    if (stated := _remembered() if address == "auto" else address) is not None:
        _check_listening(stated)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"py_modules": [str(PACKAGE)]},
        )
    except _FROM_AFAR as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        text = f"cannot join a cluster at {address} ({reason}); is it running, and {_TOKEN}"
        raise UserError(text, key="runtime.address") from None
    yield


def _remembered() -> str | None:
    """The address that `auto` stands for, if Ray states one: it waits for minutes for one that is dead."""
    with contextlib.suppress(Exception):  # of Ray's insides, which change
        address = ray._private.services.get_ray_address_from_environment("auto", None)
        host, _, port = str(address).rpartition(":")
        return str(address) if host and port.isdigit() else None
    return None


def _check_listening(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise UserError(f"nothing listens at {address} ({reason}); is it running?", key="runtime.address") from None


@contextmanager
def _own_token() -> Iterator[None]:
    """A random token that is never written down, unless the user chose a mode or a token."""
    own: dict[str, str] = {}
    if "RAY_AUTH_MODE" not in os.environ:
        own["RAY_AUTH_MODE"] = "token"
    wants_token = os.environ.get("RAY_AUTH_MODE", "token") == "token"
    if wants_token and not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        own["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.update(own)
    _read_token_anew()
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
        _read_token_anew()


def _read_token_anew() -> None:
    """Ray remembers the mode and the token that it read first; releases before 2.52 know neither."""
    with contextlib.suppress(ImportError):
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A new folder for Ray's files, removed at the end; those that killed runs left are removed before.

    Ray opens the folder that it is given to everybody, so it gets one within ours, which no one else can enter.
    """
    prefix = f"h2fdp-ray-{os.getuid()}-"
    for left in _FOLDERS.glob(f"{prefix}*"):
        _remove_unless_used(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_FOLDERS))
    with FileLock(folder / "lock"):  # the process has the lock, so it ends with it however that ends
        try:
            inner = folder / "r"  # a short name: sockets lie deep in it, and their paths have a limit
            inner.mkdir()
            yield inner
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_unless_used(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if folder.stat().st_uid != os.getuid() or not (folder / "lock").exists():
            return
        try:
            with FileLock(folder / "lock", timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
        except Timeout:
            return  # its run continues


@contextmanager
def _own_modules_by_value() -> Iterator[None]:
    """Modules that are not installed travel with the objects made from them: workers find neither a model next to
    the script on another machine nor, on this one, a module in the folder of an experiment file."""
    registered = ray.cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    registered |= {"__main__"}  # what a session around this one registered, and what Ray sends by itself
    own = [module for module in list(sys.modules.values()) if is_own(module) and module.__name__ not in registered]
    modules = {module.__name__: module for module in own}.values()  # one may stand there under two names
    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            ray.cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
