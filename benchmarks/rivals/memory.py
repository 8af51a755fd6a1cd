"""The peak memory of a process and all that come from it, read twice a second from Linux's /proc.

Processes share pages: forked ones those of their parent, others those of libraries. So what is added up is the
proportional set size, in which each of n sharers has an n-th of a page. A peak between two readings is seen if one
process alone made it: the kernel keeps the highest resident size of each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.5


@dataclass
class Peak:
    """MB, so far; nan where there is no /proc."""

    highest: float = float("nan")

    def see(self, mb: float) -> None:
        """One more reading."""
        if not mb <= self.highest:
            self.highest = mb


@contextmanager
def peak_mb(root: int) -> Iterator[Peak]:
    """Watch the tree of the process `root` as long as the context lasts."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY_S):
            held = [each for each in map(_memory, tree(root)) if each is not None]
            if held:
                peak.see(max(sum(shared for shared, _ in held), max(highest for _, highest in held)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def tree(root: int) -> set[int]:
    """The process and its living descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(after_name[1])
    found, added = {root}, {root}
    while added:
        added = {child for child, parent in parents.items() if parent in added} - found
        found |= added
    return found


def _memory(process: int) -> tuple[float, float] | None:
    """Proportional set size and highest resident size, MB; None of one that has ended."""
    try:
        return _field(process, "smaps_rollup", "Pss:"), _field(process, "status", "VmHWM:")
    except (OSError, StopIteration):
        return None


def _field(process: int, file: str, name: str) -> float:
    lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024
