"""Hosts that are processes forked from this one: each has an interpreter of its own, so that none waits for another's.

Threads of one process share its interpreter: it is held for more than half of the paper's run on two threads, which no
number of cores makes shorter. A forked process begins with everything that this one has imported and read, in
milliseconds, and shares the memory of it until either writes. Messages go through a socket each; no one else can
connect to it, for it has no name.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NoReturn

from h2fdp.protocol import NodeGroup
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.host_placement import HostSpec, placed_in_parts
from h2fdp.runtime.local_hosts import inline_nodes, set_arithmetic, worker_threads
from h2fdp.runtime.process_messages import packed, received, send, unpacked

_MOST_LOSSES = 3  # of one host in a row
_WHEN_THE_PARENT_DIES = 1  # PR_SET_PDEATHSIG of Linux


class ForkedNodes:
    """Edge servers on forked hosts, all called at once. A lost host is forked anew and its call made again: hosts keep
    no state between calls, and what they draw is keyed.

    The first call is answered in this process, by threads, and hosts are forked after it. So what it compiled and read,
    once, is there for all of them.

    Args:
        nodes: of each place, as they are built here.
        threads: of the first call.
    """

    def __init__(self, places: Sequence[HostSpec], nodes: Sequence[NodeGroup], threads: int) -> None:
        self._nodes = dict(zip((place.name for place in places), nodes, strict=True))
        self._hosts: dict[str, _Host] = {}
        self._place_of = {node: place.name for place in places for node in place.nodes}
        self._threads = threads

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        parts: dict[str, dict[str, Any]] = {}
        for node, item in each.items():
            parts.setdefault(self._place_of[node], {})[node] = item
        if self._hosts:
            found = self._asked({name: packed((method, shared, part)) for name, part in parts.items()})
        else:
            found = self._first(method, shared, parts)
            for name in self._nodes:
                self._fork(name)
        return {node: found[node] for node in each}

    def end(self) -> None:
        """End all hosts, those at work too."""
        for host in self._hosts.values():
            host.end()

    def _first(self, method: str, shared: Any, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        with worker_threads(self._threads) as threads:
            of_places = (map if threads is None else threads.map)(
                lambda name: self._nodes[name].call(method, shared, parts[name]), parts
            )
            return {node: value for answers in of_places for node, value in answers.items()}

    def _asked(self, questions: Mapping[str, bytes]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        failures: list[BaseException] = []
        told = {name: self._hosts[name].told(question) for name, question in questions.items()}
        for name, question in questions.items():
            answer, losses = self._hosts[name].answer() if told[name] else None, 0
            while answer is None:
                losses += 1
                self._replace(name, losses)
                answer = self._hosts[name].answer() if self._hosts[name].told(question) else None
            well, value = answer
            if well:
                found |= value
            else:
                failures.append(value)
        if failures:  # when all have answered: no answer is left for the next call
            raise failures[0]
        return found

    def _replace(self, name: str, losses: int) -> None:
        ended = self._hosts[name].end()
        if losses >= _MOST_LOSSES:
            raise RuntimeError(f"the host {name} was lost {losses} times in a row ({ended})")
        print(f"note: lost {name} ({ended}); its work is repeated", file=sys.stderr, flush=True)
        self._fork(name)

    def _fork(self, name: str) -> None:
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():  # of threads, whose locks the host does not take: it prints and logs nothing
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process == 0:
            for other in self._hosts.values():
                other.connection.close()
            ours.close()
            _answer_all(theirs, self._nodes[name])
        theirs.close()
        self._hosts[name] = _Host(process, ours)


class _Host:
    """This process's end of a forked host."""

    def __init__(self, process: int, connection: socket.socket) -> None:
        self.process, self.connection = process, connection
        self._status: int | None = None

    def told(self, message: bytes) -> bool:
        """Whether the message could be sent."""
        try:
            send(self.connection, message)
        except OSError:
            return False
        return True

    def answer(self) -> tuple[bool, Any] | None:
        """Whether the call succeeded, and its value or exception; None if the host is lost."""
        try:
            message = received(self.connection)
        except OSError:
            message = None
        if message is None:
            return None
        well, value, text = unpacked(message)
        if not well:
            value.add_note(f"in a host of this run:\n{text}")
        return well, value

    def end(self) -> str:
        """End the process; what became of it."""
        self.connection.close()
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return f"signal {-self._status}" if self._status < 0 else f"exit code {self._status}"


@contextmanager
def forked_nodes(blueprint: Blueprint, hosts: int) -> Iterator[NodeGroup]:
    """The edge servers of a run on so many forked hosts, whole subnets together; they end with the context.

    A network of a single subnet has one host at most: its devices share the threads of this process instead.
    """
    places = placed_in_parts(blueprint.topology, hosts)
    with ExitStack() as held:
        if len(places) == 1:
            yield held.enter_context(inline_nodes(blueprint, range(blueprint.topology.edges), hosts))
            return
        nodes = [held.enter_context(inline_nodes(blueprint, place.numbers, workers=1)) for place in places]
        forked = ForkedNodes(places, nodes, threads=hosts)
        held.callback(forked.end)
        yield forked


def _answer_all(connection: socket.socket, nodes: NodeGroup) -> NoReturn:
    """A host's life: answer calls until nobody is there to ask. It never returns into what this process was before."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_WHEN_THE_PARENT_DIES, signal.SIGKILL)  # at once: it shares the lock of the run
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that was started
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, name in (
            (1, "stdout"),
            (2, "stderr"),
        ):  # the locks of the old may be held by threads
            setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
        set_arithmetic()
        while (message := received(connection)) is not None:
            send(connection, _answer(nodes, message))
        code = 0
    except OSError:
        code = 0  # the process that asks has ended
    except BaseException:
        with suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    os._exit(code)


def _answer(nodes: NodeGroup, message: bytes) -> bytes:
    try:
        method, shared, each = unpacked(message)
        return packed((True, nodes.call(method, shared, each), ""))
    except Exception as error:
        text = traceback.format_exc()
        try:
            unpacked(answer := packed((False, error, text)))
        except Exception:  # it does not travel: its words do
            return packed((False, RuntimeError(f"{type(error).__name__}: {error}"), text))
        return answer
