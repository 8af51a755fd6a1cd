"""`association:` of a topology file: which edge server each device joins, decided before the run from where all are.

Edge servers have places (`at_m`), devices the columns `x_m` and `y_m`. Each device joins the nearest edge server; or
from there devices are transferred, one after another, until no single transfer lowers a number: what an interval costs
(HFEL: Luo, Chen, Wu, Zhou and Yu, IEEE TWC 2020, edge association by transferring adjustments), or how far the labels
below edge servers are from those of all devices (SHARE: Deng, Lyu, Ren, Zhang, Zhou, Zhang and Yang, ICDCS 2021, mean
Kullback-Leibler divergence of edge servers' data).

Who is below which edge server is public. Places and sizes are public; numbers of labels are records' own, so a run with
a guarantee takes them only where `labels: public` states that they are no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from h2fdp.config.fields import Expect, Number, Positive, Section, Text, Whole
from h2fdp.errors import UserError
from h2fdp.network.devices import NEAREST_M, PLACES, Floats, Integers
from h2fdp.network.network import Subnet

MOST_PAIRS = 100_000  # of a device and an edge server, between which devices are transferred
Point = Annotated[list[Number], Field(min_length=2, max_length=2), Expect("[x, y], in metres")]
Value = Callable[[Integers], float]
"""From (I,) numbers of the devices' edge servers to what is to be low."""


class AssociationSection(Section):
    """Which edge server each device joins, by where it is (`x_m`, `y_m` of devices).

    Attributes:
        by: `nearest`; `cost`, from there by transfers that lower what an interval costs, joules and seconds of the
            clock weighed by `control.alpha1` and `alpha2`; `data`, by transfers that bring the labels below each edge
            server nearer to those of all devices.
        at_m: where every lowest edge server is, `{edge-1: [0, 0]}`, in metres.
        within_m: how far devices reach; null is everywhere.
        labels: whether how many records of each label a device has is `private` or `public`; by `data`, a method with
            noise needs the latter.
        was: written by the program into the file of a run, in the place of `at_m`: which devices, by their place in
            this file, counted from 0, the edge servers had before.
    """

    by: Literal["nearest", "cost", "data"]
    at_m: Annotated[dict[Text, Point], Expect("places of edge servers, as {edge-1: [0, 0]}")] | None = None
    within_m: Positive | None = None
    labels: Literal["private", "public"] = "private"
    was: Annotated[dict[Text, list[Whole]], Expect("places of devices, by edge server")] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> AssociationSection:
        if (self.at_m is None) == (self.was is None):
            raise ValueError(f"expected `at_m:`, the places of edge servers; found {'both' if self.was else 'none'}")
        return self

    def values(self) -> dict[str, Any]:
        """In the words of a topology file."""
        return self.model_dump(exclude_none=True, exclude_defaults=True)

    def refuse(self, subnets: Sequence[Subnet]) -> None:
        """Refuse edge servers and devices that are not those of the network.

        Raises:
            UserError: edge servers without a place, or places without an edge server; devices without one.
        """
        if self.was is not None:
            numbers = sorted(number for each in self.was.values() for number in each)
            if numbers != list(range(sum(subnet.size for subnet in subnets))):
                raise UserError("expected the place of each device once", key="association.was")
            return
        names, placed = [subnet.name for subnet in subnets], self.at_m or {}
        if wrong := [name for name in placed if name not in names] or [name for name in names if name not in placed]:
            what = "expected a place of" if wrong[0] in names else "expected an edge server with devices, found"
            raise UserError(f'{what} "{wrong[0]}"', key="association.at_m")
        for subnet in subnets:
            if missing := [name for name in PLACES if name not in subnet.columns]:
                text = f"the devices of {subnet.name} have no {missing[0]}; expected one for each, as under `devices:`"
                raise UserError(text, key="association")

    def distances_m(self, subnets: Sequence[Subnet]) -> Floats:
        """(I, N) from every device to every edge server, at least 1 m."""
        assert self.at_m is not None, "devices are still where the file has them"
        x, y = (np.concatenate([subnet.column(name) for subnet in subnets]) for name in ("x_m", "y_m"))
        points = np.array([self.at_m[subnet.name] for subnet in subnets])
        far = np.hypot(x[:, None] - points[:, 0], y[:, None] - points[:, 1])
        return np.asarray(np.maximum(far, NEAREST_M))

    def joined(self, subnets: Sequence[Subnet], value: Value | None = None) -> tuple[list[Subnet], AssociationSection]:
        """The subnets after devices have joined edge servers, without those that no device joined; and how to go back.

        Args:
            value: what transfers lower; None leaves every device at the nearest edge server.

        Raises:
            UserError: a device that reaches no edge server; more pairs than can be tried.
        """
        far, names = self.distances_m(subnets), [name for subnet in subnets for name in subnet.device_names()]
        reached = np.full(far.shape, True) if self.within_m is None else far <= self.within_m
        if not reached.any(axis=1).all():
            alone = int(np.argmin(reached.any(axis=1)))
            text = f"{names[alone]} is {far[alone].min():.5g} m from the nearest edge server"
            raise UserError(f"{text}; expected at least as much, found {self.within_m:g}", key="association.within_m")
        home: Integers = np.argmin(far, axis=1)
        if value is not None:
            if far.size > MOST_PAIRS:
                text = f"expected nearest where there are more than {MOST_PAIRS:,} pairs of device and edge server"
                raise UserError(f"{text}, found {self.by} for {far.size:,}", key="association.by")
            home = transferred(home, reached, value)
        columns = {name: np.concatenate([each.column(name) for each in subnets]) for name in columns_of(subnets)}
        firsts, found, order = np.cumsum([0, *(subnet.size for subnet in subnets)]), [], []
        for number, subnet in enumerate(subnets):
            members = np.flatnonzero(home == number)
            if members.size == 0:
                continue
            order.append(members)
            stays = np.array_equal(members, np.arange(firsts[number], firsts[number + 1]))
            own = {name: values[members] for name, values in columns.items()} | {"distance_m": far[members, number]}
            called = subnet.names if stays else tuple(names[member] for member in members)
            found.append(replace(subnet, columns=own, names=called, rules={}))
        place = np.argsort(np.concatenate(order))
        was = {subnet.name: part.tolist() for subnet, part in zip(subnets, np.split(place, firsts[1:-1]), strict=True)}
        return found, self.model_copy(update={"at_m": None, "within_m": None, "was": was})

    @property
    def places(self) -> Integers:
        """(I,) of each device of the network as it was before, its place in the network as it is."""
        assert self.was is not None, "devices have joined"
        return np.concatenate([np.array(each, dtype=np.int64) for each in self.was.values()])

    def filed(self, subnets: Sequence[Subnet]) -> list[Subnet]:
        """The subnets before, with their devices' names: what records are spread over."""
        names = [name for subnet in subnets for name in subnet.device_names()]
        far = np.concatenate([subnet.column("distance_m") for subnet in subnets])
        return [
            Subnet(edge, "untrusted", {"distance_m": far[places]}, names=tuple(names[place] for place in places))
            for edge, places in (self.was or {}).items()
        ]


