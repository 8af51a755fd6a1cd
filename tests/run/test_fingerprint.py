"""The digest of our own code: of what runs are made by alone, and kept from one process to the next."""

import shutil

import pytest

import h2fdp.run.fingerprint as fingerprint
from h2fdp.records import PACKAGE
from h2fdp.run.fingerprint import code_by_file, package_digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of some of our own files, and an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("wording.py", "errors.py", "__init__.py", "records/log.py", "records/atomic.py", "cli/main.py"):
        (tmp_path / "package" / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(PACKAGE / name, tmp_path / "package" / name)
    yield tmp_path / "package"
    code_by_file.cache_clear()


@pytest.fixture
def parsed(package, monkeypatch):
    """Another process asks for the digests -> them, and how many files it parsed."""
    texts = []
    original = fingerprint.digest_of_code
    monkeypatch.setattr(fingerprint, "digest_of_code", lambda text: texts.append(text) or original(text))

    def ask():
        texts.clear()
        code_by_file.cache_clear()
        return code_by_file(package), len(texts)

    return ask


def digest_of(package, name, text):
    """The package's digest after an addition to a file."""
    with (package / name).open("a") as file:
        file.write(text)
    code_by_file.cache_clear()
    return package_digest(package)


@pytest.mark.parametrize(
    "change", [("cli/main.py", "MORE = 1\n"), ("__init__.py", "MORE = 1\n"), ("wording.py", "# Nothing.\n")]
)
def test_of_the_package_only_what_makes_a_run_counts(package, change):
    before = package_digest(package)
    assert digest_of(package, *change) == before
    assert digest_of(package, "wording.py", "MORE = 1\n") != before


def test_files_are_parsed_once_until_one_changes(package, parsed):
    made, files = parsed()
    assert files == len(made) == 4
    assert parsed() == (made, 0)
    (package / "wording.py").rename(package / "columns.py")
    assert parsed()[1] == 4


def test_another_python_parses_them_again(parsed, monkeypatch):
    parsed()
    monkeypatch.setattr("sys.version", "another")
    assert parsed()[1] == 4


@pytest.mark.parametrize("spoilt", [b"", b"{", b"[]", b"null", b'{"key": 1}', b"\xff\xfe"])
def test_what_is_spoilt_is_made_again(parsed, tmp_path, spoilt):
    made, _ = parsed()
    (file,) = (tmp_path / "cache" / "h2fdp").iterdir()
    for text in (spoilt, file.read_bytes()[:99]):
        file.write_bytes(text)
        assert parsed() == (made, 4)
        assert parsed() == (made, 0), "and kept again"


def test_without_a_place_to_write_to_nothing_is_kept(parsed, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert parsed() == parsed()
    assert parsed()[1] == 4
