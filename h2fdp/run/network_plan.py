"""A network planned without training: the noise in its last model, its costs, and whether accuracy depends on more.

Let every device take one step on its own records between two messages, take part in each interval, and weigh as many
records as it has. Then the global model moves by the mean of all records' clipped gradients plus one Gaussian vector,
as if one machine held all records: who holds which, under which edge server, and who adds noise change the deviation of
that vector and nothing else. What `auto` chooses (intervals, features, step size) follows from it, too. So two networks
of equal noise and equal records have models of one law, whatever their shape, trust and epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from h2fdp.algorithms import WeightedAverage
from h2fdp.costs.batteries import has_batteries
from h2fdp.data.federate import DataSource
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.records import Records
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.privacy.vectors import GAUSSIAN
from h2fdp.protocol.planned_releases import PlannedNoise
from h2fdp.run.forecast import budgets_of, noise_on_model, planned_work
from h2fdp.run.prepare import prepare
from h2fdp.run.recipe import FARTHEST
from h2fdp.run.setup import RunSetup

ALIKE = 0.01  # relative: numbers of records that differ by less are equal here


@dataclass(frozen=True)
class NetworkPlan:
    """A network under a method and a target, planned.

    Attributes:
        noise: x, the standard deviation of the noise in the last model, in scores of a linear model that went the
            farthest way of 30 intervals (`docs/defaults.md`): 6000 sqrt(N) / (n mu) of N equal noises and n records.
        joules, seconds, bytes: of the whole run, see `PlannedWork`; seconds of the clock.
        intervals, edges, devices, records: how many there are.
        depends: on what else accuracy depends, in words; empty where `noise` alone decides among equal records.
    """

    noise: float
    joules: float
    seconds: float
    bytes: float
    intervals: int
    edges: int
    devices: int
    records: int
    depends: str = ""


def planned(config: ExperimentFile, topology: Topology, source: DataSource) -> RunSetup:
    """An experiment on a network, to be planned: no training record's input is read, and nothing can be trained.

    Args:
        source: of the records, whose numbers and labels say how many each device has.

    Raises:
        UserError: see `prepare`; the method adds no noise.
    """
    setup = prepare(config, topology, data_source=lambda *groups: _blank(source(*groups)), trains=False)
    if setup.noise is None:
        text = "this method adds no noise, so that neither trust nor epsilon changes its accuracy"
        raise UserError(f"{text}; expected one that does, as h2fdp", key="method.privacy")
    return setup


def plan_of(setup: RunSetup) -> NetworkPlan:
    """The plan of a network."""
    costs, topology = planned_work(setup).costs, setup.drawn
    return NetworkPlan(
        noise_of_way(setup),
        costs["energy_j"],
        costs["clock_s"],
        costs["bytes"],
        setup.config.training.intervals,
        topology.edges,
        topology.devices,
        int(setup.data.sizes.sum()),
        next(_more_than_noise(setup), ""),
    )


def squares_by_server(setup: RunSetup) -> NDArray[np.float64]:
    """(N,) the part of each edge server and its devices in the square of the noise x, in a network of one tier."""
    plan, facts = setup.first_plan, {each.name: each for each in setup.blueprint.facts}
    known = PlannedNoise(facts, setup.noise)
    variances = np.array([float(known.variances(plan, name).sum()) for name in plan.subnets])
    parts = np.asarray(plan.weights) ** 2 * variances
    return np.asarray(parts * noise_of_way(setup) ** 2 / parts.sum())


def _blank(data: DeviceData) -> DeviceData:
    """A copy whose training records have zeros for inputs, which take no memory; records that are drawn stay."""
    if not isinstance(data, FederatedData):
        return data
    zeros = np.broadcast_to(np.float32(0), data.train.x.shape)
    return replace(data, train=Records(zeros, data.train.y))


def noise_of_way(setup: RunSetup) -> float:
    """x of a run, see `NetworkPlan`: the same for any clip norm and any step size."""
    training, model = setup.config.training, noise_on_model(setup)
    assert training.largest_norm is not None, "what gets noise is clipped"
    whole = training.step_size if setup.placement.clips == "update" else 1.0  # by which its way alone grows
    return FARTHEST[True] * model.per_step * whole / training.largest_norm


def _more_than_noise(setup: RunSetup) -> Iterator[str]:
    """On what accuracy depends besides the noise in the last model and the records as a whole, in words."""
    config, training, traits, topology = setup.config, setup.config.training, setup.traits, setup.topology
    objective = config.method.objective.name
    if setup.personal:
        yield "devices have models of their own"
    elif objective != "plain" or training.optimizer is not None:
        yield f"devices do not follow plain gradients ({objective if training.optimizer is None else 'an optimizer'})"
    if setup.placement.protects == "device":
        yield "whole uploads are clipped, and how long they are depends on which records a device has"
    elif setup.placement.clips not in ("gradient", "record") or training.clip_scope != "record":
        yield "gradients are clipped as means of a device's records, so that it depends on who has which"
    if setup.local_steps > 1 or training.local_epochs is not None:
        yield f"devices take {setup.local_steps} local steps between messages, in which their models drift apart"
    if setup.placement.noise_law is not GAUSSIAN:
        yield "the sum of many noises has another law than one noise"
    if config.control.enabled or not traits.foreseen or traits.controlled or traits.varies_tau:
        yield "the schedule decides by more than the noise"
    if traits.buffers:
        yield "aggregators do not wait, so that uploads begin at older models"
    if training.sampling_rate is None or (training.sampling_rate < 1 and training.sampling != "poisson"):
        yield "batches have a stated size, whatever the number of a device's records"
    absent = training.public_share < 1 or training.device_turns != 1 or setup.blueprint.draw is not None
    if absent or setup.faults.possible or has_batteries(topology) or topology.moving is not None:
        yield "not all devices take part in each interval"
    if any(rule != WeightedAverage() for rule in config.method.rules.values()):
        yield "uploads are not averaged by plain shares (method.aggregation)"
    sizes = setup.data.sizes
    if training.weights != "by-size" and sizes.max() > 1 + (1 + ALIKE) * sizes.min():
        yield f"devices with more records than others weigh no more (training.weights: {training.weights})"
    if setup.targets.own is not None:
        yield "devices with an epsilon of their own weigh less"
    if topology.replacing is not None:
        yield "some nodes lie"
    if config.messages.key:
        yield "compressed messages have errors of their own"
    if budgets_of(setup) or training.until is not None:
        yield "runs may end before their last interval"
