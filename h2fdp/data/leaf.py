"""`leaf`: FEMNIST and Sentiment140 as LEAF writes them, in JSON files by user (Caldas et al. 2018).

A folder has `train/*.json` and `test/*.json`, each {"users": [...], "num_samples": [...], "user_data": {user: {"x":
[...], "y": [...]}}}. FEMNIST: x is 784 numbers from 0 to 1, y a class from 0 to 61. Sent140: x is a row of the
original table whose fifth value is the tweet, or the tweet itself; y is 0 or 1, in the original table 0 or 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect, FilePath
from h2fdp.data.records import Records, Scaling, as_records
from h2fdp.data.source import DataRequest, FromFiles, Pool, Pooled, pool_of
from h2fdp.errors import UserError

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


_KEY = "data.path"
_SIDE = 28
_WORDS = 25  # of a tweet that count, as LEAF has it
_TWEET = 4  # the place of the text in a row of the original table
_FEMNIST_CLASSES, _SENTIMENTS = 62, 2
_FEMNIST = Scaling(1.0, (1.0,), (1.0,))  # paper, 1 in LEAF's files, becomes 0; with `normalize: unit` it stays 1

_Vocabulary = Annotated[int, Field(ge=1, le=1_000_000), Expect("a whole number from 1 to 1000000")]


class Leaf(FromFiles, Pooled):
    """LEAF's JSON files, in a folder with `train` and `test`, or one that has them under `data`.

    Attributes:
        vocabulary: of Sent140: numbers that words are hashed to.
        embeddings: of Sent140: a public list of words instead, as LEAF's embs.json or GloVe's text files.
    """

    description: ClassVar[str] = "LEAF's JSON files of FEMNIST or Sentiment140, one owner for each user"
    name: Literal["leaf"] = "leaf"
    vocabulary: _Vocabulary = 10_000
    embeddings: FilePath | None = None

    def load(self, request: DataRequest) -> Pool:
        """All records, of FEMNIST where x are numbers, else of Sent140; each user is an owner.

        Raises:
            UserError: no such folder, files of another form, no records.
        """
        folder = Path(self.path).expanduser()
        home = next((each for each in (folder, folder / "data") if (each / "train").is_dir()), None)
        if home is None:
            raise UserError(f"expected a folder with train/*.json and test/*.json: {folder}", key=_KEY)
        (users, x, y), (test_users, test_x, test_y) = _records(home / "train"), _records(home / "test")
        texts = isinstance(x[0], str) or (isinstance(x[0], list) and any(isinstance(each, str) for each in x[0]))
        read = self._tweets if texts else self._images
        train, test = read(x, y, f"{home / 'train'}"), read(test_x, test_y, f"{home / 'test'}")
        classes, scaling = (_SENTIMENTS, Scaling()) if texts else (_FEMNIST_CLASSES, _FEMNIST)
        owned = (train, np.array(users)), (test, np.array(test_users))
        return pool_of(*owned, None, classes, scaling, str(home))

    def _images(self, x: list[Any], y: list[Any], what: str) -> Records:
        """(n, 1, 28, 28) from 0 to 1."""
        try:
            pixels = np.asarray(x, dtype=np.float32).reshape(-1, 1, _SIDE, _SIDE)
        except (ValueError, TypeError):
            raise UserError(f"{what}: expected {_SIDE * _SIDE} numbers in each x", key=_KEY) from None
        return as_records(pixels, _labels(y, what), what, _KEY)

    def _tweets(self, x: list[Any], y: list[Any], what: str) -> Records:
        """(n, words) numbers of words."""
        texts = [each[_TWEET] if isinstance(each, list) and len(each) > _TWEET else each for each in x]
        if not all(isinstance(each, str) for each in texts):
            raise UserError(f"{what}: expected in each x a tweet, or a row whose fifth value is the tweet", key=_KEY)
        labels = _labels(y, what)
        known = None if self.embeddings is None else vocabulary_of(Path(self.embeddings).expanduser(), self.vocabulary)
        numbers = word_numbers(texts, _WORDS, self.vocabulary, known)
        return as_records(numbers, np.where(labels == 4, 1, labels), what, _KEY)


def _labels(y: list[Any], what: str) -> np.ndarray:
    try:
        return np.array([int(each) for each in y], dtype=np.int64)
    except (ValueError, TypeError):
        raise UserError(f"{what}: expected whole numbers in y", key=_KEY) from None


def _records(folder: Path) -> tuple[list[str], list[Any], list[Any]]:
    """The user, x and y of each record of a folder's files, in the order of their names.

    Raises:
        UserError: no files, files of another form, no records.
    """
    users: list[str] = []
    x: list[Any] = []
    y: list[Any] = []
    for file in sorted(folder.glob("*.json")):
        for user, held in _users(file):
            if len(held["x"]) != len(held["y"]):
                text = f"{file}: user {user} has {len(held['x'])} x and {len(held['y'])} y"
                raise UserError(text, key=_KEY)
            users += [user] * len(held["y"])
            x += held["x"]
            y += held["y"]
    if not users:
        raise UserError(f"no records in the .json files of {folder}", key=_KEY)
    return users, x, y


def _users(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        for user in values["users"]:
            held = values["user_data"][user]
            yield str(user), {"x": list(held["x"]), "y": list(held["y"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        text = 'expected LEAF\'s form, {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}'
        raise UserError(f"{file}: {text}; {type(error).__name__}: {error}"[:400], key=_KEY) from None


def vocabulary_of(file: Path, most: int) -> dict[str, int]:
    """The first words of a public list, numbered from 1.

    Raises:
        UserError: it cannot be read, or has no words.
    """
    key = "data.embeddings"
    try:
        with file.open(encoding="utf-8") as lines:
            listed = json.load(lines)["vocab"] if file.suffix == ".json" else [line.split(" ", 1)[0] for line in lines]
        words = [str(each).strip() for each in listed][:most]
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = 'expected JSON with a list "vocab", or a word at the start of each line'
        raise UserError(f"{file}: {text}; {type(error).__name__}: {error}"[:400], key=key) from None
    if not words:
        raise UserError(f"{file}: no words", key=key)
    return {word: number for number, word in enumerate(dict.fromkeys(words), 1)}
