"""Models by name, or the user's own; their parameters as one vector.

`build` and `Flat` need torch, which takes a second or two to import, so they are loaded at their first use: a file can
be checked and the models listed without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2fdp.models.registry import CHOICES, MODELS, ModelSection, describe

if TYPE_CHECKING:
    from h2fdp.models.construct import build
    from h2fdp.models.flat import Flat

__all__ = ["CHOICES", "MODELS", "Flat", "ModelSection", "build", "describe"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from h2fdp.models.construct import build

        return build
    if name == "Flat":
        from h2fdp.models.flat import Flat

        return Flat
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
