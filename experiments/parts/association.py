"""Which edge server devices join, decided before a run from where all are: a network and records for `h2fdp run`.

    python -m experiments.parts.association FILE.yaml PLACES.csv --by cost --out joined
    h2fdp run FILE.yaml --set topology=... --set data=...     # as the program prints it

PLACES.csv has the columns `name`, `x_m` and `y_m`: a line for each lowest edge server and each device of the network.
Each device joins the nearest edge server; or from there devices are transferred, one after another, until no single
transfer lowers a number: what an interval costs (HFEL: Luo, Chen, Wu, Zhou and Yu, IEEE TWC 2020, edge association by
transferring adjustments), or how far the labels below edge servers are from those of all devices (SHARE: Deng, Lyu,
Ren, Zhang, Zhou, Zhang and Yang, ICDCS 2021, mean Kullback-Leibler divergence of edge servers' data). A device keeps
its records wherever it joins, so that associations compare equal devices.

Who is below which edge server is public, as are places and numbers of records. How many records of each label a device
has is no such fact: by `data`, a method with noise needs `--public-labels`, which states that it is one.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.programs import told
from h2fdp import Experiment, Topology, UserError
from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.traffic import Tasks
from h2fdp.data.federated import FederatedData, label_counts
from h2fdp.experiment.network import check_network
from h2fdp.models.construct import ParameterLayout, builder_of
from h2fdp.network import Subnet, write
from h2fdp.network.channel import NoFading
from h2fdp.network.devices import NEAREST_M, Floats, Integers
from h2fdp.run.devices import costs_of
from h2fdp.streams import Streams
from h2fdp.sweeps.grid import word

MOST_PAIRS = 100_000  # of a device and an edge server, between which devices are transferred
By = Literal["nearest", "cost", "data"]
Value = Callable[[Integers], float]
"""From (I,) numbers of the devices' edge servers to what is to be low."""


def joined(
    experiment: Experiment,
    places: Mapping[str, Sequence[float]],
    by: By,
    folder: Path,
    *,
    within_m: float | None = None,
    public_labels: bool = False,
    data_root: Path | None = None,
) -> dict[str, Any]:
    """The experiment's keys `topology` and `data` after devices have joined edge servers; those without are left out.

    Args:
        places: name of each lowest edge server and each device -> [x, y] in metres.
        by: what is low: distances, what an interval costs (by `control.alpha1` a joule and `control.alpha2` a second),
            or the divergence of labels.
        folder: where the network (`topology.yaml`) and the records (`records.npz`) are written.
        within_m: how far devices reach; None is everywhere.

    Raises:
        UserError: a node without a place; a device that reaches no edge server; more pairs than can be tried; what is
            private, or what is not billed.
    """
    network = experiment.topology
    if {"mobility", "adversaries"} & network.parts.keys():
        raise UserError("expected neither mobility nor adversaries, which name devices where they are", key="topology")
    _refuse(experiment, by, public_labels)
    far, names = distances_m(network, places), network.device_names()
    reached = np.full(far.shape, True) if within_m is None else far <= within_m
    if not reached.any(axis=1).all():
        alone = int(np.argmin(reached.any(axis=1)))
        text = f"{names[alone]} is {far[alone].min():.5g} m from the nearest edge server"
        raise UserError(f"{text}; expected at least as much, found {within_m:g}", "--within")
    data = experiment.records(data_root)
    if not isinstance(data, FederatedData) or data.public is not None:
        text = "records that are drawn where they are trained on, or are public, have no device to go along with"
        raise UserError(f"{text}; expected fewer, and none that are public", key="data")
    home: Integers = np.argmin(far, axis=1)
    if by != "nearest":
        if far.size > MOST_PAIRS:
            text = f"expected nearest where there are more than {MOST_PAIRS:,} pairs of device and edge server"
            raise UserError(f"{text}, found {by} for {far.size:,}", "--by")
        value = mean_divergence(label_counts(data)) if by == "data" else cost_of_joining(experiment, far, data)
        home = transferred(home, reached, value)
    folder.mkdir(parents=True, exist_ok=True)
    write(moved(network, home, far), folder / "topology.yaml")
    order = np.argsort(home, kind="stable")  # of the devices in the new network
    path = stored(data, order, folder / "records.npz")
    section = {"name": "npz", "path": str(path), "classes": data.classes, "partition": "natural"}
    return {"topology": str(folder.absolute() / "topology.yaml"), "data": section}


