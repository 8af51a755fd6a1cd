"""The digests of our own code, kept from one process to the next: making them takes more than a second.

What is kept lies under a hash of all that the digests are made of, the texts of the files and the version of Python
whose parser read them, so a change of either makes new ones. Whatever is wrong with what is kept, it is made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from h2fdp.data.images import user_cache
from h2fdp.digests import hash_of
from h2fdp.records.atomic import replacing

Digests = tuple[str, dict[str, str]]


def kept_digests(place: str, sources: Mapping[str, bytes], make: Callable[[], Digests]) -> Digests:
    """What `make` gives for these sources, from the user's cache folder where it is there.

    Args:
        place: of the sources; the last digests of each place are kept.
        sources: module -> its text.
    """
    key = _key(sources)
    try:
        file = user_cache() / f"code-{hash_of([place])}.json"
        kept: Any = json.loads(file.read_bytes())
        if kept["key"] == key and isinstance(kept["digest"], str) and set(kept["modules"]) <= set(map(_name, sources)):
            return kept["digest"], kept["modules"]
    except (OSError, RuntimeError, ValueError, LookupError, TypeError):  # nothing is kept, or nothing that can be read
        pass
    digest, modules = made = make()
    try:
        file = user_cache() / f"code-{hash_of([place])}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as out:
            out.write(json.dumps({"key": key, "digest": digest, "modules": modules}).encode())
    except (OSError, RuntimeError):  # no home, or nowhere to write: the next process makes them again
        pass
    return made


def _key(sources: Mapping[str, bytes]) -> str:
    digest = blake2b(sys.version.encode(), digest_size=32)
    for name, text in sorted(sources.items()):
        digest.update(f"|{len(name.encode())}|{len(text)}|{name}".encode() + text)
    return digest.hexdigest()


def _name(path: str) -> str:
    return path.removesuffix(".__init__")