def columns_of(subnets: Sequence[Subnet]) -> list[str]:
    """The columns that any of the subnets states."""
    return list(dict.fromkeys(name for subnet in subnets for name in subnet.columns))


def everywhere(subnets: Sequence[Subnet], far: Floats) -> list[Subnet]:
    """Subnets of all devices each, at their distances (I, N): the networks that associations choose from, as one."""
    columns = {name: np.concatenate([each.column(name) for each in subnets]) for name in columns_of(subnets)}
    return [
        replace(subnet, columns={**columns, "distance_m": far[:, number]}, names=None, rules={})
        for number, subnet in enumerate(subnets)
    ]


def transferred(home: Integers, reached: NDArray[np.bool_], value: Value) -> Integers:
    """(I,) edge servers after transfers, none of which would lower the value any more; none loses its last device.

    Device after device goes where the value is least; then all are tried again, until nothing moves.

    Args:
        home: (I,) where they begin.
        reached: (I, N) the edge servers that each device reaches.

    >>> transferred(np.array([0, 0, 1]), np.full((3, 2), True), lambda home: float(home @ [1, -5, 2])).tolist()
    [0, 1, 0]
    """
    home, least, moved = home.copy(), value(home), True
    while moved:
        moved = False
        for device in range(len(home)):
            began = home[device]
            if np.count_nonzero(home == began) == 1:
                continue
            for server in np.flatnonzero(reached[device]):
                tried = np.where(np.arange(len(home)) == device, server, home)
                found = value(tried) if server != home[device] else least
                if found < least - 1e-12 * abs(least):  # beyond rounding, or transfers could go in circles
                    home, least, moved = tried, found, True
    return home


def mean_divergence(labels: Integers) -> Value:
    """The mean over edge servers of KL(labels below it || labels of all devices), in nats.

    Args:
        labels: (I, L) records of each label that each device has.

    >>> value = mean_divergence(np.array([[5, 0], [5, 0], [0, 5], [0, 5]]))
    >>> round(value(np.array([0, 0, 1, 1])), 6), value(np.array([0, 1, 0, 1]))
    (0.693147, 0.0)
    """
    overall = labels.sum(axis=0) / labels.sum()

    def value(home: Integers) -> float:
        sums = np.zeros((int(home.max()) + 1, labels.shape[1]))
        np.add.at(sums, home, labels)
        below = sums[sums.any(axis=1)]
        below /= below.sum(axis=1, keepdims=True)
        terms = np.log(np.divide(below, overall, out=np.ones_like(below), where=below > 0))
        return float((below * terms).sum() / len(below))

    return value
