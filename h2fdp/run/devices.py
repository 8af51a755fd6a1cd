"""The devices of a run: the costs of their messages; their records, where they move, or send something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING

from h2fdp.costs.messages import NetworkCosts
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.records import Records
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.network.devices import Floats
from h2fdp.network.parts import Replacing
from h2fdp.streams import Streams

if TYPE_CHECKING:
    from h2fdp.run.setup import RunInputs


def costs_of(config: ExperimentFile, network: Topology) -> Callable[[int, Floats], NetworkCosts]:
    """A map from M and (I,) numbers to costs of messages with M parameters and of steps with so many records."""
    return lambda parameters, records: NetworkCosts(
        network,
        parameters,
        Streams(config.seed),
        config.control.power_rule,
        records,
        config.messages.devices.message_bits,
        config.messages.edges.message_bits,
        config.messages.models.message_bits,
        config.control.frequency_rule,
    )


def of_rows(data: DeviceData, network: Topology, intervals: int) -> DeviceData:
    """The records of each row of a network in which devices move.

    Raises:
        UserError: no device ever is at an edge server; records that cannot move with their devices.
    """
    if (membership := network.membership) is None:
        return data
    if not any(membership.there(interval).any() for interval in range(intervals)):
        text = f"{network.moving} has every device nowhere in all {intervals} intervals; expected some at edge servers"
        raise UserError(text, key="topology")
    if len(data.sizes) == len(membership.device):
        return data
    if not isinstance(data, FederatedData):
        text = "records that are drawn where they are trained on belong to one edge server each; expected fewer of them"
        raise UserError(f"{text}, or no {network.moving} in the topology", key="data")
    return data.for_rows(membership.device)


@singledispatch
def trained_on(part: Replacing, data: DeviceData, topology: Topology, streams: Streams) -> DeviceData:
    """The data that devices train on where some of them send something else: as they are, unless its file says more."""
    return data


@singledispatch
def scored(part: Replacing, run: RunInputs) -> Records:
    """The further test records of which scores have a prefix (`Replacing.scored`), as the model sees them."""
    raise TypeError(f"{type(part).__name__} names scores of further records, and registers none with `scored`")
