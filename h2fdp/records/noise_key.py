"""The secret key of a run's noise: 128 bits from the operating system, kept until the run is complete.

Who can draw the noise again can subtract it, and amplification by sampling needs secret batches. Both are
therefore drawn under a key that is in no file that describes the run: not in its configuration, summary or report. It
lies next to the checkpoints, so that a run that was killed repeats its intervals to the bit, and is deleted when there
is nothing left to repeat. The seed reveals only what is public by definition: the network, the partition,
the first model, faults, and who takes part.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.checkpoint import make_folder
from h2fdp.records.directory import RunDirectory, read_summary

_BYTES = 16
BY_SEED = "noise key: drawn by the seed (privacy.noise_key: seed); an attacker who guesses the seed can remove it"


def drawn() -> bytes:
    """A new key."""
    return secrets.token_bytes(_BYTES)


def store(directory: RunDirectory, key: bytes) -> None:
    """Keep a key; it is on disk, readable by its owner alone, when this returns."""
    make_folder(directory.checkpoints)
    write_text(directory.noise_key, key.hex() + "\n", private=True)


def stored(directory: RunDirectory) -> bytes | None:
    """The key that is kept; None where there is none, or what is there is none."""
    try:
        key = bytes.fromhex(directory.noise_key.read_text())
    except (OSError, ValueError):
        return None
    return key if len(key) == _BYTES else None


def of_another_run(key: bytes | None, directory: RunDirectory) -> str:
    """A sentence where the key is not the one that the run's summary names; empty where it is, or either is lost."""
    try:
        named = (read_summary(directory.path) or {}).get("noise_key_id")
    except UserError:  # a damaged summary
        return ""
    return "its noise key is that of another run" if key and named and named != id_of(key) else ""


def forget(directory: RunDirectory) -> None:
    """Delete the key of a run that is complete."""
    directory.noise_key.unlink(missing_ok=True)


def id_of(key: bytes) -> str:
    """An identifier of the key that does not reveal it: no search finds 128 random bits."""
    return blake2b(key, digest_size=8, person=b"h2fdp noise key").hexdigest()
