"""Data sets of papers in the layouts in which they are published, from the data root or a path.

`tiny-imagenet`: the folder tiny-imagenet-200 of Stanford's archive. `femnist`, `shakespeare`, `stackoverflow`: LEAF's
JSON (Caldas et al. 2018), train/*.json and test/*.json, each {"users": [...], "num_samples": [...], "user_data": {user:
{"x": [...], "y": [...]}}}; or TensorFlow Federated's HDF5, files whose names end in `_train.h5` and `_test.h5`, with
examples/CLIENT/COLUMN. Users and clients become devices. `leaf` is LEAF's JSON of FEMNIST or of Sentiment140, whose x
are rows of the original table, the fifth value of which is the tweet, or tweets, and y 0 or 1, or 0 or 4.

LEAF's Shakespeare has 80 characters and the next one, of 80. TensorFlow Federated's has lines of a role, which are cut
into sequences of 80 (Reddi et al. 2021), and sentences of Stack Overflow are cut to 20 words: at each position the
label is what comes next.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Count, Expect, FilePath
from h2fdp.data.folders import Images, Part
from h2fdp.data.images import default_root
from h2fdp.data.records import Records, Scaling, alike, as_records
from h2fdp.data.source import DataOptions, DataRequest, Pool, Pooled, pool_of
from h2fdp.data.targets import PADDING
from h2fdp.errors import UserError, reason_of

Columns = Mapping[str, Any]  # of one user's records
_H5 = "h5py"  # the library, which is optional
_KEY = "data.path"
_SIDE, _PAPER = 28, Scaling(1.0, (1.0,), (1.0,))  # of FEMNIST, whose paper is 1 and becomes 0
_TOKENS = re.compile(r"[\w']+|[.,!?;]")  # as LEAF cuts tweets
_WORDS, _TWEET = 25, 4  # words of a tweet that count; its place in a row of the original table


class TinyImageNet(Pooled):
    """200 classes of ImageNet; the validation images, whose labels are published, are the test records."""

    description: ClassVar[str] = "110,000 colour images of ImageNet, 3x64x64, 200 classes, from tiny-imagenet-200"
    name: Literal["tiny-imagenet"] = "tiny-imagenet"

    def load(self, request: DataRequest) -> Pool:
        """All images as uint8; classes in the order of wnids.txt.

        Raises:
            UserError: the folder is not there, or is not as published.
        """
        home = (request.root or default_root()) / "tiny-imagenet-200"
        try:
            classes = (home / "wnids.txt").read_text().split()
            rows = [line.split("\t") for line in (home / "val" / "val_annotations.txt").read_text().splitlines()]
        except OSError as error:
            text = f"expected the folder of tiny-imagenet-200.zip, with wnids.txt and val/val_annotations.txt: {error}"
            raise UserError(f"{text}; put it there, or name its folder by --data-root", key="data.name") from None
        reader = Images(path=str(home), size=64, channels=3)
        train, test = ({name: list[Path]() for name in classes} for _ in range(2))
        for name in classes:
            train[name] = sorted((home / "train" / name / "images").glob("*.JPEG"))
        for file, name, *_ in rows:
            test.setdefault(name, []).append(home / "val" / "images" / file)
        if lacking := [name for name in classes if not train[name]]:
            raise UserError(f"{home}: no images in train/{lacking[0]}/images", key="data.name")
        like = np.empty((3, 64, 64), np.uint8)
        training, tests = (reader.records(Part(home, each), classes, like) for each in (train, test))
        scaling = Scaling(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # ImageNet's
        return Pool(training, tests, len(classes), scaling, class_names=tuple(classes))


class OfUsers(DataOptions):
    """Records of users, in LEAF's JSON or TensorFlow Federated's HDF5.

    Attributes:
        path: path of the file or folder; the page on data describes its contents.
    """

    path: FilePath | None = None

    def load(self, request: DataRequest) -> Pool:
        """All records; each user is an owner.

        Raises:
            UserError: no such folder or files, files of another form, no records.
        """
        given = (request.root or default_root()) / self.name if self.path is None else Path(self.path).expanduser()
        home = next((each for each in (given, given / "data") if (each / "train").is_dir()), given)
        train, test = self._part(home, "train"), self._part(home, "test")
        scaling = _PAPER if len(train[0].x.shape) == 4 else Scaling()
        return pool_of(train, test, None, self.number(train[0]), str(home), scaling=scaling)

    def depends_on(self, request: DataRequest) -> Any:
        """The files, and how they are read."""
        return request.root, repr(self.model_dump(exclude={"partition", "validation", "public", "test"}))

    @abstractmethod
    def number(self, records: Records) -> int:
        """The number of classes, which is public."""

    @abstractmethod
    def read(self, columns: Columns, what: str) -> Records:
        """The records of one user; of JSON the columns are x and y."""

    def _part(self, home: Path, part: str) -> tuple[Records, NDArray[Any]]:
        users = _users_of_json(home / part) if (home / part).is_dir() else _users_of_h5(home, part)
        found, names = list[Records](), list[str]()
        for user, columns in users:
            try:
                records = self.read(columns, f"{home}, {part}, user {user}")
            except KeyError as error:
                text = f"{home}: user {user} has no {error}, only {', '.join(columns)}"
                raise UserError(f"{text}; expected the layout of {self.name}", key=_KEY) from None
            found += [records] * (len(records) > 0)
            names += [user] * len(records)
        if not names:
            raise UserError(f"{home}: no records in {part}", key=_KEY)
        if not all(alike(each, found[0]) for each in found):
            raise UserError(f"{home}: some users of {part} have images, others texts; expected one of both", key=_KEY)
        return Records.joined(found), np.array(names)


def _users_of_json(folder: Path) -> Iterator[tuple[str, Columns]]:
    """Each user of LEAF's files who has records, in the order of the files' names."""
    for file in sorted(folder.glob("*.json")):
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            users = {str(user): {key: list(values["user_data"][user][key]) for key in "xy"} for user in values["users"]}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            text = 'expected LEAF\'s form, {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}'
            raise UserError(f"{file}: {text}; {type(error).__name__}: {error}"[:400], key=_KEY) from None
        for user, own in users.items():
            if len(own["x"]) != len(own["y"]):
                raise UserError(f"{file}: user {user} has {len(own['x'])} x and {len(own['y'])} y", key=_KEY)
            if own["y"]:
                yield user, own


def _users_of_h5(home: Path, part: str) -> Iterator[tuple[str, Columns]]:
    """Each client of TensorFlow Federated's file, in the order of their names."""
    files = sorted(home.glob(f"*_{part}.h5"))
    if len(files) != 1:
        found = ", ".join(each.name for each in files) or "none"
        text = f"expected {part}/*.json, as LEAF has them, or one file *_{part}.h5, as TensorFlow Federated has it"
        raise UserError(f"{home}: {text}; found {found}", key=_KEY)
    try:
        library = import_module(_H5)
    except ImportError:
        raise UserError(f"{files[0]} is read by h5py; expected it: pip install h5py", key=_KEY) from None
    try:
        with library.File(files[0], "r") as file:
            for client, group in sorted(file["examples"].items()):
                yield str(client), {name: values[()] for name, values in group.items()}
    except (OSError, KeyError, AttributeError) as error:
        text = f"expected groups examples/CLIENT with columns: {reason_of(error)}"
        raise UserError(f"{files[0]}: {text}"[:400], key=_KEY) from None


