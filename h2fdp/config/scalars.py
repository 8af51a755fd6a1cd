"""What a plain word of a file means: the core schema of YAML 1.2, in which 1e-5 is a number and `no` is a word."""

from __future__ import annotations

import re
from typing import Any

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
    ".inf": float("inf"),
    "+.inf": float("inf"),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
_DIGITS_AT_MOST = 400  # Python refuses to convert integers of more than 4,300 digits; no key here needs ten


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar.

    >>> [plain_scalar(word) for word in ("12", "1e-5", "0x10", "no", "~", "True", "1_000")]
    [12, 1e-05, 16, 'no', None, True, '1_000']
    """
    word = text.lower() if text in (text.lower(), text.capitalize(), text.upper()) else text
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(text) and len(text) <= _DIGITS_AT_MOST:
        return int(text)
    if _OTHER_BASE.fullmatch(text) and len(text) <= _DIGITS_AT_MOST:
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
