"""Files that a machine spoilt: whatever is read, the only exception is a user's error, which names the file.

Mutations of the shipped experiments and topologies go through the layer that reads them: parsing, checking, drawing
the network. H2FDP_MUTATIONS=N tries N of each instead of some hundreds. A mutation is made from its number alone, so
that the number in a failure is enough to make it again.
"""

import os
import random
from pathlib import Path

import pytest

from h2fdp.errors import UserError
from h2fdp.experiment.file import read_experiment
from h2fdp.network import read as read_topology
from tests.networks import stored

ROOT = Path(__file__).parents[2]
LARGE = ("million.yaml", "metro.yaml")
EXPERIMENTS = [
    path
    for path in sorted((ROOT / "experiments").glob("**/*.yaml"))
    if "method:" in path.read_text() and path.name not in LARGE
]
TOPOLOGIES = [path for path in sorted((ROOT / "topologies").glob("*.yaml")) if path.name not in LARGE]
TRIED = int(os.environ.get("H2FDP_MUTATIONS", "200"))
WORDS = ["null", "-1", "0", "1e400", ".nan", ".inf", "true", "''", "[]", "{}", "[1, {a: b}]", "1e-320", "9" * 30]
WORDS += [
    "'module:os.path'",
    "*a",
    "&a 1",
    "!!python/object:os.system x",
    "\u202e",
    "2024-01-01",
    "0x1F",
    "'\\0'",
    "~",
    "- 3",
]


def cut(draw, text):
    return text[: draw.randrange(len(text))]


def flipped(draw, text):
    at = draw.randrange(len(text))
    return text[:at] + chr(ord(text[at]) ^ 1 << draw.randrange(7)) + text[at + 1 :]


def of_lines(change):
    def changed(draw, text):
        lines = text.splitlines(keepends=True)
        change(draw, lines)
        return "".join(lines)

    return changed


@of_lines
def doubled(draw, lines):
    lines.insert(draw.randrange(len(lines)), draw.choice(lines))


@of_lines
def swapped(draw, lines):
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


@of_lines
def indented(draw, lines):
    at = draw.randrange(len(lines))
    lines[at] = draw.choice([" ", "  ", "\t", "- "]) + lines[at]


@of_lines
def another_value(draw, lines):
    at = draw.choice([at for at, line in enumerate(lines) if ":" in line])
    key, colon, _ = lines[at].partition(":")
    lines[at] = f"{key}{colon} {draw.choice(WORDS)}\n"


@of_lines
def another_key(draw, lines):
    at = draw.choice([at for at, line in enumerate(lines) if ":" in line])
    key, colon, value = lines[at].partition(":")
    lines[at] = f"{key[: len(key) - len(key.lstrip())]}{draw.choice(WORDS)}{colon}{value}"


def another_scalar(draw, text):
    """A number or a word anywhere, in flow mappings too."""
    words = text.split(" ")
    at = draw.randrange(len(words))
    words[at] = draw.choice(WORDS) + ("," if words[at].endswith(",") else "")
    return " ".join(words)


MUTATIONS = [
    cut,
    flipped,
    flipped,
    doubled,
    swapped,
    indented,
    another_value,
    another_value,
    another_key,
    another_scalar,
]


def mutated(number, files):
    """The file and its text after one to three mutations, by the number alone."""
    draw = random.Random(number)
    path = files[number % len(files)]
    text = path.read_text()
    for _ in range(draw.choice((1, 1, 2, 3))):
        text = draw.choice(MUTATIONS)(draw, text) if ":" in text and len(text) > 1 else text
    return path, text


def tried(read, name, number):
    """What reading it says: nothing, or the user's error."""
    try:
        read(name)
    except UserError as error:
        return str(error)
    except BaseException as error:  # whatever else: the number makes the file again
        pytest.fail(f"mutation {number} of {name.name}: {type(error).__name__}: {error}")
    return None


@pytest.mark.parametrize(
    ("files", "read"),
    [(EXPERIMENTS, read_experiment), (TOPOLOGIES, lambda path: read_topology(path, seed=1))],
    ids=["experiments", "topologies"],
)
def test_a_spoilt_file_is_read_or_answered_with_its_name(files, read, tmp_path):
    folder = tmp_path / "experiments"
    folder.mkdir()
    (tmp_path / "topologies").symlink_to(ROOT / "topologies")
    said = []
    for number in range(TRIED):
        path, text = mutated(number, files)
        spoilt = folder / path.name
        spoilt.write_text(text, encoding="utf-8", errors="surrogatepass")
        answer = tried(read, spoilt, number)
        if answer is not None:
            said.append(answer)
            unnamed = [line for line in answer.splitlines() if not line.startswith((str(tmp_path), "--set"))]
            assert unnamed == [], f"mutation {number} of {path.name}"
    assert len(said) > TRIED / 4  # they do spoil something


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
def test_a_spoilt_graph_is_read_or_answered_with_its_name(suffix, tmp_path):
    whole = tmp_path / f"whole{suffix}"
    stored(read_topology(ROOT / "topologies" / "clinics.yaml", seed=1), whole)
    for number in range(TRIED // 4):
        draw = random.Random(number)
        spoilt = tmp_path / f"spoilt{suffix}"
        spoilt.write_text(draw.choice([cut, flipped, doubled, swapped, another_scalar])(draw, whole.read_text()))
        answer = tried(lambda path: read_topology(path, seed=1), spoilt, number)
        assert answer is None or str(spoilt) in answer, f"mutation {number}"