def _refuse(experiment: Experiment, by: By, public_labels: bool) -> None:
    """Refuse devices that would join by what is private, or by what is not billed."""
    config = experiment.config
    private = config.method.privacy.private
    if by == "data" and private and not public_labels:
        text = "who joins which edge server tells how many records of each label devices have, and no epsilon covers it"
        raise UserError(f"{text}; expected --public-labels, where these are no secret, or nearest or cost", "--by")
    if by != "cost":
        return
    steps = {"local_steps", "batch_size", "sampling_rate", "aggregate_every", "aggregations_per_interval"}
    if missing := sorted(steps & config.training.left_open):
        text = f"{missing[0]} is chosen after devices have joined edge servers by what an interval costs"
        raise UserError(f"{text}; expected it stated, as in training: {{extends: paper}}", key="training")
    if own := [each.name for each in experiment.topology.servers() if not each.link.plain]:
        text = (
            f"{own[0]} has a link that is no plain wire, whose cost depends on the moment; expected wires, or nearest"
        )
        raise UserError(f"{text}, found cost", "--by")
    if check_network(config, experiment.topology)[0] is not experiment.topology:
        text = "a star, and one sum over the whole network, have no edge servers between devices and the cloud"
        raise UserError(f"{text}; expected nearest, found cost", "--by")
    if private and config.privacy.adjacency == "add-remove":
        text = "what an interval costs tells how many records devices have; expected null-record or replace"
        raise UserError(f"{text}, or nearest", key="privacy.adjacency")


def distances_m(network: Topology, places: Mapping[str, Sequence[float]]) -> Floats:
    """(I, N) from every device to every edge server, at least 1 m."""
    servers, devices = [each.name for each in network.subnets], network.device_names()
    if missing := [name for name in (*servers, *devices) if name not in places]:
        raise UserError(f"expected a place of each edge server and device, found none of {missing[0]}", key="places")
    if strangers := [name for name in places if name not in {*servers, *devices}]:
        raise UserError(f"the network has no {strangers[0]}", key="places")
    if repeated := {*servers} & {*devices}:
        raise UserError(f"an edge server and a device are both called {min(repeated)}", key="places")
    at = np.array([places[name] for name in devices], dtype=np.float64)
    points = np.array([places[name] for name in servers], dtype=np.float64)
    return np.asarray(np.maximum(np.linalg.norm(at[:, None] - points, axis=2), NEAREST_M))


def moved(network: Topology, home: Integers, far: Floats) -> Topology:
    """The network with each device (I,) below its edge server, by its name and with its numbers.

    >>> network = Topology.regular(edges=2, devices=2)
    >>> there = moved(network, np.array([0, 1, 1, 1]), np.full((4, 2), 9.0))
    >>> there.sizes.tolist(), there.subnets[1].device_names(), there.table.columns["distance_m"].tolist()
    ([1, 3], ['edge-1/2', 'edge-2/1', 'edge-2/2'], [9.0, 9.0, 9.0, 9.0])
    """
    subnets, names, found = network.subnets, network.device_names(), list[Subnet]()
    columns = _columns(subnets)
    for number, subnet in enumerate(subnets):
        members = np.flatnonzero(home == number)
        if members.size:
            own = {name: values[members] for name, values in columns.items()} | {"distance_m": far[members, number]}
            found.append(replace(subnet, columns=own, names=tuple(names[each] for each in members), rules={}))
    return replace(network, subnets=tuple(found))


def _columns(subnets: Sequence[Subnet]) -> dict[str, Floats]:
    """(I,) each column that any of the subnets states."""
    stated = dict.fromkeys(name for subnet in subnets for name in subnet.columns)
    return {name: np.concatenate([each.column(name) for each in subnets]) for name in stated}


