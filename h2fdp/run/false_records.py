"""The records of devices that lie: false labels, and images with a backdoor's square."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.public_features import pixel_bounds
from h2fdp.data.records import Records
from h2fdp.data.targets import CLASS
from h2fdp.errors import UserError
from h2fdp.network import Topology
from h2fdp.network.adversaries import Adversaries, Backdoor, LabelFlip
from h2fdp.run.devices import scored, trained_on
from h2fdp.streams import Streams

if TYPE_CHECKING:
    from h2fdp.run.setup import RunInputs

_SIDE = 3  # of the square, in pixels
_KEY = "topology.adversaries.attack"


@trained_on.register(Adversaries)
def poisoned(part: Adversaries, data: DeviceData, topology: Topology, streams: Streams) -> DeviceData:
    """The data with the false records of the devices that lie.

    Raises:
        UserError: records that no attack can make false.
    """
    attack, lying = part.attack, frozenset(part.devices)
    if not attack.poisons:
        return data
    if not isinstance(data, FederatedData):
        text = "records that are drawn where they are trained on stay as they are; expected fewer of them"
        raise UserError(f"{text}, or another attack", key=_KEY)
    if data.target != CLASS:
        text = f"its labels are those of classes, and of these records they are {data.target.task}"
        raise UserError(f"{text}; expected another attack", key=_KEY)
    train = data.train
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


@scored.register(Adversaries)
def triggered(part: Adversaries, run: RunInputs) -> Records:
    """The test images of other labels than the target, with the square and the target for a label, as the model sees
    them: the share of them that it calls so is the success of the attack."""
    raw, attack = run.given, part.attack
    assert isinstance(attack, Backdoor), "scores have a prefix"
    others = raw.test.part(np.flatnonzero(raw.test.y != attack.target))
    inputs = _with_square(others.x, raw)
    if run.features is not None:
        inputs = run.features.kept(inputs, *pixel_bounds(raw))
    elif run.standardizing is not None:
        inputs = run.standardizing(inputs)
    return Records(inputs, np.full(len(others), attack.target))
