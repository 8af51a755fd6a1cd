"""What to do where Ray is wanted and cannot be had."""

from __future__ import annotations

from importlib.util import find_spec

from h2fdp.errors import UserError

IN_ONE_PROCESS = "compute in one process: --set runtime.backend=inline"


def require_ray() -> None:
    """Refuse what needs Ray where it is not installed.

    Raises:
        UserError: it is not.
    """
    if find_spec("ray") is None:
        raise UserError(f"Ray is not installed; run pip install ray, or {IN_ONE_PROCESS}", key="runtime.backend")
