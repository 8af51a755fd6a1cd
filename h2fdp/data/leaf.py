"""`leaf`: FEMNIST and Sentiment140 as LEAF writes them, in JSON files by user (Caldas et al. 2018).

A folder has `train/*.json` and `test/*.json`, each {"users": [...], "num_samples": [...], "user_data": {user: {"x":
[...], "y": [...]}}}. FEMNIST: x is 784 numbers from 0 to 1, y a class from 0 to 61. Sent140: x is a row of the
original table whose fifth value is the tweet, or the tweet itself; y is 0 or 1, in the original table 0 or 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Count, Expect, FilePath
from h2fdp.data.from_python import numbered
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Records, Scaling, as_records, class_count
from h2fdp.data.source import DataRequest, Pool, Pooled
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
_TWEET = 4  # the place of the text in a row of the original table
_FEMNIST_CLASSES, _SENTIMENTS = 62, 2
_FEMNIST = Scaling(1.0, (1.0,), (1.0,))  # paper, 1 in LEAF's files, becomes 0; with `normalize: unit` it stays 1

_Vocabulary = Annotated[int, Field(ge=1, le=1_000_000), Expect("a whole number from 1 to 1000000")]


class Leaf(Pooled):
    """LEAF's JSON files.

    Attributes:
        path: the folder with `train` and `test`, or one that has them under `data`.
        task: which of the two; the form of x and y follows from it.
        words: of Sent140: words of a tweet that count.
        vocabulary: of Sent140: numbers that words are hashed to.
        embeddings: of Sent140: a public list of words instead, as LEAF's embs.json or GloVe's text files.
    """

    description: ClassVar[str] = "LEAF's JSON files of FEMNIST or Sentiment140, one owner for each user"
    nulls: ClassVar[bool] = False
    name: Literal["leaf"] = "leaf"
    path: FilePath
    task: Literal["femnist", "sent140"] = "femnist"
    partition: PartitionSection = PartitionSection(natural=True)
    words: Count = 25
    vocabulary: _Vocabulary = 10_000
    embeddings: FilePath | None = None

    def depends_on(self, request: DataRequest) -> Hashable:
        """The files, and how they are read."""
        return self.path, self.task, self.words, self.vocabulary, self.embeddings, self.partition.natural

    def load(self, request: DataRequest) -> Pool:
        """All records; each user is an owner, unless a partition spreads the records.

        Raises:
            UserError: no such folder, files of another form, no records.
        """
        folder = Path(self.path).expanduser()
        home = next((each for each in (folder, folder / "data") if (each / "train").is_dir()), None)
        if home is None:
            raise UserError(f"expected a folder with train/*.json and test/*.json: {folder}", key=_KEY)
        read = self._images if self.task == "femnist" else self._tweets
        parts = {}
        for part in ("train", "test"):
            users, x, y = _records(home / part)
            parts[part] = np.array(users), read(x, y, f"{home / part} of {self.task}")
        (users_train, train), (users_test, test) = parts["train"], parts["test"]
        owners, test_owners = numbered(users_train, users_test) if self.partition.natural else (None, None)
        classes = _FEMNIST_CLASSES if self.task == "femnist" else _SENTIMENTS
        scaling = _FEMNIST if self.task == "femnist" else Scaling()
        names = tuple(np.unique(users_train).tolist()) if self.partition.natural else ()
        classes = class_count(train, test, classes, str(home))
        return Pool(train, test, classes, scaling, owners, test_owners, owner_names=names)

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
        return as_records(
            word_numbers(texts, self.words, self.vocabulary, known), np.where(labels == 4, 1, labels), what, _KEY
        )


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
