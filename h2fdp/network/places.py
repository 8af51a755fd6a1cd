"""CSV files: the places of edge servers and of users."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from h2fdp.config.parsing import Node, plain_scalar, read_csv
from h2fdp.errors import Problem, UserError, hint
from h2fdp.network.devices import NEAREST_M, Floats
from h2fdp.network.network import CLOUD, COLUMNS, MOST_TIERS
from h2fdp.network.templates import DRAWN_DECIMALS, MOST_DEVICES
from h2fdp.wording import note


def value_of(key: str, value: Any) -> Any:
    """The value of another program under one of our keys: numbers may be texts, and trust may be 0 or 1.

    >>> value_of("trust", "1"), value_of("rate_mbps", "1e3"), value_of("trust", "secure-sum")
    (True, 1000.0, 'secure-sum')
    """
    value = plain_scalar(value.strip()) if isinstance(value, str) else value
    return bool(value) if key in _TRUST and value in (0, 1) else value


class Places(NamedTuple):
    """Points of a file.

    Attributes:
        positions: (n, 2) metres in a plane, or degrees of latitude and longitude; NaN for a parent without a place.
        names: of the points, where the file has any.
        more: the other columns that are used, each with its n cells and their lines.
        note: which columns are not used, in words; empty for none.
    """

    path: Path
    positions: Floats
    on_earth: bool
    names: list[str] | None
    more: dict[str, list[Node]]
    note: str

    def stated(self, row: int, keys: Sequence[str]) -> dict[str, Node]:
        """The values of a line under these keys; empty cells say nothing."""
        return {key: self.more[key][row] for key in keys if key in self.more and self.more[key][row].content != ""}


_AXES = {"lat": "lat", "latitude": "lat", "lon": "lon", "lng": "lon", "long": "lon", "longitude": "lon",
         "x": "x", "x_m": "x", "y": "y", "y_m": "y"}  # fmt: skip
_NAMED = ("name", "id", "site_id")
_TRUST, _LINK, _PARENT = ("trust", "trusted"), ("rate_mbps", "power_dbm"), "parent"
OF_SERVERS = (*_TRUST, *_LINK, _PARENT)
OF_USERS = tuple(name for name in COLUMNS if name != "distance_m")


def read_places(path: Path, used: Sequence[str]) -> Places:
    """A CSV file with the columns x and y (metres), or lat and lon (degrees), and perhaps name, id or site_id.

    Args:
        path: the file.
        used: names of other columns that say something.

    Raises:
        UserError: with every line that has no place.
    """
    header, rows = read_csv(path, MOST_DEVICES, note)
    columns = [each.lower() for each in header]
    axes = {_AXES[each]: at for at, each in enumerate(columns) if each in _AXES}
    on_earth = {"lat", "lon"} <= axes.keys()
    if not (on_earth or {"x", "y"} <= axes.keys()):
        found = ", ".join(header) or "nothing"
        raise UserError(f"expected the columns x and y, or lat and lon; found {found}", f"{path}:1")
    if not rows:
        raise UserError("expected at least one line below the columns, found none", f"{path}:1")
    if {"lat", "lon", "x", "y"} <= axes.keys():
        raise UserError("expected either the columns x and y or lat and lon, found both", f"{path}:1")
    read = ("lat", "lon") if on_earth else ("x", "y")
    named = next((columns.index(each) for each in _NAMED if each in columns), None)
    texts = [[*cells, *[""] * len(columns)][: len(columns)] for _, cells in rows]
    above = {cells[columns.index(_PARENT)] for cells in texts} if _PARENT in used and _PARENT in columns else set()
    positions, problems = np.zeros((len(rows), 2)), []
    names: dict[str, int] = {}  # the line where each is first
    for place, ((line, _), cells) in enumerate(zip(rows, texts, strict=True)):
        for axis, most in zip(read, (90.0, 180.0), strict=True):
            text = cells[axes[axis]]
            if not text and named is not None and cells[named] in above:
                positions[place] = np.nan
                continue
            try:
                positions[place, read.index(axis)] = value = float(text)
                good = abs(value) <= most if on_earth else np.isfinite(value)
            except ValueError:
                good = False
            if not good:
                expected = f"a number from -{most:g} to {most:g}" if on_earth else "a finite number"
                problems.append(Problem(f'expected {expected}, found "{text}"', f"{path}:{line}", axis))
        if named is not None:
            name = cells[named]
            if not name or names.setdefault(name, line) != line:
                found = f"{name}, as in line {names[name]}" if name else "none"
                problems.append(Problem(f"expected a name of its own, found {found}", f"{path}:{line}", header[named]))
    if problems:
        raise UserError(problems[:50])
    more = {
        key: [Node(value_of(key, cells[at]) if cells[at] and key != _PARENT else cells[at], f"{path}:{line}")
              for (line, _), cells in zip(rows, texts, strict=True)]
        for at, key in enumerate(columns) if key in used
    }  # fmt: skip
    taken = {*axes.values(), named, *(at for at, key in enumerate(columns) if key in used)}
    left = [head for at, head in enumerate(header) if at not in taken]
    said = f"{path.name}: not used: {', '.join(left)} (columns that are: {', '.join(used)})" if left else ""
    return Places(path, positions, on_earth, list(names) if named is not None else None, more, said)


EARTH_M = 6_371_008.8  # mean radius (IUGG)


def from_places(servers: Places, users: Places) -> tuple[list[dict[str, Any]], str]:
    """The `edges:` of a topology file, each user under the nearest edge server, and what is to be said about them.

    A server that is the parent of others is an edge server above these. Where no parent has a line, they are new edge
    servers, which are untrusted: no line states their trust. Edge servers without users are left out. Distances are in
    metres, great circles (haversine) between latitudes and longitudes, and at least 1 m.

    Raises:
        UserError: places of two kinds, or parents in a circle.
    """
    from sklearn.neighbors import BallTree  # 1 s, for those who place networks

    if servers.on_earth != users.on_earth:
        found, expected = ("lat and lon" if each.on_earth else "x and y" for each in (users, servers))
        raise UserError(f"expected the columns {expected}, as edge servers have; found {found}", f"{users.path}:1")
    names = servers.names or [f"edge-{number + 1}" for number in range(len(servers.positions))]
    parents, below = _parents(servers, names), defaultdict(list)
    lowest = np.array([row for row, name in enumerate(names) if name not in parents.values()], dtype=int)
    if not lowest.size:
        raise UserError("expected an edge server that is no other one's parent, found none", f"{servers.path}:1")
    at, of = (np.radians(each) if users.on_earth else each for each in (servers.positions[lowest], users.positions))
    far, nearest = BallTree(at, metric="haversine" if users.on_earth else "euclidean").query(of)
    metres = np.round(far[:, 0] * (EARTH_M if users.on_earth else 1.0), DRAWN_DECIMALS).clip(min=NEAREST_M)
    order, ends = np.argsort(nearest[:, 0], kind="stable"), np.cumsum(np.bincount(nearest[:, 0], minlength=len(at)))
    devices = {names[row]: own for row, own in zip(lowest, np.split(order, ends[:-1]), strict=True) if own.size}
    rows = {name: row for row, name in enumerate(names)}
    new = dict.fromkeys(each for each in parents.values() if each not in rows)
    for name in (*rows, *new):
        below[parents.get(name)].append(name)

    def tier(parent: str | None) -> list[dict[str, Any]]:
        made = []
        for name in below[parent]:
            values: dict[str, Any] = {"name": name} | ({"trust": "untrusted"} if name in new else {})
            if name in rows:
                values |= servers.stated(rows[name], _TRUST)
                values |= {"link": link} if (link := servers.stated(rows[name], _LINK)) else {}
            if inner := tier(name):
                made.append(values | {"edges": inner})
            elif name in devices:
                made.append(values | {"devices": _devices(users, devices[name], metres)})
        return made

    made, empty = tier(None), len(at) - len(devices)
    words = f"new edge servers above others, untrusted as no line states their trust: {', '.join(new)}" if new else ""
    notes = [words, servers.note, users.note, f"{empty:,} edge servers without users are left out" if empty else ""]
    return made, "\n".join(filter(None, notes))


def _parents(servers: Places, names: Sequence[str]) -> dict[str, str]:
    """The name of the edge server above each that is not directly below the cloud.

    Raises:
        UserError: a parent without a line where others have one; too many tiers, or a circle.
    """
    cells = servers.more.get(_PARENT, [])
    parents = {name: cell.content for name, cell in zip(names, cells, strict=False) if cell.content not in ("", CLOUD)}
    above = set(parents.values())
    if 0 < len(lost := above.difference(names)) < len(above):
        text = "expected an edge server with a line of its own, as other parents have; found"
        wrong = [cell for cell in cells if cell.content in lost][:50]
        raise UserError(Problem(f'{text} "{x.content}"{hint(x.content, names)}', x.where, _PARENT) for x in wrong)
    for name, cell in zip(names, cells, strict=False):
        at, tiers = name, 1
        while at in parents and tiers <= MOST_TIERS:
            at, tiers = parents[at], tiers + 1
        if tiers > MOST_TIERS:
            text = f'expected at most {MOST_TIERS} tiers up to the cloud, found more, or a circle, above "{name}"'
            raise UserError(text, cell.where, _PARENT)
    return parents


def _devices(users: Places, own: np.ndarray, metres: Floats) -> Any:
    if users.names is None:
        more = {key: [cells[user] for user in own.tolist()] for key, cells in users.more.items()}
        return {"count": len(own), "distance_m": metres[own].tolist(), **more}
    return [
        {"name": users.names[user], "distance_m": float(metres[user]), **users.stated(user, OF_USERS)}
        for user in own.tolist()
    ]