class Femnist(OfUsers):
    """Handwritten digits and letters by writer (Cohen et al. 2017; Caldas et al. 2018)."""

    description: ClassVar[str] = "digits and letters by writer, 28x28, 62 classes: LEAF's JSON or TFF's HDF5"
    name: Literal["femnist"] = "femnist"

    def number(self, records: Records) -> int:
        """Digits, and letters of both cases."""
        return 62

    def read(self, columns: Columns, what: str) -> Records:
        """(n, 1, 28, 28)."""
        leaf = "x" in columns
        return _characters(columns["x" if leaf else "pixels"], columns["y" if leaf else "label"], what)


class Leaf(OfUsers):
    """LEAF's files of FEMNIST or Sentiment140: what they are, they show.

    Attributes:
        vocabulary: Sent140: how many numbers words are hashed to.
        embeddings: Sent140: a public list of words instead, as LEAF's embs.json or GloVe's text files.
    """

    description: ClassVar[str] = "LEAF's JSON files of FEMNIST or Sentiment140, one owner for each user"
    suits: ClassVar[str | None] = "lstm"
    name: Literal["leaf"] = "leaf"
    vocabulary: Annotated[int, Field(ge=1, le=1_000_000), Expect("a whole number from 1 to 1000000")] = 10_000
    embeddings: FilePath | None = None

    def number(self, records: Records) -> int:
        """62 of FEMNIST; two sentiments."""
        return 62 if len(records.x.shape) == 4 else 2

    def read(self, columns: Columns, what: str) -> Records:
        """(n, 1, 28, 28) images, or (n, 25) numbers of words, as LEAF has it; 0 fills up what is shorter."""
        x, y = columns["x"], columns["y"]
        if not any(isinstance(each, str) for each in (x[0] if isinstance(x[0], list) else x)):
            return _characters(x, y, what)
        texts = [each[_TWEET] if isinstance(each, list) and len(each) > _TWEET else each for each in x]
        if not all(isinstance(each, str) for each in texts):
            raise UserError(f"{what}: expected in each x a tweet, or a row whose fifth value is the tweet", key=_KEY)
        known = _listed(self.embeddings, self.vocabulary, "data.embeddings")
        numbers = np.zeros((len(texts), _WORDS), dtype=np.float32)
        for row, text in enumerate(texts):
            for place, word in enumerate(_TOKENS.findall(text.lower())[:_WORDS]):
                numbers[row, place] = _hashed(word, self.vocabulary) if known is None else known.get(word, 0)
        labels = _labels(y, what)
        return as_records(numbers, np.where(labels == 4, 1, labels), what, _KEY)


