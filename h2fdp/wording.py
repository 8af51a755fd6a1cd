"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "edge server"), counted(2000, "device")
    ('1 edge server', '2,000 devices')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
