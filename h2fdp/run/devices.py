"""The devices of a run: their places, their records, the costs of their messages; those that lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.costs.messages import NetworkCosts
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.public_features import pixel_bounds
from h2fdp.data.records import Records
from h2fdp.data.targets import CLASS
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.network.adversaries import Backdoor, LabelFlip
from h2fdp.network.devices import Floats
from h2fdp.privacy import Pipeline
from h2fdp.streams import Streams

if TYPE_CHECKING:
    from h2fdp.run.setup import RunInputs

_SIDE = 3  # of the square, in pixels
_KEY = "topology.adversaries.attack"


def costs_of(config: ExperimentFile, network: Topology) -> Callable[[int, Floats], NetworkCosts]:
    """A map from M and (I,) numbers to costs of messages with M parameters and of steps with so many records."""
    return lambda parameters, records: NetworkCosts(
        network,
        parameters,
        Streams(config.seed),
        config.control.power_rule,
        records,
        Pipeline(config.compression.of_devices).message_bits,
        Pipeline(config.compression.of_edges).message_bits,
        Pipeline(config.compression.of_models).message_bits,
        config.control.frequency_rule,
    )


def of_visits(data: DeviceData, network: Topology, intervals: int) -> DeviceData:
    """The records of each row of a network in which devices move.

    Raises:
        UserError: no device ever is at an edge server; records that cannot move with their devices.
    """
    visits = network.visits
    assert visits is not None, "devices move"
    if not any(visits.there(interval).any() for interval in range(intervals)):
        text = f"mobility has every device nowhere in all {intervals} intervals; expected some at edge servers"
        raise UserError(text, key="topology")
    if len(data.sizes) == len(visits.device):
        return data
    if not isinstance(data, FederatedData):
        text = "records that are drawn where they are trained on belong to one edge server each; expected fewer of them"
        raise UserError(f"{text}, or no mobility in the topology", key="data")
    return data.for_rows(visits.device)


def poisoned(data: DeviceData, topology: Topology, streams: Streams) -> DeviceData:
    """The data with the false records of the devices that lie.

    Raises:
        UserError: records that no attack can make false.
    """
    liars = topology.adversaries
    assert liars is not None, "some devices lie"
    if not isinstance(data, FederatedData):
        text = "records that are drawn where they are trained on stay as they are; expected fewer of them"
        raise UserError(f"{text}, or another attack", key=_KEY)
    if data.target != CLASS:
        text = f"its labels are those of classes, and of these records they are {data.target.task}"
        raise UserError(f"{text}; expected another attack", key=_KEY)
    attack, lying, train = liars.attack, frozenset(liars.devices), data.train
    places = {
        name: data.order[data.offsets[device] : data.offsets[device + 1]]
        for device, name in enumerate(topology.device_names())
        if name in lying
    }
    labels = train.y.copy()
    if isinstance(attack, LabelFlip):
        for own in places.values():
            labels[own] = data.classes - 1 - labels[own]
        return replace(data, train=Records(train.x, labels))
    assert isinstance(attack, Backdoor), "these two make records false"
    _check(attack, data)
    images = train.x.copy()
    for name, own in places.items():
        chosen = streams.public.open(name, "backdoor").permutation(own)[: int(np.ceil(attack.records * len(own)))]
        images[chosen] = _with_square(images[chosen], data)
        labels[chosen] = attack.target
    return replace(data, train=Records(images, labels))


def _check(attack: Backdoor, data: FederatedData) -> None:
    if len(data.shape) < 2 or min(data.shape[-2:]) < _SIDE:
        raise UserError(f"a backdoor is a square of pixels; expected images, found records {data.shape}", key=_KEY)
    if attack.target >= data.classes:
        text = f"expected a label below {data.classes}, found {attack.target}"
        raise UserError(text, key=f"{_KEY}.target")


def _with_square(images: np.ndarray, data: DeviceData) -> np.ndarray:
    """A copy with white pixels in the lower right corner."""
    changed = images.copy()
    changed[..., -_SIDE:, -_SIDE:] = pixel_bounds(data)[1]
    return changed


def backdoor_of(topology: Topology) -> Backdoor | None:
    """The attack, where it is one."""
    return None if topology.adversaries is None else topology.adversaries.backdoor


def triggered(run: RunInputs, attack: Backdoor) -> Records:
    """The test images of other labels than the target, with the square and the target for a label, as the model sees
    them: the share of them that it calls so is the success of the attack."""
    raw = run.given
    others = raw.test.part(np.flatnonzero(raw.test.y != attack.target))
    inputs = _with_square(others.x, raw)
    if run.features is not None:
        inputs = run.features.kept(inputs, *pixel_bounds(raw))
    elif run.standardizing is not None:
        inputs = run.standardizing(inputs)
    return Records(inputs, np.full(len(others), attack.target))
