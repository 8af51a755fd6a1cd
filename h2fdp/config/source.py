"""A user's file, read within bounds of size."""

from __future__ import annotations

from pathlib import Path

from h2fdp.config.document import Document
from h2fdp.config.parsing import parse
from h2fdp.errors import UserError

LARGEST_FILE_BYTES = 5_000_000


def read_text(path: Path) -> str:
    """The text of a user's file, or a UserError that says why it cannot be one."""
    name = str(path)
    try:
        if path.is_dir():
            raise UserError("expected a file, found a directory", name)
        if not path.exists():
            raise UserError("no such file", name)
        if not path.is_file():
            raise UserError("expected a regular file", name)
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UserError(f"larger than {LARGEST_FILE_BYTES // 1_000_000} MB; expected a smaller file", name)
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not a text file (expected YAML in UTF-8)", name) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", name) from None
    if not text.strip():
        raise UserError("the file is empty", name)
    return text


def read_document(path: str | Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        UserError: with every problem of the file's form: missing, too large, not YAML, duplicate keys, tags.
    """
    path = Path(path)
    document = Document(str(path), parse(read_text(path), str(path)), path.parent)
    if not isinstance(document.root.content, dict):
        raise UserError("expected keys and values (`key: value`) at the top level", document.root.where)
    return document
