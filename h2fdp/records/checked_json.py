"""JSON files that carry their own checksum: an object whose last value is a digest of the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.json_lines import json_values

_CHECKSUM = "checksum"
VERSION = "schema_version"
_WITH_CHECKSUMS = 2  # files of version 1 have none


def write_checked_json(path: Path, values: Mapping[str, Any], indent: int | None) -> None:
    """Replace a file by these values and their checksum."""
    plain = json_values(values)
    write_text(path, json.dumps(plain | {_CHECKSUM: _digest(json.loads(json.dumps(plain)))}, indent=indent) + "\n")


def read_checked_json(path: Path) -> dict[str, Any] | None:
    """The values of such a file; None where there is no file.

    Raises:
        UserError: it is damaged, or was changed after it was written.
    """
    try:
        values = json.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", str(path)) from None
    except json.JSONDecodeError as error:
        raise UserError(f"damaged: not valid JSON ({error.msg})", f"{path}:{error.lineno}") from None
    except (ValueError, RecursionError):
        raise UserError("damaged: not valid JSON in UTF-8", str(path)) from None
    if not isinstance(values, dict):
        raise UserError("damaged: expected an object", f"{path}:1")
    stated = values.pop(_CHECKSUM, None)
    if stated != _digest(values) and (stated is not None or values.get(VERSION) == _WITH_CHECKSUMS):
        text = "damaged: it was changed after it was written, for its checksum, the last value, is of other values"
        raise UserError(text, str(path))
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()
