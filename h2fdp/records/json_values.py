"""Values as JSON has them: NaN and the infinities, which it has not, become null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def json_values(values: Any) -> Any:
    """The same values with null for every number that is not finite.

    >>> json_values({"loss": float("nan"), "noise": [1.0, float("inf")]})
    {'loss': None, 'noise': [1.0, None]}
    """
    if isinstance(values, Mapping):
        return {key: json_values(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [json_values(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
