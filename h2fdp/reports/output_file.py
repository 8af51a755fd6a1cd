"""A file that a user asked for with `--out`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from h2fdp.errors import UserError

OUT = "--out"


def check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse what cannot be a file of one of these forms.

    Raises:
        UserError: a folder, or another suffix.
    """
    if path.is_dir():
        raise UserError(f"is a folder; expected a file, as {path / f'name{suffixes[0]}'}", str(path), OUT)
    if path.suffix not in suffixes:
        raise UserError(f"expected a file that ends in {', '.join(suffixes)}, found {path.name}", OUT)


@contextmanager
def output_file(path: Path) -> Iterator[None]:
    """Around what writes the file; missing folders are made.

    Raises:
        UserError: it cannot be written.
    """
    if path.is_dir():
        raise UserError("is a folder; expected a file in it", str(path), OUT)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(path), OUT) from None