def _characters(x: Any, y: Any, what: str) -> Records:
    """(n, 1, 28, 28) from 0 to 1, of FEMNIST."""
    try:
        pixels = np.asarray(x, dtype=np.float32).reshape(-1, 1, _SIDE, _SIDE)
    except (ValueError, TypeError):
        raise UserError(f"{what}: expected {_SIDE * _SIDE} numbers in each x", key=_KEY) from None
    return as_records(pixels, _labels(y, what), what, _KEY)


def _labels(y: Any, what: str) -> NDArray[np.int64]:
    try:
        return np.array([int(each) for each in y], dtype=np.int64)
    except (ValueError, TypeError):
        raise UserError(f"{what}: expected whole numbers in y", key=_KEY) from None


# LEAF's characters, and those of TensorFlow Federated's tutorial on generating text.
_LEAF = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_TFF = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
_LENGTH = 80  # of a sequence of characters (McMahan et al. 2017)


class Shakespeare(OfUsers):
    """The lines of Shakespeare's roles, of which the next character is predicted."""

    description: ClassVar[str] = "next characters by role: LEAF's JSON (80 classes) or TFF's HDF5 (sequences, 90)"
    suits: ClassVar[str | None] = "char-lstm"
    name: Literal["shakespeare"] = "shakespeare"

    def number(self, records: Records) -> int:
        """Characters; of sequences also padding, others, the start and the end of a line."""
        return len(_LEAF) if records.y.ndim == 1 else len(_TFF) + 4

    def read(self, columns: Columns, what: str) -> Records:
        """(n, 80) characters, and the next one of each row or of each position."""
        if "x" not in columns:
            numbers = {each: number for number, each in enumerate(_TFF, 1)}
            start, end, other = (len(_TFF) + more for more in (1, 2, 3))
            rows = [[start, *(numbers.get(each, other) for each in _text(line)), end] for line in columns["snippets"]]
            cut = [row[at : at + _LENGTH + 1] for row in rows for at in range(0, len(row), _LENGTH + 1)]
            return _sequences(cut, _LENGTH)
        numbers = {each: number for number, each in enumerate(_LEAF)}
        last = len(_LEAF) - 1  # LEAF counts a character that it does not know as its last one
        x, y = columns["x"], columns["y"]
        if not all(isinstance(each, str) and len(each) == _LENGTH for each in x) or not all(
            isinstance(each, str) and len(each) == 1 for each in y
        ):
            raise UserError(f"{what}: expected {_LENGTH} characters in each x, and one in each y", key=_KEY)
        rows = [[numbers.get(each, last) for each in text] for text in x]
        found = np.array(rows, np.int64).reshape(-1, _LENGTH)
        return Records(found, np.array([numbers.get(each, last) for each in y], np.int64))


