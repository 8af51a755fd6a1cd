"""The releases that each observer holds about each device: how often it received which type of release.

An account is a vector of counts over a bounded number of types, so it is brought up to date by a release at a cost that
does not grow with what was released before, and equal devices are accounted once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from operator import attrgetter

import numpy as np

from h2fdp.errors import UserError
from h2fdp.network.devices import Membership
from h2fdp.privacy.accounting import (
    ACCOUNTANTS,
    ORDERS,
    Accountant,
    Bound,
    Composition,
    ReleaseType,
    Sampling,
    epsilon_from_rdp,
    rdp_of,
)
from h2fdp.privacy.places import OBSERVERS, SINGLE_EDGE, Observer, height_of, observers, observers_beside
from h2fdp.privacy.releases import Adjacency, AlikeReleases, Release, rows_in

MARGIN = 1 + 2e-5  # on a noise that is to meet a target by such an account, too
_HALF_A_TURN = 0.5  # from nothing to a gradient of length G, in units of 2 G
_DIGITS = 6  # of a noise multiplier, rounded down: an account is never below the exact one, and hardly above it

# Where uneven devices take turns, nearly every interval has noises of its own. Beyond so many exact types about a
# subnet, further ones share a coarser grid, so that an account's cost stays bounded however long a run is.
_MOST_EXACT, COARSE = 64, 1.005
_EVERYWHERE = ""  # in the place of an edge server, where devices move: no node has this name


_facts_of_type = attrgetter(
    "noise_std", "sensitivity", "steps", "sampling_rate", "sampling", "bound", "own_gradient", "adjacency", "law"
)


def release_type(release: Release) -> ReleaseType:
    """A release in units of its sensitivity; its noise multiplier is rounded down to six digits.

    >>> from h2fdp.privacy.releases import Release
    >>> row = Release(1, 5, "local", "a", "1-3", "cloud", 0.2, 1.0 / 3, 5, 0.02, "poisson")
    >>> release_type(row).noise_multiplier
    1.66666
    """
    return _type_of(*_facts_of_type(release))


@lru_cache(maxsize=1 << 14)  # most releases are alike but for their slot, devices and observer
def _type_of(
    noise_std: float,
    sensitivity: float,
    steps: int,
    sampling_rate: float,
    sampling: Sampling,
    bound: Bound,
    own_gradient: float,
    adjacency: Adjacency,
    law: str,
) -> ReleaseType:
    own, ratio = _rounded_up(own_gradient), _rounded_down(noise_std / sensitivity)
    if steps == 1 and own < 1:
        own = _HALF_A_TURN  # of a single step it is all there is: such releases are of one type
    return ReleaseType(ratio, steps, sampling_rate, sampling, bound, own, adjacency == "replace", law)


def coarsened(kind: ReleaseType) -> ReleaseType:
    """The type with its noise multiplier rounded down on a grid of half a per cent: that much may be over-counted.

    Accounts of many types, or under many noises that are tried, have few types on that grid.
    """
    if not 0 < kind.noise_multiplier < math.inf:
        return kind
    step = math.log(COARSE)
    down = math.exp(math.floor(math.log(kind.noise_multiplier) / step) * step) * (1 - 1e-12)
    return replace(kind, noise_multiplier=down)


def _rounded_down(value: float) -> float:
    if value <= 0 or not math.isfinite(value):
        return max(value, 0.0)
    place = _DIGITS - 1 - math.floor(math.log10(value))
    # Equal ratios differ in their last bits from interval to interval; the nudge keeps them one type.
    return math.floor(value * 10.0**place * (1 + 1e-12)) / 10.0**place


def _rounded_up(share: float) -> float:
    """A share to six digits; a larger one makes later draws weigh more."""
    place = _DIGITS - 1 - math.floor(math.log10(share))
    return min(1.0, math.ceil(share * 10.0**place * (1 - 1e-12)) / 10.0**place)


_Held = frozenset[tuple[ReleaseType, int]]  # how often each type was received


@dataclass(frozen=True)
class DeviceClass:
    """Devices about which an observer holds equal accounts.

    Attributes:
        devices: (n,) numbers of the devices over the whole network, ascending.
        composition: how often each type of release was received.
        edge: of `single-edge`, the edge server that holds this about the first of them; else empty.
    """

    devices: np.ndarray
    composition: dict[ReleaseType, int]
    edge: str = ""


class _Book:
    """One observer's accounts of one subnet: counts (types, s) of what it received about each device.

    Attributes:
        shared: other subnets have this one, too: who changes it for one subnet takes a copy.
    """

    def __init__(self, size: int) -> None:
        self.counts = np.zeros((0, size), dtype=np.int64)
        self.kinds: dict[ReleaseType, int] = {}
        self.shared = False
        self._divergences = np.empty((0, len(ORDERS)))  # of the first types

    def copy(self) -> _Book:
        """The accounts of one subnet alone."""
        other = copy(self)
        other.counts, other.kinds, other.shared = self.counts.copy(), dict(self.kinds), False
        return other

    def enter(self, release: Release, kind: ReleaseType, times: int) -> None:
        """Count a release of this type."""
        counts = self.row(kind)
        for part in rows_in(release.devices):
            counts[part] += times

    def row(self, kind: ReleaseType) -> np.ndarray:
        """The counts of one type, to be changed in place."""
        if kind not in self.kinds and len(self.kinds) >= _MOST_EXACT:
            kind = coarsened(kind)
        if kind not in self.kinds:
            self.kinds[kind] = len(self.kinds)
            self.counts = np.concatenate([self.counts, np.zeros((1, self.counts.shape[1]), dtype=np.int64)])
        counts: np.ndarray = self.counts[self.kinds[kind]]
        return counts

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """(classes, types) distinct accounts, and (s,) the class of each device."""
        by_device = self.counts.T
        if (by_device == by_device[0]).all():  # equal devices, the usual case
            return by_device[:1], np.zeros(len(by_device), dtype=np.int64)
        rows, number = np.unique(by_device, axis=0, return_inverse=True)
        return rows, number.ravel()

    def held(self) -> Iterator[tuple[_Held, np.ndarray]]:
        """The distinct accounts that are not empty, and the rows of the devices that they are of."""
        rows, number = self.distinct()
        for each, row in enumerate(rows.tolist()):
            if composition := frozenset((kind, count) for kind, count in zip(self.kinds, row, strict=True) if count):
                yield composition, np.flatnonzero(number == each)

    def rdp(self, rows: np.ndarray) -> np.ndarray:
        """(classes, orders) Renyi divergence of each of these accounts, see `distinct`."""
        by_kind = self._rdp()
        endless = np.isinf(by_kind)
        total: np.ndarray = rows @ np.where(endless, 0.0, by_kind)
        total[(rows @ endless) > 0] = np.inf
        return total

    def rdp_of_devices(self, order_index: int) -> np.ndarray:
        """(s,) Renyi divergence at one order of each device."""
        column = self._rdp()[:, order_index]
        total: np.ndarray = self.counts.T @ np.where(np.isinf(column), 0.0, column)
        total[(self.counts.T @ np.isinf(column)) > 0] = np.inf
        return total

    def _rdp(self) -> np.ndarray:
        """(types, orders) of a release of each type: made when it is read, which few calibrations do."""
        added = [rdp_of(kind) for kind in islice(self.kinds, len(self._divergences), None)]
        if added:
            self._divergences = np.concatenate([self._divergences, added])
        return self._divergences


class _SingleEdges:
    """The accounts that each edge server by itself holds of devices that move: its own rows, and the public's of all
    other places.

    An edge server that has met a device, or will, receives every global model. While the device is with another one,
    these reveal to it what they reveal to everybody. (Its own view while it has the device contains the global model.)
    """

    def __init__(self, sizes: Mapping[str, int], membership: Membership) -> None:
        self._names, self._membership = list(sizes), membership
        at = np.repeat(np.arange(len(sizes)), list(sizes.values()))
        pairs, self._pair = np.unique(at * len(membership.home) + membership.device, return_inverse=True)
        self._edge, self._device = np.divmod(pairs, len(membership.home))  # (pairs,) of those that ever meet
        self._book = _Book(2 * len(membership.device))  # of each row what its edge server has, then what the public has

    def enter(self, release: Release, first: int, times: int) -> None:
        """Count a release of rows from `first` on."""
        if release.observer in ("edge", "public"):
            first += len(self._membership.device) * (release.observer == "public")
            counts = self._book.row(release_type(release))
            for part in rows_in(release.devices):
                counts[first + part.start : first + part.stop] += times

    def classes(self) -> Iterator[DeviceClass]:
        """The devices that any of these edge servers has rows of its own about, equal accounts together."""
        edge, public = np.split(self._book.counts, 2, axis=1)
        pairs, devices = len(self._device), len(self._membership.home)
        own, here = _summed(edge, self._pair, pairs), _summed(public, self._pair, pairs)
        everywhere = _summed(public, self._membership.device, devices)[:, self._device]
        account = _Book(pairs)
        account.kinds = self._book.kinds
        account.counts = np.where(own.any(axis=0), own + everywhere - here, 0)
        for held, found in account.held():
            met = found[np.argsort(self._device[found], kind="stable")]
            yield DeviceClass(np.unique(self._device[met]), dict(held), self._names[self._edge[met[0]]])


def _summed(counts: np.ndarray, groups: np.ndarray, size: int) -> np.ndarray:
    """(types, size) sums of (types, rows) over the rows of each group."""
    sums = np.zeros((size, len(counts)), dtype=np.int64)
    np.add.at(sums, groups, counts.T)
    return sums.T


class Accounts:
    """The accounts of all observers about all devices of a network.

    A device that changes its edge server has one account, of all its rows: devices are then numbered as in the topology
    file, and the observer `edge` is all edge servers together, which bounds what each of them holds. What the worst of
    them holds by itself is reported as `single-edge`.

    Args:
        sizes: edge server -> number of its devices (of its rows, where devices move), in the order of the tree.
        observers: all that there are in the network.
        membership: which rows are one device's; None where each is a device.
    """

    def __init__(
        self, sizes: Mapping[str, int], observers: Sequence[Observer] = OBSERVERS, membership: Membership | None = None
    ) -> None:
        stops = np.cumsum(list(sizes.values()), dtype=np.int64).tolist()
        self._first = {edge: stop - size for (edge, size), stop in zip(sizes.items(), stops, strict=True)}
        self.sizes = dict(sizes)
        self.observers = tuple(observers)
        self._membership = membership
        self._books: dict[Observer, dict[str, _Book]] = {observer: {} for observer in observers}
        self._singles = None if membership is None else _SingleEdges(self.sizes, membership)

    @classmethod
    def of_ledger(cls, releases: Iterable[Release]) -> Accounts:
        """The accounts that a ledger alone gives; subnets are as large as the largest device number in it."""
        rows = list(releases)
        sizes: dict[str, int] = {}
        for row in rows:
            last = max(part.stop for part in rows_in(row.devices))
            sizes[row.edge] = max(sizes.get(row.edge, 0), last)
        accounts = cls(sizes, observers(max((height_of(row.observer) for row in rows), default=1)))
        accounts.add(rows)
        return accounts

    def add(self, releases: Iterable[Release], times: int = 1) -> None:
        """Enter releases; `times` -1 takes back what was entered but not released."""
        for _, interval in groupby(releases, key=attrgetter("interval")):
            by_edge: dict[str, list[Release]] = defaultdict(list)
            for release in interval:
                by_edge[release.edge].append(release)
            alike: dict[Hashable, list[str]] = defaultdict(list)
            for edge, rows in by_edge.items():
                received = tuple((row.observer, row.devices, release_type(row)) for row in rows)
                alike[self.sizes[edge], received].append(edge)
            for edges in alike.values():
                self._enter(AlikeReleases(edges, by_edge[edges[0]]), times)

    def add_alike(self, alike: Iterable[AlikeReleases], times: int = 1) -> None:
        """Add releases of subnets that have the same releases, and as many devices."""
        for each in alike:
            self._enter(each, times)

    def _enter(self, alike: AlikeReleases, times: int) -> None:
        """Enter releases once for all of these subnets whose accounts were equal before.

        Raises:
            UserError: rows do not say which devices they are of, so that one device might have several accounts.
        """
        if any(release.moves != (self._membership is not None) for release in alike.releases):
            text = "devices change their edge server in this run, so that rows alone do not say whose they are"
            raise UserError(f"{text}; expected the run directory, with its topology.yaml and its whole ledger")
        if self._membership is not None:
            self._enter_rows(self._membership, alike, times)
            return
        received: dict[Observer, list[Release]] = defaultdict(list)
        for release in alike.releases:
            received[release.observer].append(release)
        for observer, rows in received.items():
            books, holding = self._books[observer], defaultdict[int, list[str]](list)
            for edge in alike.edges:
                holding[id(books.get(edge))].append(edge)
            for equal in holding.values():
                book = self._book(observer, equal[0])
                for release in rows:
                    book.enter(release, release_type(release), times)
                book.shared = len(equal) > 1
                books.update(dict.fromkeys(equal, book))

    def _enter_rows(self, membership: Membership, alike: AlikeReleases, times: int) -> None:
        """Into one book of each observer, of all devices wherever they are."""
        for release in alike.releases:
            book = self._books[release.observer].setdefault(_EVERYWHERE, _Book(len(membership.home)))
            counts = book.row(release_type(release))
            for edge in alike.edges:
                if self._singles is not None:
                    self._singles.enter(release, self._first[edge], times)
                for part in rows_in(release.devices):
                    np.add.at(counts, self._devices(membership, edge)[part], times)

    def _devices(self, membership: Membership, edge: str) -> np.ndarray:
        """(s,) whose the rows of an edge server are."""
        return membership.device[self._first[edge] : self._first[edge] + self.sizes[edge]]

    def _at(self, observer: Observer, edge: str) -> tuple[_Book | None, np.ndarray | slice]:
        """The book with a subnet in it, and the subnet's rows there."""
        if self._membership is None:
            return self._books[observer].get(edge), slice(None)
        return self._books[observer].get(_EVERYWHERE), self._devices(self._membership, edge)

    def _book(self, observer: Observer, edge: str) -> _Book:
        """One to be changed: what the observer has of the subnet, or a copy where others share it, or a new one."""
        book = self._books[observer].get(edge)
        if book is None:
            return _Book(self.sizes[edge])
        return book.copy() if book.shared else book

    @property
    def exact(self) -> bool:
        """Whether no type had to share the coarser grid."""
        return all(len(book.kinds) < _MOST_EXACT for books in self._books.values() for book in books.values())

    def classes(self, observer: Observer) -> Iterator[DeviceClass]:
        """The devices that this observer has received anything of, equal accounts together."""
        if observer == SINGLE_EDGE:
            yield from () if self._singles is None else self._singles.classes()
            return
        groups: dict[_Held, list[np.ndarray]] = {}
        books: dict[int, list[tuple[_Held, np.ndarray]]] = {}  # of subnets that share a book
        for edge, book in self._books[observer].items():
            if id(book) not in books:
                books[id(book)] = list(book.held())
            for held, devices in books[id(book)]:
                groups.setdefault(held, []).append(devices + self._first.get(edge, 0))
        for held, parts in groups.items():
            yield DeviceClass(np.sort(np.concatenate(parts)), dict(held))

    @property
    def reported(self) -> tuple[Observer, ...]:
        """The observers; and `single-edge` where devices move and edge servers hold anything."""
        moving = self._membership is not None and self._books.get("edge")
        return observers_beside([*self.observers, SINGLE_EDGE]) if moving else self.observers

    def held(self) -> dict[Observer, list[DeviceClass]]:
        """The `classes` of all `reported` ones."""
        return {each: list(self.classes(each)) for each in self.reported}

    def rdp(self, observer: Observer) -> np.ndarray:
        """(classes, orders) Renyi divergence that this observer holds of each distinct device; classes may be 0."""
        parts = [book.rdp(book.distinct()[0]) for book in self._distinct_books(observer)]
        return np.concatenate(parts) if parts else np.empty((0, len(ORDERS)))

    def _distinct_books(self, observer: Observer) -> list[_Book]:
        return list({id(book): book for book in self._books[observer].values()}.values())

    def spent_at(self, observer: Observer, edge: str, order_index: int) -> np.ndarray:
        """(s,) Renyi divergence at one of `ORDERS` that this observer holds of each device of a subnet."""
        book, rows = self._at(observer, edge)
        return np.zeros(self.sizes[edge]) if book is None else book.rdp_of_devices(order_index)[rows]

    def counts(self, observer: Observer, edge: str) -> Mapping[ReleaseType, np.ndarray]:
        """Type of release -> (s,) how often this observer received it of each device of a subnet."""
        book, rows = self._at(observer, edge)
        return {} if book is None else {kind: book.counts[row][rows] for kind, row in book.kinds.items()}

    def worst(self, observer: Observer, delta: float) -> float | None:
        """Accounted epsilon of the worst device, by `rdp`; None where the observer received no private release."""
        divergences = self.rdp(observer)
        return float(np.max(epsilon_from_rdp(divergences, delta))) if divergences.size else None

    def by_rdp(self, observer: Observer, delta: float) -> Iterator[tuple[float, Composition]]:
        """Epsilon by `rdp` of each distinct account that this observer holds, the largest first, and the account."""
        candidates: list[tuple[float, _Book, np.ndarray]] = []
        for book in self._distinct_books(observer):
            rows, _ = book.distinct()
            epsilons = epsilon_from_rdp(book.rdp(rows), delta).tolist()
            candidates += [(epsilon, book, row) for epsilon, row in zip(epsilons, rows, strict=True)]
        for epsilon, book, row in sorted(candidates, key=lambda each: -each[0]):
            yield epsilon, {kind: count for kind, count in zip(book.kinds, row.tolist(), strict=True) if count}

    def exceeds(self, observer: Observer, most: float, delta: float, accountant: Accountant) -> bool:
        """Whether this observer holds more than `most` about some device, by this accountant.

        `rdp`, which costs next to nothing, answers first where it is never below: for itself and for `pld`.
        """
        worst, rdp = self.worst(observer, delta), ACCOUNTANTS["rdp"]
        if worst is None:
            return False
        compositions = [each.composition for each in self.classes(observer)]
        if accountant.name in ("rdp", "pld"):
            compositions = [each for each in compositions if rdp.epsilon(each, delta) > most] if worst > most else []
        return any(accountant.epsilon(each, delta, most) > most for each in compositions)

    def place_of(self, device: int) -> tuple[str, int]:
        """Edge server and row within the subnet of a device of the network: where the file has it, if it moves."""
        device = device if self._membership is None else int(self._membership.home[device])
        names = list(self._first)
        number = bisect_right(list(self._first.values()), device) - 1
        return names[number], device - self._first[names[number]]
