"""`data.partition` of an experiment file: who holds which records, by a partitioner or as in life.

A partitioner is a function of labels, device weights and a generator, which says which device holds which record:

    partitioner(labels, weights, rng, ...) -> owners

labels has shape (records,), weights shape (devices,) and says how large the devices are relative to each other (all 1
for equal ones), owners has shape (records,): a device's number, or -1 for none. Written so, no record can be given to
two devices. Every device gets at least one record.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from h2fdp.config import Section
from h2fdp.config.fields import BY_SHAPE, Count, Expect
from h2fdp.errors import UserError

_KEY = "data.partition"
KINDS = ("labels_per_device", "dirichlet", "shards", "by_edge")
NO_DEVICE = -1

Integers = NDArray[np.int64]
Weights = NDArray[np.float64]
# Outside of these bounds the draws under- or overflow; a tenth of the lower one already puts a label on one device.
Concentration = Annotated[float, Field(ge=1e-4, le=1e6), Expect("a number from 0.0001 to 1000000")]
LogDeviation = Annotated[float, Field(ge=0, le=10), Expect("a number from 0 to 10")]


class SizesSection(Section):
    """The sizes of devices: in proportion to exp(lognormal * z), z standard normal.

    Attributes:
        lognormal: the standard deviation of the logarithm; 0 makes devices alike.
    """

    lognormal: LogDeviation


class DevicePartition(Section):
    """One of the partitions, with its parameters.

    Attributes:
        labels_per_device: number of labels on each device.
        dirichlet: each label is spread by shares from a Dirichlet distribution: the smaller, the more uneven.
        shards: number of shards into which the records, sorted by label, are cut; needs `per_device`.
        per_device: number of `shards` on each device.
    """

    labels_per_device: Count | None = None
    dirichlet: Concentration | None = None
    shards: Count | None = None
    per_device: Count | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in KINDS if kind in type(self).model_fields]
        stated = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(stated) > 1 or not (stated or getattr(self, "sizes", None)):
            raise ValueError(f"expected exactly one of {', '.join(kinds)}, found {', '.join(stated) or 'none'}")
        if (self.shards is None) != (self.per_device is None):
            raise ValueError("`shards` and `per_device` belong together, as {shards: 400, per_device: 40}")
        return self


class EdgePartition(Section):
    """Records are split between edge servers, then between the devices of each.

    Attributes:
        labels: number of labels under each edge server; null: all.
        devices: how devices of one edge server differ, `{labels_per_device: 1}`; null: not at all.
    """

    labels: Count | None = None
    devices: DevicePartition | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> EdgePartition:
        if self.labels is None and self.devices is None:
            raise ValueError("expected `labels`, `devices` or both, found neither")
        return self


class PartitionSection(DevicePartition):
    """One of the partitions, with its parameters; `sizes` alone spreads records at random.

    Attributes:
        by_edge: how edge servers differ, `{labels: 5}`, and in `devices` how the devices of each do.
        sizes: how the numbers of records differ; null: equal, as far as the partition allows.
    """

    by_edge: EdgePartition | None = None
    sizes: SizesSection | None = None

    @property
    def by_label(self) -> bool:
        """Whether it looks at labels."""
        return any(getattr(self, kind) is not None for kind in KINDS)

    @model_validator(mode="before")
    @classmethod
    def _words_stand_alone(cls, value: Any) -> Any:
        for word in ("iid", "natural"):
            if isinstance(value, dict) and word in value:
                hint = "; with sizes, {sizes: {lognormal: 1}} alone" if word == "iid" else ""
                raise ValueError(f"`{word}` is a word and no key; write partition: {word}{hint}")
        return value


Partition = PartitionSection | Literal["iid", "natural"]
PartitionKey = Annotated[
    Partition | None,
    BY_SHAPE,
    Expect(f"iid, natural, or a key with a value, as {{dirichlet: 0.5}} ({', '.join(KINDS)})"),
]


def partition(
    chosen: Partition,
    labels: Integers,
    devices: int,
    rng: np.random.Generator,
    groups: Sequence[tuple[str, int]] = (),
) -> Integers:
    """The owners that `data.partition` asks for, of records that have no owner yet.

    Args:
        groups: name and number of devices of each edge server, in the order of devices, for `by_edge`.

    Raises:
        UserError: fewer records than devices, or a partition that these labels do not allow.
    """
    if len(labels) < devices:
        raise UserError(f"{len(labels)} training records are too few for {devices} devices", key=_KEY)
    if chosen == "natural":
        raise UserError("these data do not say who holds their records; expected another partition", key=_KEY)
    section = PartitionSection.model_construct() if isinstance(chosen, str) else chosen
    spread = 0.0 if section.sizes is None else section.sizes.lognormal
    weights = np.exp(spread * rng.standard_normal(devices))
    if section.by_edge is not None:
        return by_edge(labels, weights, rng, section.by_edge, groups)
    return _of_kind(section, labels, weights, rng)


def _of_kind(section: DevicePartition, labels: Integers, weights: Weights, rng: np.random.Generator) -> Integers:
    if section.labels_per_device is not None:
        return by_labels(labels, weights, rng, section.labels_per_device)
    if section.dirichlet is not None:
        return by_dirichlet(labels, weights, rng, section.dirichlet)
    if section.shards is not None and section.per_device is not None:
        return by_shards(labels, weights, rng, section.shards, section.per_device)
    return at_random(labels, weights, rng)


def natural(
    owners: Integers,
    test_owners: Integers | None,
    devices: int,
    rng: np.random.Generator,
    called: Sequence[str] = (),
    names: Sequence[str] = (),
) -> tuple[Integers, Integers | None]:
    """Owners of records as devices: each is the device of its name, else in the order of the owners' numbers.

    More owners than devices are dealt out, whole and equally many to each device, +-1.

    Args:
        owners: (records,) any number that stands for who holds each record.
        test_owners: (test records,) the same, of these owners, or None.
        called: the owners' names, in the order of their numbers; empty where they have none.
        names: of the devices.

    Raises:
        UserError: too few owners, or names that match in part.

    >>> natural(np.array([7, 3, 3]), np.array([7]), 2, np.random.default_rng(0))
    (array([1, 0, 0]), array([1]))
    >>> natural(np.array([7, 3, 3]), None, 2, np.random.default_rng(0), ["Anna", "Mercy"], ["Mercy", "Anna"])
    (array([0, 1, 1]), None)
    """
    numbers = np.unique(owners)
    of_number = _by_name(called, names)
    if of_number is None and len(numbers) < devices:
        text = f"the records have {len(numbers)} owners, but the topology has {devices} devices"
        raise UserError(text, key=_KEY)
    if of_number is None and len(numbers) == devices:
        of_number = np.arange(devices)
    if of_number is None:
        of_number = rng.permutation(np.arange(len(numbers)) % devices)
    tested = None if test_owners is None else of_number[np.searchsorted(numbers, test_owners)]
    return of_number[np.searchsorted(numbers, owners)], tested


_GENERATED = re.compile(r".*/\d+")  # names of devices whose topology gives them none


def _by_name(owners: Sequence[str], devices: Sequence[str]) -> Integers | None:
    """The device that has each owner's name, or is the first of an edge server of that name; None where names say
    nothing of who is who.

    That is where owners or devices have no names of their own, or none that agree and more owners than devices.

    Raises:
        UserError: only some agree, or all but for case and signs; or none of as many names that people gave.
    """
    servers = [each.removesuffix("/1") for each in devices]
    for names in (devices, servers):
        places = {name: place for place, name in enumerate(names)}
        if owners and places.keys() == set(owners):
            return np.array([places[owner] for owner in owners])
    alike = {_letters(each) for each in owners} & {_letters(each) for each in devices} or {*owners} & {*servers}
    given = not all(map(_GENERATED.fullmatch, devices)) and not all(map(str.isdecimal, owners))
    if not alike and not (given and len(owners) <= len(devices)):
        return None
    strangers = [each for each in owners if each not in {*devices, *servers}]
    empty = [each for each in devices if not {each, each.removesuffix("/1")} & {*owners}]
    wrong = _listed(strangers, "no device has the name of the owners "), _listed(empty, "no owner has that of ")
    how = "call each device as its owner, or none, and owners are dealt to them in order"
    raise UserError("; ".join(filter(None, (*wrong, how))), key=_KEY)


def _listed(names: Sequence[str], what: str) -> str:
    return f"{what}{', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}" if names else ""


def _letters(name: str) -> str:
    return re.sub(r"\W", "", name.casefold()) or name


def at_random(labels: Integers, weights: Weights, rng: np.random.Generator) -> Integers:
    """I.i.d.: all records shuffled and cut in proportion to the weights."""
    owners = np.empty(len(labels), dtype=np.int64)
    owners[rng.permutation(len(labels))] = np.repeat(np.arange(len(weights)), proportional(len(labels), weights))
    return owners


def by_labels(labels: Integers, weights: Weights, rng: np.random.Generator, per_device: int) -> Integers:
    """Each device holds records of exactly `per_device` labels; the labels go to equally many devices, +-1.

    A label's records are cut among its devices in proportion to the weights, in disjoint shares: 50 devices with 3
    labels of Fashion-MNIST hold 3 x 400 records each (H2FDP, Sec. 6.1). Labels that no device drew are not used.

    Raises:
        UserError: fewer labels than `per_device`, or a label with fewer records than devices.
    """
    kinds = np.unique(labels)
    if per_device > len(kinds):
        text = f"each device is to hold {per_device} labels, but the data have {len(kinds)}"
        raise UserError(text, key=f"{_KEY}.labels_per_device")
    own_kinds = kinds[_deal(len(weights), len(kinds), per_device, rng)]
    owners = np.full(len(labels), NO_DEVICE, dtype=np.int64)
    for label in kinds:
        takers = np.flatnonzero((own_kinds == label).any(axis=1))
        places = rng.permutation(np.flatnonzero(labels == label))
        if len(places) < len(takers):
            text = f"label {label} has {len(places)} records, too few for the {len(takers)} devices that are to hold it"
            raise UserError(text, key=_KEY)
        if len(takers):
            owners[places] = np.repeat(takers, proportional(len(places), weights[takers]))
    return owners


def by_edge(
    labels: Integers,
    weights: Weights,
    rng: np.random.Generator,
    section: EdgePartition,
    groups: Sequence[tuple[str, int]],
) -> Integers:
    """Edge servers share the records as devices do under `by_labels`, then the devices of each share what it has.

    HierFAVG (Liu et al. 2020, Sec. IV) has devices of one label each, below edge servers of all labels (edge-IID) or of
    five (edge-NIID): `{devices: {labels_per_device: 1}}`, with `labels: 5`.

    Raises:
        UserError: see `by_labels`; also with the edge server of which it is true.
    """
    assert sum(size for _, size in groups) == len(weights), "all devices are under edge servers"
    ends = np.cumsum([size for _, size in groups])
    of_edges = np.add.reduceat(weights, np.r_[0, ends[:-1]])
    try:
        if section.labels is None:
            edge = at_random(labels, of_edges, rng)
        else:
            edge = by_labels(labels, of_edges, rng, section.labels)
    except UserError as error:
        text = error.problems[0].text.replace("device", "edge server")
        raise UserError(text, key=f"{_KEY}.by_edge.labels") from None
    owners = np.full(len(labels), NO_DEVICE, dtype=np.int64)
    inner = DevicePartition.model_construct() if section.devices is None else section.devices
    for number, (name, size) in enumerate(groups):
        places, first = np.flatnonzero(edge == number), int(ends[number]) - size
        try:
            if len(places) < size:
                raise UserError(f"{len(places)} training records are too few for {size} devices")
            own = _of_kind(inner, labels[places], weights[first : first + size], rng)
        except UserError as error:
            raise UserError(f"edge server {name}: {error.problems[0].text}", key=f"{_KEY}.by_edge") from None
        owners[places] = np.where(own == NO_DEVICE, NO_DEVICE, first + own)
    return owners


def _deal(devices: int, kinds: int, per_device: int, rng: np.random.Generator) -> Integers:
    """The kinds that each device holds, shape (devices, per_device): distinct in a row, equally often in all, +-1.

    Every `kinds` devices share one shuffled deck, dealt round and round: `per_device` consecutive cards of a deck are
    distinct, and a deck cut short has dealt each card equally often, +-1. The devices are shuffled last, for
    neighbours in a deck never hold the same card and neighbours in a subnet may.
    """
    decks = rng.permuted(np.tile(np.arange(kinds), (-(-devices // kinds), 1)), axis=1)
    row = np.arange(devices)
    card = (row[:, None] % kinds * per_device + np.arange(per_device)) % kinds
    return rng.permutation(decks[row[:, None] // kinds, card])


def by_dirichlet(labels: Integers, weights: Weights, rng: np.random.Generator, concentration: float) -> Integers:
    """Each label's records are spread over the devices by proportions from a symmetric Dirichlet distribution.

    The smaller the concentration, the fewer devices hold most of a label. Proportions are multiplied by the weights. A
    device that would stay empty gets a record of the device that has most.
    """
    owners = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(len(weights), concentration)) * weights
        ends = np.floor(np.cumsum(shares) / shares.sum() * len(places)).astype(np.int64)
        ends[-1] = len(places)
        owners[places] = np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0))
    return _fill_empty(owners, len(weights), rng)


def _fill_empty(owners: Integers, devices: int, rng: np.random.Generator) -> Integers:
    """Move one record to each empty device, always from the device that has most at the moment."""
    sizes = sizes_of(owners, devices)
    empty = np.flatnonzero(sizes == 0)
    moved = np.zeros(devices, dtype=np.int64)
    largest_first = [(-int(size), device) for device, size in enumerate(sizes)]
    heapq.heapify(largest_first)
    for _ in empty:
        size, device = largest_first[0]
        moved[device] += 1
        heapq.heapreplace(largest_first, (size + 1, device))
    filled = owners.copy()
    filled[choose(owners, moved, rng)] = empty
    return filled


def by_shards(labels: Integers, weights: Weights, rng: np.random.Generator, shards: int, per_device: int) -> Integers:
    """Records sorted by label are cut into equal shards (+-1), and each device gets `per_device` shards at random.

    McMahan et al. 2017; ALI-DPFL (first version) has 400 shards, 40 to each of 10 devices. Shards cannot be larger for
    some, so with unequal weights a device keeps a random part of its records: all for the largest weight.

    Raises:
        UserError: fewer shards than devices x `per_device`, or fewer records than shards.
    """
    devices = len(weights)
    if shards < devices * per_device:
        text = f"{shards} shards are too few for {devices} devices x {per_device} shards = {devices * per_device}"
        raise UserError(text, key=f"{_KEY}.shards")
    if len(labels) < shards:
        raise UserError(f"{len(labels)} records cannot be cut into {shards} shards", key=f"{_KEY}.shards")
    taker = np.full(shards, NO_DEVICE, dtype=np.int64)
    taker[rng.permutation(shards)[: devices * per_device]] = np.repeat(np.arange(devices), per_device)
    owners = np.empty(len(labels), dtype=np.int64)
    owners[np.argsort(labels, kind="stable")] = np.repeat(taker, proportional(len(labels), np.ones(shards)))
    sizes = sizes_of(owners, devices)
    keep = np.maximum(1, np.floor(sizes * (weights / weights.max()))).astype(np.int64)
    return np.where(choose(owners, keep, rng), owners, NO_DEVICE)


def proportional(total: int, weights: Weights) -> Integers:
    """Split a total into whole parts, each at least 1, the rest as near in proportion to the weights as can be.

    Equal weights give parts that differ by at most one. The total must be at least the number of weights.

    >>> proportional(10, np.array([1.0, 1.0, 1.0])), proportional(10, np.array([6.0, 1.0]))
    (array([4, 3, 3]), array([8, 2]))
    """
    spare = total - len(weights)
    assert spare >= 0, "each part needs one"
    exact = spare * weights / weights.sum()
    parts: Integers = np.floor(exact).astype(np.int64)
    missing = spare - int(parts.sum())
    parts[np.argsort(parts - exact, kind="stable")[:missing]] += 1  # those that lost most by rounding down
    return parts + 1


def choose(owners: Integers, counts: Integers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose counts[i] of device i's records at random without replacement; shape (records,), True where chosen.

    Records of no device are not chosen. No count may exceed its device's records.
    """
    place = np.lexsort((rng.random(len(owners)), owners))
    owned = owners[place]
    place, owned = place[owned >= 0], owned[owned >= 0]
    starts = np.searchsorted(owned, np.arange(len(counts)))
    rank = np.arange(len(owned)) - starts[owned]
    chosen = np.zeros(len(owners), dtype=np.bool_)
    chosen[place[rank < counts[owned]]] = True
    return chosen


def sizes_of(owners: Integers, devices: int) -> Integers:
    """Number of records of each device, shape (devices,)."""
    return np.bincount(owners[owners >= 0], minlength=devices).astype(np.int64)


def gather(owners: Integers, devices: int) -> tuple[Integers, Integers]:
    """The partition as `order` (places of the records, device after device) and `offsets`, shape (devices + 1,).

    >>> gather(np.array([1, 0, -1, 1]), devices=2)
    (array([1, 0, 3]), array([0, 1, 3]))
    """
    used = np.flatnonzero(owners >= 0)
    order = used[np.argsort(owners[used], kind="stable")]
    offsets = np.zeros(devices + 1, dtype=np.int64)
    np.cumsum(sizes_of(owners, devices), out=offsets[1:])
    return order, offsets
