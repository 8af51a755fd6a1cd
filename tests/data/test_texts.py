"""Columns of texts as numbers: by vectors of tokens of a package or hashes of words, and by no other record."""

import re
import sys
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError, resume
from h2fdp.data import texts
from h2fdp.data.federate import DATA_SETS
from h2fdp.data.from_python import from_python

NETWORK = Topology.regular(edges=1, devices=2, trust=1)
NOTES = ["No fever", "a cough, no fever", "", "no FEVER!", "fever; no cough", "9.50", "café", "cough"]


@pytest.fixture
def words_alone(monkeypatch):
    """As if `wordllama` were not installed."""
    monkeypatch.setattr(texts, "_tokens", lambda: None)


@pytest.fixture
def wordllama(tmp_path, monkeypatch):
    """A package of its name with four tokens: letters of a text, a to c, and all others."""
    for name in ("wordllama/tokenizers", "wordllama/weights", "safetensors", "wordllama-9.8.dist-info"):
        (tmp_path / "site" / name).mkdir(parents=True)
    site = tmp_path / "site"
    (site / "wordllama" / "__init__.py").write_text("raise ImportError('its code is not run')")
    (site / "wordllama-9.8.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: wordllama\nVersion: 9.8\n")
    (site / "tokenizers.py").write_text(
        "class Tokenizer:\n"
        "    def from_file(file):\n"
        "        assert file.endswith('wordllama/tokenizers/l2_supercat_tokenizer_config.json')\n"
        "        return Tokenizer()\n"
        "    def encode(self, text, add_special_tokens):\n"
        "        self.ids = ['abc'.find(each) for each in text]\n"
        "        return self\n"
    )
    (site / "safetensors" / "__init__.py").touch()
    (site / "safetensors" / "numpy.py").write_text(
        "import numpy as np\n"
        "def load_file(file):\n"
        "    assert str(file).endswith('wordllama/weights/l2_supercat_256.safetensors')\n"
        "    return {'embedding.weight': np.eye(4, 256, dtype=np.float16)}\n"
    )
    monkeypatch.syspath_prepend(site)
    for name in ("tokenizers", "safetensors", "safetensors.numpy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    clear = texts._tokens.cache_clear
    clear()
    yield
    clear()
    for name in ("tokenizers", "safetensors", "safetensors.numpy"):
        sys.modules.pop(name, None)


def table(tmp_path, rows, **stated):
    lines = "".join(f'{place},"{text}",{place % 2}\n' for place, text in enumerate(rows))
    (tmp_path / "notes.csv").write_text(f"n,note,label\n{lines}", encoding="utf-8")
    section = {"name": "table", "path": str(tmp_path / "notes.csv"), "text": ["note"], "ranges": {"n": [0, 8]}}
    return DATA_SETS.read(section | stated).load(None)


def by_hand(text):
    """Signed counts of words and pairs in 256 places, of length 1."""
    words, row = re.findall(r"\w+", text.lower()), np.zeros(256)
    for term in words + [f"{one} {two}" for one, two in pairwise(words)]:
        number = int.from_bytes(blake2b(term.encode(), digest_size=8).digest()) % 512
        row[number % 256] += 1 if number < 256 else -1
    return row / max(np.linalg.norm(row), 1e-9)


def test_without_the_package_texts_are_hashed_words_and_pairs_of_words(tmp_path, capsys, words_alone):
    pool = table(tmp_path, NOTES)
    rows = np.concatenate([pool.train.x, pool.test.x])
    rows = rows[rows[:, 0].argsort()]  # in the order of the file
    np.testing.assert_allclose(rows[:, 1:], [by_hand(text) for text in NOTES], atol=1e-12)
    assert (pool.columns.unbounded, pool.columns.names) == ((), ("n", *["note"] * 256))
    said = "data.text: hashes of words stand for texts; pip install 'h2fdp[text]' for vectors of tokens"
    assert pool.columns.notes == (said,)
    assert " ".join(capsys.readouterr().err.split()) == f"note: {said}"


def test_with_the_package_texts_are_averages_of_vectors_of_tokens(tmp_path, wordllama):
    pool = table(tmp_path, ["abca", "b", "", "zzz", "c a"])
    rows = np.concatenate([pool.train.x, pool.test.x])
    rows = rows[rows[:, 0].argsort()][:, 1:5]
    expected = np.array([[2, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 1, 1]])
    np.testing.assert_allclose(rows, expected / np.sqrt([[6], [1], [1], [1], [3]]), atol=1e-12)
    said = "data.text: vectors of tokens of wordllama 9.8 stand for texts; no account covers what these were trained on"
    assert pool.columns.notes[0].startswith(said)


def test_the_packages_own_averages_agree():
    """On a machine that has it."""
    wordllama = pytest.importorskip("wordllama")
    inference = pytest.importorskip("wordllama.inference")
    assert wordllama is not None
    texts._tokens.cache_clear()
    found = texts._tokens()
    own = inference.WordLlamaInference(found._vectors, found._tokenizer).embed([NOTES[1]], norm=True)
    np.testing.assert_allclose(texts.embedded([NOTES[1]], np.array([False])), own, atol=1e-5)


@pytest.mark.parametrize("text", ["", "7", "another text, of other words", "true"])
def test_a_text_changes_its_own_row_alone(tmp_path, words_alone, text):
    one, two = table(tmp_path, NOTES), table(tmp_path, [text, *NOTES[1:]])
    changed = (one.train.x != two.train.x).any(axis=1)
    assert changed.tolist() == [True] + [False] * (len(changed) - 1)
    assert one.test.x.tobytes() == two.test.x.tobytes()
    assert one.columns == two.columns


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"text": ["notes"]}, r"data.text\[0\]: .*there is no column notes; did you mean `note`"),
        ({"text": ["n"]}, r"data.text\[0\]: .*the column n has ranges or categories too; expected one of them"),
        ({"exclude": ["n", "note"], "text": ["note"]}, "no columns are left as inputs"),
    ],
)
def test_columns_of_text_that_are_stated_wrongly_are_refused(tmp_path, words_alone, stated, told):
    with pytest.raises(UserError, match=told):
        table(tmp_path, NOTES, **stated)


@pytest.mark.run
def test_every_account_names_the_source_and_another_source_is_other_data_for_a_resume(tmp_path, wordllama, monkeypatch):
    import pandas as pd

    frame = pd.DataFrame({"note": ["abc", "cab", "bb", "ac"] * 8, "label": [0, 1] * 16})

    def data():
        return from_python(frame, 0.25, text=["note"], partition="iid")

    settings = {"topology": NETWORK, "epsilon": 8, "intervals": 2, "model": "logistic"}

    def stop(row):
        raise KeyboardInterrupt

    for name in ("same", "other"):
        with pytest.raises(KeyboardInterrupt):
            Experiment(data=data(), **settings).run(tmp_path / name, on_interval=stop)
    result = resume(tmp_path / "same", data=data())
    assert any("vectors of tokens of wordllama 9.8" in each for each in result.summary["privacy"]["notes"])
    assert "afresh" not in (tmp_path / "same" / "log.jsonl").read_text()
    monkeypatch.setattr(texts, "_tokens", lambda: None)
    with pytest.raises(UserError, match="the run's data changed since it began"):
        resume(tmp_path / "other", data=data())
