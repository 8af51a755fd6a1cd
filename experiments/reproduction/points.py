"""Points of a grid as claims and pictures name them, and ladders of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from h2fdp.config.fields import BY_SHAPE, Expect, Text

Point = Mapping[str, Any]


def _one_value_climbs(ladder: dict[str, Any]) -> dict[str, Any]:
    if sum(isinstance(value, list) for value in ladder.values()) != 1:
        raise ValueError("expected a list of points, or one point in which one key has a list of values")
    return ladder


_POINTS = Expect("a list of points, or one point in which one key has a list of values")
At = Annotated[dict[Text, Any], Field(min_length=1), Expect("keys that are swept, with values")]
Ladder = Annotated[
    Annotated[list[At], Field(min_length=1), _POINTS]
    | Annotated[dict[Text, Any], AfterValidator(_one_value_climbs), _POINTS],
    BY_SHAPE,
    _POINTS,
]


def points_of(ladder: Sequence[Point] | Point) -> list[dict[str, Any]]:
    """The points of a ladder, in its order.

    >>> points_of({"privacy.epsilon": 1, "topology.trust.probability": [0, 1]})
    [{'privacy.epsilon': 1, 'topology.trust.probability': 0}, {'privacy.epsilon': 1, 'topology.trust.probability': 1}]
    """
    if not isinstance(ladder, Mapping):
        return [dict(point) for point in ladder]
    climbing = next(key for key, value in ladder.items() if isinstance(value, list))
    return [{**ladder, climbing: value} for value in ladder[climbing]]


def is_at(values: Mapping[str, Any], point: Point) -> bool:
    """Whether a run's swept values are those of a point, which may leave keys out.

    >>> is_at({"seed": 1, "method": "hfl", "privacy.epsilon": 1}, {"method": "hfl", "privacy.epsilon": 1.0})
    True
    """
    return all(key in values and values[key] == value for key, value in point.items())
