"""What an experiment asks of its network; what is optional states in its own file what it does not go with."""

from __future__ import annotations

import numpy as np

from h2fdp.algorithms import ServerOptions
from h2fdp.config import Document
from h2fdp.costs import batteries
from h2fdp.errors import Problem, UserError, hint
from h2fdp.experiment.privacy_rules import Found, problems_of_network
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import CLOUD, TRUSTS, Topology, adversaries, mobility
from h2fdp.privacy import Holder
from h2fdp.privacy.mechanisms import compression
from h2fdp.privacy.mechanisms.noise_placement import simulated
from h2fdp.schedules import AggregationTimes, buffered
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
    found = [*_of_tiers(experiment, topology), *_of_relays(experiment, topology)]
    if experiment.method.traits.buffers:
        found += buffered.refusals_of_network(experiment, topology)
    if not found:
        found += _of_choices(experiment, topology)
        star = experiment.method.topology == "star"
        times = AggregationTimes() if star else _aggregation_times(experiment, topology)
        network = simulated(topology, experiment.method.topology, experiment.method.privacy)
        if network is not topology:
            times = AggregationTimes()  # edge servers relay
        if experiment.method.local_objective.memory is not None:
            found += _of_memory(experiment, network)
        if experiment.compression.asked:
            found += compression.refusals_of_network(experiment, topology, network)
        if isinstance(server := experiment.method.server, ServerOptions):
            found += server.refusals(experiment, topology, network)
        if topology.mobility is not None:
            found += mobility.refusals(experiment, topology)
        if (liars := topology.adversaries) is not None:
            found += adversaries.refusals(experiment, topology, network, liars)
        if topology.radio.billed or topology.radio.truncation is not None:
            found += _of_access(experiment, topology, network)
        if batteries.BATTERY in network.table.columns:
            found += batteries.refusals(experiment, topology)
        if not all(server.link.plain for server in topology.servers()):
            found += _of_links(experiment, topology, network)
        found += [*_of_trust(experiment, topology), *problems_of_network(experiment, topology, network, times)]
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


def _of_relays(experiment: ExperimentFile, topology: Topology) -> Found:
    """What edge servers cannot do that see masked vectors alone, of one sum over the whole network."""
    method, training = experiment.method, experiment.training
    trusts = {each.name: each.trust for each in topology.subnets} | {
        each.name: each.trust for each in topology.aggregators
    }
    relay = next((name for name, trust in trusts.items() if trust == "relay"), None)
    if relay is None or method.topology == "star" or method.privacy.sees("relay") == "each":
        return
    if (other := next((name for name, trust in trusts.items() if trust != "relay"), None)) is not None:
        text = f"{relay} relays masked vectors of one sum over the whole network; expected relay for all edge servers"
        yield "topology", f"{text}, found {other} {trusts[other]}"
    if method.traits.controlled:
        text = "the controller plans with subnets, and relays make one sum of the whole network"
        yield "control.enabled", f"{text}; expected false, or secure-sum edge servers"
    key = "aggregate_every" if training.aggregate_every is not None else "aggregations_per_interval"
    times, steps = AggregationTimes(training.aggregate_every, training.aggregations_per_interval), training.local_steps
    if steps is not None and times.offsets(steps) and not {key, "local_steps"} & training.left_open:
        right = f"at least local_steps, {steps}" if key == "aggregate_every" else "0"
        text = (
            f"{relay} sees masked vectors, and the cloud alone their sum, so no edge server averages between its models"
        )
        yield f"training.{key}", f"{text}; expected {right}; found {getattr(training, key)}"


def _of_trust(experiment: ExperimentFile, topology: Topology) -> Found:
    """Edge servers that see raw updates although the file says that they may not; of trust by chance a run tells."""
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
    placement, memory = method.privacy, method.local_objective.memory
    if not placement.private or placement.protects == "device":
        return
    for subnet in network.subnets:
        place = placement.place((subnet.trust,), 1)
        if place is None or place.holder is not Holder.STEP:
            text = f"devices of {subnet.name}, which is {subnet.trust}, add no noise to their steps, and would keep raw"
            right = "privacy dp-sgd, local with noise: steps, or untrusted edge servers"
            yield "method.objective", f"{text} what they remember ({memory}); expected {right}"
            return


