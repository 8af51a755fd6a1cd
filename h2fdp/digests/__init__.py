"""Digests of code: equal where the same is computed, whatever comments, docstrings and file names say."""

from h2fdp.digests.program import Program, hash_of
from h2fdp.digests.statements import imported_modules

__all__ = ["Program", "hash_of", "imported_modules"]
