"""Devices that walk to random points, at the nearest edge server in each interval: a trace for `mobility:`.

    python -m experiments.parts.waypoint NET.yaml PLACES.csv --intervals 100 --out walk.csv
    mobility: {trace: walk.csv}        # in a topology file of the same folder and the same nodes

PLACES.csv has the columns `name`, `x_m` and `y_m`, a line for each edge server of devices. Random waypoint (Johnson and
Maltz 1996): devices on a plane walk to a random point, pause, walk to the next one. They are associated with the
nearest edge server, as their position is at the beginning of an interval. The walk begins in its stationary
distribution (Navidi and Camp 2004), so that no interval is unlike the others: while they move, devices are where legs
pass, which is nearer the middle, and slow legs last longer. It follows from the seed alone, so that it is public.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.parts.association import places_of
from experiments.programs import require, told
from h2fdp.errors import UserError
from h2fdp.network import Subnet, read
from h2fdp.records.atomic import output_file, write_text
from h2fdp.streams import Streams

HEADS = ("interval", "device", "edge", "distance_m")
Point = Sequence[float]


@dataclass(frozen=True)
class Waypoint:
    """A walk to random points of a rectangle.

    Attributes:
        edges: name -> [x, y] of each edge server, in metres.
        area_m: width and height of the rectangle, one of which may be 0: a road.
        speed_m_s: the lowest and the highest speed of a leg.
        pause_s: pause at each point.
        interval_s: seconds of the walk from one interval to the next.
        resolution_m: distances are rounded up to multiples of it. A device has a row for each edge server and distance,
            so a fine one makes networks large.

    Raises:
        UserError: a number out of its range.
    """

    edges: Mapping[str, Point]
    area_m: Point = (1000.0, 1000.0)
    speed_m_s: Point = (1.0, 15.0)
    pause_s: float = 0.0
    interval_s: float = 60.0
    resolution_m: float = 10.0

    def __post_init__(self) -> None:
        wide, (low, high) = (*self.area_m,), self.speed_m_s
        require(all(0 <= each <= 1e7 for each in wide) and any(wide), "area_m", wide, "0 to 1e7 metres, one above 0")
        require(0 < low <= high < math.inf, "speed_m_s", (low, high), "[lowest, highest] above 0")
        require(0 <= self.pause_s < math.inf, "pause_s", self.pause_s, "a number of at least 0")
        require(0 < self.interval_s < math.inf, "interval_s", self.interval_s, "a number above 0")
        require(0 < self.resolution_m < math.inf, "resolution_m", self.resolution_m, "a number above 0")

    def lines(self, subnets: Sequence[Subnet], intervals: int, streams: Streams) -> list[tuple[int, str, str, float]]:
        """Those of a trace: interval from 1, device, edge server, distance; where anything of it changes.

        Raises:
            UserError: other edge servers than the network's.
        """
        names = [subnet.name for subnet in subnets]
        if sorted(self.edges) != sorted(names):
            text = f"expected a point for each of {', '.join(names)}; found {', '.join(self.edges) or 'none'}"
            raise UserError(text, key="places")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path, metavar="NET.yaml", help="a topology file")
    parser.add_argument("places", type=Path, metavar="PLACES.csv", help="columns name, x_m, y_m")
    parser.add_argument("--intervals", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.csv")
    parser.add_argument("--area", type=float, nargs=2, default=Waypoint.area_m, metavar="M", help="width, height")
    parser.add_argument("--speed", type=float, nargs=2, default=Waypoint.speed_m_s, metavar="M/S", help="from, to")
    parser.add_argument("--pause", type=float, default=Waypoint.pause_s, metavar="S")
    parser.add_argument("--seconds", type=float, default=Waypoint.interval_s, help="of the walk in an interval")
    parser.add_argument("--resolution", type=float, default=Waypoint.resolution_m, metavar="M")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    require(asked.intervals >= 1, "--intervals", asked.intervals, "a number of at least 1")
    numbers = asked.area, asked.speed, asked.pause, asked.seconds, asked.resolution
    walk, subnets = Waypoint(places_of(asked.places), *numbers), read(asked.network, asked.seed).subnets
    table = pd.DataFrame(walk.lines(subnets, asked.intervals, Streams(asked.seed)), columns=list(HEADS))
    with output_file(asked.out, "--out", (".csv",)):
        write_text(asked.out, table.sort_values("interval", kind="stable").to_csv(index=False))
    print(asked.out)


if __name__ == "__main__":
    told(main)
