"""Public maps from words and texts to numbers: what a cell becomes depends on that cell and its column's name alone.

A list of categories or a vocabulary that is collected from devices' records reveals words, and no account covers that.
So categories that are not stated are hashed (Weinberger et al. 2009, "Feature hashing for large scale multitask
learning"). Texts are averages of vectors of their tokens, which the package `wordllama` ships (MIT licence; Miller
2024), or where it is not installed, hashed words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = 2**8  # of a text, or of a word among categories that are not stated


def hashed(cells: Sequence[Any], gaps: NDArray[np.bool_], column: str) -> NDArray[np.float64]:
    """Cells as 256 numbers of length 1, of which two are not 0, by a hash of the column's name and the cell; a gap has
    none.

    Both places of two categories are equal with a probability of 1 / 128^2. Words differ by more than spaces around
    them and upper case, numbers by value.

    Returns:
        shape (n, 256).

    >>> x = hashed(["north", "North ", "south", None], np.array([False, False, False, True]), "site")
    >>> (x @ x.T).round(6).tolist()
    [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    half = NUMBERS // 2
    places = np.array([_place(f"{column}\0{_word(cell)}", NUMBERS**2) for cell in cells], np.int64)
    rows = np.zeros((len(cells), NUMBERS))
    for start, place in zip((0, half), np.divmod(places, NUMBERS), strict=True):
        rows[np.arange(len(cells)), start + place % half] = np.where(place < half, 0.5**0.5, -(0.5**0.5))
    rows[gaps] = 0
    return rows


def _word(cell: Any) -> str:
    try:
        return repr(float(cell)) if not isinstance(cell, bool | np.bool_) else str(cell).lower()
    except (TypeError, ValueError):
        return str(cell).strip().casefold()


@lru_cache(maxsize=100_000)
def _place(text: str, places: int) -> int:
    """A number below `places`, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % places


def embedded(cells: Sequence[Any], gaps: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Texts as 256 numbers of length 1; a gap, and a text without words, as zeros.

    Returns:
        shape (n, 256).

    >>> x = embedded(["No fever", "no FEVER!", None], np.array([False, False, True]))
    >>> x.shape, np.linalg.norm(x, axis=1).round(6).tolist()
    ((3, 256), [1.0, 1.0, 0.0])
    """
    vector = _of_words if (found := _tokens()) is None else found.vector
    zeros = np.zeros(NUMBERS)
    rows = np.array([zeros if gap else vector(str(cell)) for cell, gap in zip(cells, gaps, strict=True)])
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def note_of_texts() -> str:
    """The note at the start, and with every epsilon, on numbers that stand for texts."""
    if (found := _tokens()) is None:
        return "data.text: hashes of words stand for texts; pip install 'h2fdp[text]' for vectors of tokens"
    return (
        f"data.text: vectors of tokens of wordllama {found.version} stand for texts; no account covers what these "
        "were trained on, and no device has it"
    )


def _of_words(text: str) -> NDArray[np.float64]:
    """Signed counts of words, and of pairs of words, by hashes."""
    words, row = re.findall(r"\w+", text.casefold()), np.zeros(NUMBERS)
    for each in (*words, *map(" ".join, pairwise(words))):
        place = _place(each, 2 * NUMBERS)
        row[place % NUMBERS] += 1 if place < NUMBERS else -1
    return row


class _Tokens:
    """The tokenizer and the vectors (tokens, 256) of a folder of `wordllama`.

    They are read here, since the package's own loader does not look where it has its tokenizer, and downloads one.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file  # which wordllama needs, too
        from tokenizers import Tokenizer

        self.version = version("wordllama")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        weights = load_file(folder / "weights" / f"l2_supercat_{NUMBERS}.safetensors")
        self._vectors = weights["embedding.weight"].astype(np.float32)

    def vector(self, text: str) -> NDArray[np.float64]:
        """(256,) the sum over the text's tokens."""
        numbers = self._tokenizer.encode(text, add_special_tokens=False).ids
        total: NDArray[np.float64] = self._vectors[numbers].sum(axis=0, dtype=np.float64)
        return total


@cache
def _tokens() -> _Tokens | None:
    found = find_spec("wordllama")
    return None if found is None or found.origin is None else _Tokens(Path(found.origin).parent)
