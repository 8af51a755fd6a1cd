"""Optional parts of a network, whose sections add themselves to the topology file, and what others ask of each.

A part stands in the field of `Topology` that has the name of its key. Others ask all parts, and name none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from h2fdp.config import Document, Section

if TYPE_CHECKING:
    from torch import Tensor

# What arrives in the place of uploads (n, M) of children (n), rows or names, of which some send something else.
Replacement = Callable[["Tensor", Sequence[Hashable]], "Tensor"]


class Part(ABC):
    """An optional part of a network, as it was drawn: a frozen value.

    Attributes:
        note: the condition under which epsilons hold where it is there; empty for none.
    """

    note: ClassVar[str] = ""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """The section of a topology file that says the same."""

    @abstractmethod
    def check(self, topology: Any, key: str) -> None:
        """Refuse a network that it does not go with.

        Raises:
            UserError: it names nodes that are not there.
        """

    def in_star(self) -> Part | None:
        """The part in the star of the same devices; None where it has none."""
        return self

    def with_rows(self, topology: Any) -> Any:
        """The network with a row for each place where a device ever is: itself where all stay."""
        return topology

    def words(self) -> str:
        """The part in a few words, for summaries; empty for none."""
        return ""

    def idle(self, intervals: int) -> str:
        """Why it has no effect in a run of so many intervals; empty where it may have one."""
        return ""


class Replacing(Part):
    """A part by which some nodes send something else than their uploads: they have no account, and no account credits
    their noise.

    Attributes:
        key: of the topology file.
        devices, edges: the names of these nodes.
        informed: whether they know what others upload to the same aggregation.
        scored: before the columns of the scores on further test records; empty without any.
    """

    key: ClassVar[str]
    devices: tuple[str, ...]
    edges: tuple[str, ...]

    @property
    @abstractmethod
    def informed(self) -> bool:
        """Whether it knows them."""

    @property
    @abstractmethod
    def scored(self) -> str:
        """The prefix."""

    @abstractmethod
    def sent(self, own: Tensor, others: Tensor) -> Tensor:
        """(m, M), or (M,) for all of them, in the place of the uploads of these nodes.

        Args:
            own: (m, M) what they would send.
            others: (h, M) the other uploads of the same aggregation; h is at least 1 where they are informed.
        """

    def among(self, children: Collection[Hashable]) -> Replacement | None:
        """The replacement where these children, rows or names, are such nodes; None where there are none."""
        return partial(self._arriving, frozenset(children)) if children else None

    def _arriving(self, replaced: frozenset[Hashable], updates: Tensor, children: Sequence[Hashable]) -> Tensor:
        """(n, M); informed nodes among themselves have no truth to lie about, and send what they would."""
        own = [place for place, child in enumerate(children) if child in replaced]
        others = [place for place, child in enumerate(children) if child not in replaced]
        if not own or (self.informed and not others):
            return updates
        changed = updates.clone()
        changed[own] = self.sent(updates[own], updates[others]).to(updates)
        return changed


class PartSection(Section):
    """The section of a topology file that states a part.

    Attributes:
        moves: whether devices change their edge server by it.
    """

    moves: ClassVar[bool] = False

    @abstractmethod
    def drawn(self, key: str, topology: Any, document: Document, seed: int) -> Part | None:
        """The part in a network without it; None for none.

        Raises:
            UserError: with the keys of the file, or with lines of files that it names.
        """