class StackOverflow(OfUsers):
    """Questions and answers by user, of which the next word is predicted.

    Attributes:
        words: how many numbers words have: of the first ones of `vocabulary`, or by a hash.
        vocabulary: a public list of words, as TensorFlow Federated's stackoverflow.word_count; null: a word's number is
            a hash of it.
        length: words of a sentence that count.
    """

    description: ClassVar[str] = "next words by user: TFF's HDF5, or JSON in LEAF's form with sentences for x"
    suits: ClassVar[str | None] = "text-transformer"
    name: Literal["stackoverflow"] = "stackoverflow"
    words: Annotated[int, Field(ge=1, le=65_000), Expect("a whole number from 1 to 65000")] = 10_000
    vocabulary: FilePath | None = None
    length: Count = 20

    def number(self, records: Records) -> int:
        """Padding, words, others, the start and the end of a sentence."""
        return self.words + 4

    def read(self, columns: Columns, what: str) -> Records:
        """(n, length) words, and the next one of each position."""
        known = _listed(self.vocabulary, self.words, "data.vocabulary")
        start, end, other = self.words + 2, self.words + 3, self.words + 1

        def number(word: str) -> int:
            return _hashed(word, self.words) if known is None else known.get(word, other)

        lines = columns["x"] if "x" in columns else columns["tokens"]
        texts = [" ".join(map(str, each)) if isinstance(each, list) else _text(each) for each in lines]
        rows = [[start, *map(number, text.split()[: self.length]), end][: self.length + 1] for text in texts]
        return _sequences(rows, self.length)


@lru_cache(maxsize=100_000)
def _hashed(word: str, words: int) -> int:
    """A number from 1 to `words` by a hash of the word, so that some share one (Weinberger et al. 2009)."""
    return 1 + int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") % words


@lru_cache
def _listed(path: str | None, most: int, key: str) -> Mapping[str, int] | None:
    """The first words of a public list, numbered from 1; None without a list.

    Raises:
        UserError: it cannot be read, or has no words.
    """
    if path is None:
        return None
    file = Path(path).expanduser()
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


def _text(line: Any) -> str:
    return line.decode("utf-8", "replace") if isinstance(line, bytes) else str(line)


def _sequences(rows: Sequence[Sequence[int]], length: int) -> Records:
    """Numbers (n, length), filled up by 0, and the next number at each position, which is none at the end."""
    filled = np.zeros((len(rows), length + 1), np.int64)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    nexts = filled[:, 1:]
    return Records(np.ascontiguousarray(filled[:, :-1]), np.where(nexts > 0, nexts, PADDING))
