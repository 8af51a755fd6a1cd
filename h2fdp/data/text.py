"""Sentences as numbers of words, by a public rule: a vocabulary collected from devices' texts would reveal these."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_TOKENS = re.compile(r"[\w']+|[.,!?;]")  # as LEAF cuts tweets


def word_numbers(
    texts: Sequence[str], length: int, words: int, vocabulary: Mapping[str, int] | None = None
) -> NDArray[np.float32]:
    """The first `length` words of each text as numbers, shape (n, length); 0 fills up what is shorter.

    Args:
        words: numbers go up to this one, 0 not counted.
        vocabulary: word -> its number from 1; a word that it lacks is 0. Null: a word's number is a hash of it, so
            some words share one (Weinberger et al. 2009).

    >>> word_numbers(["so good", ""], 3, 5, {"good": 2}).tolist()
    [[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    """
    known: dict[str, int] = {}

    def number(word: str) -> int:
        if vocabulary is not None:
            return vocabulary.get(word, 0)
        if word not in known:
            known[word] = 1 + int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") % words
        return known[word]

    found = np.zeros((len(texts), length), dtype=np.float32)
    for row, text in enumerate(texts):
        for place, word in enumerate(_TOKENS.findall(text.lower())[:length]):
            found[row, place] = number(word)
    return found
