"""Files that cannot be a user's configuration are refused with the reason."""

import os

import pytest

from h2fdp.config import read_document
from h2fdp.errors import UserError


def refusal(path):
    with pytest.raises(UserError) as caught:
        read_document(path)
    return str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    assert "expected a regular file" in refusal(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", ["", "  \n\n", "# only a comment\n", "---\n"])
def test_an_empty_file(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    assert "empty" in refusal(tmp_path / "a.yaml") or "expected keys and values" in refusal(tmp_path / "a.yaml")


@pytest.mark.parametrize("content", [bytes(range(256)), b"\x00" * 1000, b"\x89PNG\r\n\x1a\n\x00\xff", b"\xff\xfea\x00"])
def test_a_binary_file(tmp_path, content):
    (tmp_path / "a.yaml").write_bytes(content)
    assert len(refusal(tmp_path / "a.yaml").splitlines()) == 1


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_document(tmp_path / "a.yaml").values() == {"a": 1, "b": 2}
