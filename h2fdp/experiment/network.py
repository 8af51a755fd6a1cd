"""The rules of an experiment for its network; an optional capability states in its own file what it excludes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from h2fdp.algorithms import ServerOptions
from h2fdp.config import Document
from h2fdp.errors import NETWORK_REFUSALS, Problem, UserError, hint
from h2fdp.experiment.rules import Found
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import TRUSTS, Topology
from h2fdp.privacy import Holder
from h2fdp.privacy.mechanisms.noise_placement import simulated
from h2fdp.schedules import AggregationTimes
from h2fdp.wording import counted


def check_network(
    experiment: ExperimentFile, topology: Topology, document: Document | None = None
) -> tuple[Topology, AggregationTimes]:
    """The network that is simulated, which can do all that the experiment asks of it, and its local aggregations.

    Args:
        document: of the experiment, to name the line of a mistake.

    Raises:
        UserError: it cannot.
    """
    found, network = [*_of_tiers(experiment, topology)], topology
    if not found:
        times = AggregationTimes() if experiment.method.topology == "star" else _aggregation_times(experiment, topology)
        network = simulated(topology, experiment.method.topology, experiment.method.privacy)
        if network is not topology:
            times = AggregationTimes()  # edge servers relay
        found = [*_of_choices(experiment, topology), *_of_trust(experiment, topology)]
        if experiment.method.local_objective.memory is not None or experiment.training.optimizer is not None:
            found += _of_memory(experiment, network)
        if isinstance(server := experiment.method.server, ServerOptions):
            found += server.refusals(experiment, topology, network)
        found += NETWORK_REFUSALS.of(experiment, topology, network)
    if found:
        raise UserError(
            Problem(text, "" if document is None else document.where(key.split(".")), key) for key, text in found
        )
    return network, times


def _of_tiers(experiment: ExperimentFile, topology: Topology) -> Found:
    """Local aggregations of tiers or edge servers that the network does not have."""
    for key in ("aggregate_every", "aggregations_per_interval"):
        stated = getattr(experiment.training, key)
        if isinstance(stated, list) and len(stated) > topology.depth:
            tiers = "one tier" if topology.depth == 1 else f"{topology.depth} tiers"
            text = f"expected at most one number for each tier of edge servers, found {len(stated)} for {tiers}"
            yield f"training.{key}", text
    every, key = experiment.training.aggregate_every, "training.aggregate_every"
    if not isinstance(every, dict) or experiment.method.topology == "star":
        return
    if topology.depth > 1:
        yield key, "expected a list in a network of several tiers, one number for each; found a mapping"
        return
    known = {*TRUSTS, *(subnet.name for subnet in topology.subnets)}
    for name in every:
        if name not in known:
            text = f"expected {', '.join(TRUSTS)} or the name of an edge server, found {name}{hint(name, known)}"
            yield f"{key}.{name}", text
            return
    for subnet in topology.subnets:
        if subnet.name not in every and subnet.trust not in every:
            text = f"expected a number for the edge server {subnet.name}, by its name or as {subnet.trust}; found none"
            yield key, text
            return


def _of_trust(experiment: ExperimentFile, topology: Topology) -> Found:
    """Edge servers that see raw updates although the file says that they may not; a run notes those of random trust."""
    method = experiment.method
    if not method.privacy.private or "cloud" not in method.privacy.trusted or method.topology == "star":
        return
    untrusted = [server for server in topology.servers() if server.trust != "trusted"]
    if untrusted and topology.states_trust:
        others = f", as {counted(len(untrusted) - 1, 'other')}," if len(untrusted) > 1 else ""
        text = f"{untrusted[0].name} is {untrusted[0].trust}{others} and would see raw updates"
        right = "expected trusted edge servers, topology: star, or privacy hierarchical or local"
        yield "method.privacy", f"{text}; {right}; found {method.privacy.name}"


def _of_memory(experiment: ExperimentFile, network: Topology) -> Found:
    """Devices that add no noise to their steps would remember raw gradients; where devices are protected, they may."""
    method = experiment.method
    placement, key, memory = method.privacy, "method.objective", method.local_objective.memory
    if (optimizer := experiment.training.optimizer) is not None and optimizer.keeps:
        key, memory = "training.optimizer.state", f"moments of {optimizer.name}"
    if memory is None or not placement.private or placement.protects == "device":
        return
    for subnet in network.subnets:
        place = placement.place((subnet.trust,), 1)
        if place is None or place.holder is not Holder.STEP:
            text = f"devices of {subnet.name}, which is {subnet.trust}, add no noise to their steps, and would keep raw"
            right = "privacy dp-sgd, local with noise: steps, or untrusted edge servers"
            yield key, f"{text} what they remember ({memory}); expected {right}"
            return


def _aggregation_times(experiment: ExperimentFile, topology: Topology) -> AggregationTimes:
    """The aggregation times, with a mapping by trust as one by the names of edge servers."""
    every = experiment.training.aggregate_every
    if isinstance(every, dict):
        every = {each.name: every[each.name if each.name in every else each.trust] for each in topology.subnets}
    return replace(experiment.training.aggregation_times, every=every)


def _of_choices(experiment: ExperimentFile, topology: Topology) -> Found:
    """A least power or frequency that leaves a device no choice."""
    for key, column in (("least_dbm", "power_dbm"), ("least_ghz", "cpu_ghz")):
        if (least := getattr(experiment.control, key)) is None:
            continue
        own = np.concatenate([subnet.column(column) for subnet in topology.subnets])
        if column == "cpu_ghz" and "cycles_per_record" not in topology.table.columns:
            yield f"control.{key}", "the devices of this network state no cycles_per_record; expected null"
        elif own.min() <= least:
            name = topology.device_names()[int(own.argmin())]
            yield f"control.{key}", f"expected a number below {own.min():g}, the {column} of {name}; found {least:g}"
