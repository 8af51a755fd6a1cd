"""Models by name, or the user's own; their parameters as one vector.

`build` and `ParameterLayout` need torch, which takes a second or two to import, so they are loaded at their first use:
files can be checked and models listed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2fdp.models.registry import CHOICES, MODELS, ModelSection, describe

if TYPE_CHECKING:
    from h2fdp.models.construct import ParameterLayout, build

__all__ = ["CHOICES", "MODELS", "ModelSection", "ParameterLayout", "build", "describe"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from h2fdp.models.construct import build

        return build
    if name == "ParameterLayout":
        from h2fdp.models.construct import ParameterLayout

        return ParameterLayout
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