def _of_access(experiment: ExperimentFile, topology: Topology, network: Topology) -> Found:
    """What does not go with parts of the channel that costs follow, or with uploads that add up in the air.

    Args:
        network: that is simulated.
    """
    radio, method, key = topology.radio, experiment.method, "topology.radio.access"
    over_the_air, placement = radio.truncation is not None, method.privacy
    what, schedule = f"{radio.access.name}{'' if over_the_air else ' with shares'}", method.traits
    if schedule.buffers or schedule.controlled:
        text = "aggregators do not wait for all" if schedule.buffers else "the controller prices each message by itself"
        yield key, f"under {method.schedule.name} {text}; expected tdma, or ofdma without shares; found {what}"
    if not over_the_air:
        return
    tail = "expected tdma or ofdma; found over-the-air"
    if method.combination.visible == "each":
        yield key, f"the aggregation compares single uploads, and signals in the air are a sum; {tail}"
    if experiment.compression.of_devices:
        yield "compression.device", "signals add up in the air number by number, without a code; expected null"
    if network.subnets[0].relays is not None:
        text = "in a star access points pass on what each device sends, and signals in the air are a sum"
        if network.relayed:
            text = "signals add up in the air as they are, and edge servers that relay may see masked vectors alone"
        yield key, f"{text}; {tail}"
    summing = [each.name for each in topology.subnets if placement.sees(each.trust) == "sum"]
    place = placement.place(("secure-sum",), 1)
    if not summing or place is None or place.holder is not Holder.SHARE:
        return
    if placement.rounding is not None:
        text = "signals add up as they are, not modulo a number"
        yield "method.privacy.secure_sum.rounding", f"{text}; expected null over the air, found {placement.rounding}"
    if experiment.faults.faults().of_devices:
        text = f"{summing[0]} would hear a sum without the shares of noise of devices that fail, as nothing seals it"
        yield "faults", f"{text}; expected no failing devices, or {tail.removeprefix('expected ')}"


def _of_links(experiment: ExperimentFile, topology: Topology, network: Topology) -> Found:
    """What counts messages over wires, and knows no link whose seconds depend on the moment.

    Args:
        network: that is simulated.
    """
    method, sees = experiment.method, experiment.method.privacy.sees
    own = next(server.name for server in topology.servers() if not server.link.plain)
    text, expected = f"{own} has a link that is no plain wire", "expected rate_mbps and power_dbm alone"
    if method.traits.controlled:
        yield "topology", f"{text}, and the controller prices each message by its bits; {expected}, or no controller"
    star = network.subnets[0].relays is not None
    upper = network.subnets if star else network.aggregators
    summing = next((each.name for each in upper if sees(each.trust) == "sum"), None)
    if summing is not None or (not star and sees(network.cloud_trust) == "sum"):
        why = f"{summing or CLOUD} holds secure sums, whose keys and shares are counted in messages over wires"
        yield "topology", f"{text}, and {why}; {expected}, or no secure sums above edge servers"


def _aggregation_times(experiment: ExperimentFile, topology: Topology) -> AggregationTimes:
    """With a mapping by trust as one by the names of edge servers."""
    every = experiment.training.aggregate_every
    if isinstance(every, dict):
        every = {each.name: every[each.name if each.name in every else each.trust] for each in topology.subnets}
    return AggregationTimes(every, experiment.training.aggregations_per_interval)


def _of_choices(experiment: ExperimentFile, topology: Topology) -> Found:
    """A least power or frequency that leaves a device no choice."""
    control = experiment.control
    for key, least, column in (
        ("least_dbm", control.least_dbm, "power_dbm"),
        ("least_ghz", control.least_ghz, "cpu_ghz"),
    ):
        if least is None:
            continue
        if key == "least_ghz" and "cycles_per_record" not in topology.table.columns:
            yield f"control.{key}", "the devices of this network state no cycles_per_record; expected null"
            continue
        own, name = min(
            (float(own.min()), subnet.device_name(int(np.argmin(own))))
            for subnet in topology.subnets
            for own in [subnet.column(column)]
        )
        if own <= least:
            yield f"control.{key}", f"expected a number below {own:g}, the {column} of {name}; found {least:g}"
