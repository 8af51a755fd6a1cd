"""Random waypoint (Johnson and Maltz 1996): devices on a plane walk to a random point, pause, walk to the next one.

They are associated with the nearest edge server, as their position is at the beginning of an interval. The walk begins
in its stationary distribution (Navidi and Camp 2004), so that no interval is unlike the others: while they move,
devices are where legs pass, which is nearer the middle, and slow legs last longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from h2fdp.config.fields import Expect, NonNegative, Positive, Section, ascending
from h2fdp.errors import UserError
from h2fdp.network.network import Subnet
from h2fdp.streams import Streams

Metres = Annotated[float, Field(ge=0, le=1e7), Expect("a number from 0 to 1e7")]
Point = Annotated[list[Metres], Field(min_length=2, max_length=2), Expect("[x, y] in metres")]


class Waypoint(Section):
    """Devices that walk to random points of a rectangle, at the nearest edge server in each interval.

    Attributes:
        edges: name -> [x, y] of each edge server, in metres.
        area_m: width and height of the rectangle, one of which may be 0: a road.
        speed_m_s: the lowest and the highest speed of a leg.
        pause_s: at each point.
        interval_s: of the walk, from one interval to the next.
        resolution_m: distances are rounded up to multiples of it.
    """

    edges: dict[str, Point]
    area_m: Point = Field(default=[1000.0, 1000.0])
    speed_m_s: Annotated[
        list[Positive],
        Field(min_length=2, max_length=2),
        AfterValidator(ascending),
        Expect("[lowest, highest] in metres a second, above 0"),
    ] = Field(default=[1.0, 15.0])
    pause_s: NonNegative = 0.0
    interval_s: Positive = 60.0
    resolution_m: Positive = 10.0

    @model_validator(mode="after")
    def _of_some_size(self) -> Self:
        if not any(self.area_m):
            raise ValueError("expected an area_m of some width or height, found [0, 0]")
        return self

    def lines(self, subnets: Sequence[Subnet], intervals: int, streams: Streams) -> list[tuple[int, str, str, float]]:
        """Those of a trace: interval from 1, device, edge server, distance; where anything of it changes.

        Raises:
            UserError: other edge servers than the network's.
        """
        names = [subnet.name for subnet in subnets]
        if sorted(self.edges) != sorted(names):
            text = f"expected a point for each of {', '.join(names)}; found {', '.join(self.edges) or 'none'}"
            raise UserError(text, key="mobility.waypoint.edges")
        servers, rows = np.array([self.edges[name] for name in names]), []
        for number, device in enumerate(name for subnet in subnets for name in subnet.device_names()):
            way = self.way(intervals, streams.public.open("", "waypoint", number))
            distances = np.linalg.norm(way[:, None] - servers, axis=2)
            nearest = distances.argmin(axis=1)
            rounded = np.ceil(distances.min(axis=1) / self.resolution_m).clip(min=1) * self.resolution_m
            before = None
            for interval, place in enumerate(zip(nearest.tolist(), rounded.tolist(), strict=True), start=1):
                if place != before:
                    rows.append((interval, device, names[place[0]], place[1]))
                before = place
        return rows

    def way(self, intervals: int, stream: np.random.Generator) -> np.ndarray:
        """(intervals, 2) positions of a device, in metres."""
        area, (low, high) = np.array(self.area_m), self.speed_m_s
        slowness = math.log(high / low) / (high - low) if high > low else 1 / low  # seconds a metre, in the mean
        moving_s = mean_distance(*self.area_m) * slowness
        if stream.random() * (moving_s + self.pause_s) < self.pause_s:
            position = stream.random(2) * area
            knots = [(0.0, position), (stream.random() * self.pause_s, position)]
        else:
            start, end = stream.random((2, 2)) * area
            while stream.random() * math.hypot(*area) >= math.dist(start, end):  # of long legs there is more to see
                start, end = stream.random((2, 2)) * area
            position, speed = start + stream.random() * (end - start), low * (high / low) ** stream.random()
            arrives = math.dist(position, end) / speed
            knots = [(0.0, position), (arrives, end), (arrives + self.pause_s, end)]
        while knots[-1][0] < self.interval_s * (intervals - 1):
            now, here = knots[-1]
            target, speed = stream.random(2) * area, low + (high - low) * stream.random()
            arrives = now + math.dist(here, target) / speed
            knots += [(arrives, target), (arrives + self.pause_s, target)]
        times, points = np.array([at for at, _ in knots]), np.stack([point for _, point in knots])
        asked = self.interval_s * np.arange(intervals)
        return np.stack([np.interp(asked, times, points[:, axis]) for axis in (0, 1)], axis=1)


def mean_distance(width: float, height: float) -> float:
    """Between two uniform points of a rectangle (Ghosh 1951).

    >>> round(mean_distance(1, 1), 6), mean_distance(3, 0)
    (0.521405, 1.0)
    """
    a, b = max(width, height), min(width, height)
    if b < 1e-4 * a:  # where the terms below would cancel
        return a / 3
    d = math.hypot(a, b)
    logs = b**2 / a * math.log((a + d) / b) + a**2 / b * math.log((b + d) / a)
    return (a**3 / b**2 + b**3 / a**2 + d * (3 - a**2 / b**2 - b**2 / a**2) + 2.5 * logs) / 15