def stored(data: FederatedData, order: Integers, path: Path) -> Path:
    """An archive with the records as the model sees them, their owners numbered in this order (I,) of the devices."""
    place, scaling = np.argsort(order), data.scaling

    def inputs(x: NDArray[np.generic]) -> NDArray[np.generic]:
        plain = scaling.divisor == (255.0 if x.dtype == np.uint8 else 1.0)
        if plain and set(scaling.mean) == {0.0} and set(scaling.deviation) == {1.0}:
            return x
        return np.asarray(x * scaling.scale + scaling.shift, dtype=np.float32)

    train = data.train.part(data.order)
    parts = {"train": train, "test": data.test} | ({} if data.validation is None else {"validation": data.validation})
    arrays = {f"x_{name}": inputs(part.x) for name, part in parts.items()}
    arrays |= {f"y_{name}": part.y for name, part in parts.items()}
    arrays["device_train"] = place[np.repeat(np.arange(data.devices), data.sizes)]
    if data.test_owners is not None:
        arrays["device_test"] = place[data.test_owners]
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path.absolute()


def cost_of_joining(experiment: Experiment, far: Floats, data: FederatedData) -> Value:
    """From (I,) edge servers to what an interval costs in which all devices take part, without fading and without the
    keys of secure sums: joules and seconds of the clock, weighed as control weighs them."""
    config, topology = experiment.config, experiment.topology
    training, (_, times) = config.training, check_network(config, topology)
    columns = _columns(topology.subnets)
    wide = [
        replace(subnet, columns={**columns, "distance_m": far[:, number]}, names=None, rules={})
        for number, subnet in enumerate(topology.subnets)
    ]  # every device at every edge server: the networks that associations choose from, as one
    every = replace(topology, subnets=tuple(wide), radio=replace(topology.radio, fading=NoFading()))
    rates = training.sampling_rates(data.sizes)
    steps = training.interval_steps(data.sizes, rates)
    key = Streams(config.seed).key("cloud", "model")
    module = builder_of(config.model, data.shape, data.classes, key, data.whole)()
    parameters = ParameterLayout(module).to_vector(module).numel()
    costs = costs_of(config, every)(parameters, np.tile(rates * data.sizes, topology.edges)).drawn(0)
    segments = [times.of(subnet.name).segments(steps) for subnet in topology.subnets]
    heights = times.heights(steps, topology.depth) if topology.depth > 1 else None
    joule, second = config.control.cost_weights

    def value(home: Integers) -> float:
        used = np.unique(home).tolist()
        tasks = {number: Tasks.planned(np.flatnonzero(home == number), segments[number]) for number in used}
        cost = interval_cost(costs, every, tasks, heights)
        return joule * cost.energy_j + second * cost.clock_s

    return value


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE.yaml", help="an experiment")
    parser.add_argument("places", type=Path, metavar="PLACES.csv", help="columns name, x_m, y_m")
    parser.add_argument("--by", choices=("nearest", "cost", "data"), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--within", type=float, metavar="M", help="how far devices reach, in metres")
    parser.add_argument("--public-labels", action="store_true", help="numbers of records of each label are no secret")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--data-root", type=Path)
    asked = parser.parse_args()
    table = places_of(asked.places)
    changed = joined(
        Experiment.from_file(asked.file, asked.settings),
        table,
        asked.by,
        asked.out,
        within_m=asked.within,
        public_labels=asked.public_labels,
        data_root=asked.data_root,
    )
    if asked.by == "data":
        print("note: the network tells how many records of each label devices have, and no epsilon covers it")
    settings = [*asked.settings, *(f"{key}={word(value)}" for key, value in changed.items())]
    print("run it: " + shlex.join(["h2fdp", "run", str(asked.file), *(f"--set={each}" for each in settings)]))


def places_of(file: Path) -> dict[str, tuple[float, float]]:
    """Name -> (x, y) in metres, of a table.

    Raises:
        UserError: no such table.
    """
    try:
        table = pd.read_csv(file, dtype={"name": str})
        if missing := [head for head in ("name", "x_m", "y_m") if head not in table]:
            raise UserError(f"expected the columns name, x_m and y_m; found no {missing[0]}", str(file))
        if (twice := table["name"].duplicated()).any():
            raise UserError(f"{table['name'][twice].iloc[0]} has two places", str(file))
        numbers = table[["x_m", "y_m"]].astype(float)
    except (OSError, ValueError) as error:
        raise UserError(f"expected a table of names and numbers: {error}", str(file)) from None
    if not np.isfinite(numbers.to_numpy()).all():
        raise UserError("expected a number as x_m and y_m of each line", str(file))
    return {name: (x, y) for name, x, y in zip(table["name"], numbers["x_m"], numbers["y_m"], strict=True)}


if __name__ == "__main__":
    told(main)
