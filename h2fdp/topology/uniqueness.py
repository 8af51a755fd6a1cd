"""Names are given once in a network: they key the streams of noise, and two nodes of one name would share theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol


class Named(Protocol):
    """What a subnet says about names; `names` is None where devices are called `<edge>/<n>`."""

    @property
    def name(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def size(self) -> int: ...


def repeated_names(subnets: Sequence[Named], others: Sequence[str] = ()) -> list[str]:
    """Names that two nodes of the network would have; default names are not written out, so millions cost nothing.

    Args:
        subnets: the lowest edge servers with their devices.
        others: the names of all other nodes.
    """
    counts = Counter(subnet.name for subnet in subnets)
    counts.update(others)
    for subnet in subnets:
        counts.update(subnet.names or ())
    defaults = {subnet.name: subnet.size for subnet in subnets if subnet.names is None}
    return sorted(name for name, count in counts.items() if count > 1 or _is_default(name, defaults))


def _is_default(name: str, defaults: dict[str, int]) -> bool:
    edge, slash, number = name.rpartition("/")
    plain = number.isascii() and number.isdigit() and not number.startswith("0")
    return bool(slash) and plain and 1 <= int(number) <= defaults.get(edge, 0)
