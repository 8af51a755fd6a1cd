"""What an experiment asks of its network: local aggregations, compression, movement, liars, radio."""

from __future__ import annotations

import numpy as np

from h2fdp.algorithms import ServerOptions, rules_in
from h2fdp.config import Document
from h2fdp.costs.batteries import BATTERY
from h2fdp.errors import Problem, UserError, hint
from h2fdp.experiment.privacy_rules import Found, problems_of_network
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import CLOUD, TRUSTS, Adversaries, Topology
from h2fdp.privacy import Holder
from h2fdp.privacy.mechanisms.noise_placement import simulated
from h2fdp.schedules import AggregationTimes
from h2fdp.wording import counted

_STEP_BY_STEP = ("none", "hierarchical", "local", "dp-sgd")  # what is uploaded adds up steps from what was sent


def check_network(
    experiment: ExperimentFile, topology: Topology, document: Document | None = None
) -> tuple[Topology, AggregationTimes]:
    """The network that is simulated, which can do all that the experiment asks of it, and its local aggregations.

    Args:
        document: of the experiment, to name the line of a mistake.

    Raises:
        UserError: it cannot.
    """
    found = [*_of_tiers(experiment, topology), *_of_buffers(experiment, topology), *_of_relays(experiment, topology)]
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
            found += _of_compression(experiment, topology, network)
        if isinstance(server := experiment.method.server, ServerOptions) and server.personal:
            found += _of_subnet_models(experiment, topology, network)
        if topology.mobility is not None:
            found += _of_mobility(experiment, topology)
        if (liars := topology.adversaries) is not None:
            found += _of_adversaries(experiment, topology, network, liars)
        if topology.radio.billed or topology.radio.truncation is not None:
            found += _of_access(experiment, topology, network)
        if BATTERY in network.table.columns:
            found += _of_batteries(experiment, topology)
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


def _of_buffers(experiment: ExperimentFile, topology: Topology) -> Found:
    """What no schedule with buffers has: edge servers above edge servers, and secure sums."""
    method = experiment.method
    if not method.traits.buffers:
        return
    key, tail = "method.schedule", "expected schedule fixed, or another network"
    if topology.depth > 1 and method.topology != "star":
        yield key, f"the event clock has one tier of edge servers; found {topology.depth}; {tail}"
    placement = method.privacy
    if "sum" in {placement.sees(trust) for trust in (topology.cloud_trust, *(each.trust for each in topology.subnets))}:
        text = "the shares of the noise of a secure sum are sized for all devices that take part in a round"
        yield key, f"{text}, not for those that have arrived; {tail}"


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


def _of_subnet_models(experiment: ExperimentFile, topology: Topology, network: Topology) -> Found:
    """What models of subnets do not go with: who sees a sum of several subnets does not know where each began."""
    method, rule = experiment.method, rules_in(experiment.method.aggregation)["edge"].name
    placement, liars = method.privacy, topology.adversaries
    shape = "one subnet" if network is not topology else f"{topology.depth} tiers"
    compressed = experiment.compression.down is not None
    for key, wrong, expected, found in (
        ("topology", network is not topology or topology.depth > 1, "one tier of edge servers", shape),
        ("topology.cloud.trust", placement.sees(topology.cloud_trust) == "sum", "untrusted", topology.cloud_trust),
        ("topology", topology.mobility is not None, "devices that stay", "mobility"),
        ("topology", liars is not None and bool(liars.edges), "honest edge servers", "some that lie"),
        ("method.privacy", placement.name not in _STEP_BY_STEP, f"one of {', '.join(_STEP_BY_STEP)}", placement.name),
        ("method.schedule", method.schedule.name != "fixed", "fixed", method.schedule.name),
        ("method.aggregation", rule != "average", "average", rule),
        ("method.upcycle", method.upcycle is not None, "null", method.upcycle),
        ("compression.down", compressed, "null", experiment.compression.down),
    ):
        if wrong:
            yield key, f"{method.server.name} keeps a model for each edge server; expected {expected}, found {found}"


def _of_mobility(experiment: ExperimentFile, topology: Topology) -> Found:
    """What does not go with devices that change their edge server, or is not accounted for them."""
    method, training, privacy = experiment.method, experiment.training, experiment.privacy
    placement, moving = method.privacy, "devices change their edge server (mobility in the topology)"
    if topology.depth > 1 or method.topology == "star":
        shape = "a star" if method.topology == "star" else f"{topology.depth} tiers"
        yield "topology", f"{moving}; expected one tier of edge servers, found {shape}"
    if method.schedule.name != "fixed":
        yield "method.schedule", f"{moving}; expected fixed, found {method.schedule.name}"
    if training.participation != 1:
        found = f"{training.participation:g}"
        yield "training.participation", f"{moving}; expected 1, and a trace for who takes part; found {found}"
    if training.device_turns != 1:
        text = f"{moving}, and turns are those of one; expected 1"
        yield "training.device_turns", f"{text}, found {training.device_turns}"
    if (memory := method.local_objective.memory) is not None:
        yield "method.objective", f"{moving}, which do not carry {memory} along; expected an objective without a memory"
    for key, stages in (("device", experiment.compression.of_devices), ("edge", experiment.compression.of_edges)):
        if stages:
            yield f"compression.{key}", f"{moving}; expected null"
    if experiment.runtime.placement == "entity":
        yield "runtime.placement", f"{moving}, which has no host of its own for each; expected packed or subnet"
    if not placement.private:
        return
    if privacy.calibration != "accounted":
        text = f"{moving}, and no formula counts what they release"
        yield "privacy.calibration", f"{text}; expected accounted, found {privacy.calibration}"
    if placement.name not in ("hierarchical", "local"):
        yield "method.privacy", f"{moving}; expected hierarchical or local, found {placement.name}"
        return
    trusts = {each.name: each.trust for each in topology.subnets} | {"the cloud": topology.cloud_trust}
    if summing := [name for name, trust in trusts.items() if placement.sees(trust) == "sum"]:
        yield "topology", f"{moving}; expected no secure sums, found those of {summing[0]}"


def _of_batteries(experiment: ExperimentFile, topology: Topology) -> Found:
    """What decides who takes part by more than the plan and the channels, so that no one knows before what is paid."""
    training, schedule, pace = experiment.training, experiment.method.schedule.name, experiment.control.least_ghz
    for key, wrong, expected, found in (
        ("method.schedule", schedule != "fixed", "fixed", schedule),
        ("training.participation", training.participation != 1, "1", f"{training.participation:g}"),
        ("training.device_turns", training.device_turns != 1, "1", training.device_turns),
        ("training.local_epochs", training.local_epochs is not None, "local_steps", training.local_epochs),
        ("topology", topology.mobility is not None, "devices that stay", "mobility"),
        ("control.least_ghz", pace is not None, "null, as who is left computes faster and pays more", pace),
    ):
        if wrong:
            text = f"devices take part as long as their batteries last ({BATTERY})"
            yield key, f"{text}; expected {expected}, found {found}"


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


def _of_compression(experiment: ExperimentFile, topology: Topology, network: Topology) -> Found:
    """What is compressed before it has noise, or is to be hidden by secure sums.

    Args:
        network: that is simulated.
    """
    placement, compression = experiment.method.privacy, experiment.compression
    star, subnets = experiment.method.topology == "star", network.subnets
    trusts = {each.name: each.trust for each in subnets} | {each.name: each.trust for each in topology.aggregators}
    known = [*trusts.items(), (CLOUD, topology.cloud_trust)]
    summing = [name for name, trust in known if placement.sees(trust) == "sum"]
    upper = [name for name in summing if name == CLOUD or topology.height(name) > 1]
    unknown = "and nothing says how far a record moves"
    for subnet in subnets if placement.private and compression.of_devices and not summing else ():
        place = placement.place((subnet.trust,), 1)
        if place is not None and place.by_node and "cloud" not in placement.trusted:
            text = f"{subnet.name} adds the noise, {unknown} a compressed update"
            yield "compression.device", f"{text}; expected null, untrusted edge servers or method.privacy local"
            break
    for subnet in subnets if placement.private and compression.of_edges and not upper and not star else ():
        path = topology.path(subnet.name)
        place = placement.place([trusts[name] for name in path], len(path))
        if place is not None and 1 < place.trusted <= len(path):
            text = f"{path[place.node]} adds the noise to what {subnet.name} sends up, {unknown} a compressed average"
            yield "compression.edge", f"{text}; expected null"
            break
    if summing and compression.of_models:
        text = f"{summing[0]} holds secure sums, whose messages are counted by those of whole models"
        yield "compression.down", f"{text}; expected null"
    for key, holders in (("device", summing), ("edge", upper)):
        if placement.private and key in compression.stated and holders:
            text = f"{holders[0]} holds secure sums, which are of whole vectors and hide no compressed ones"
            yield f"compression.{key}", f"{text}; expected null"


def _of_adversaries(experiment: ExperimentFile, topology: Topology, network: Topology, liars: Adversaries) -> Found:
    """What liars do not go with: sums that hide them, noise that is sized for the truth, secrets that they lack."""
    method = experiment.method
    edges, attack, schedule = "topology.adversaries.edges", liars.attack, method.traits
    if liars.edges and attack.poisons:
        text = f"edge servers have no records, which {attack.name} makes false"
        yield edges, f"{text}; expected devices, or another attack"
    if liars.edges and network is not topology:
        yield (
            edges,
            "edge servers of a star, and relays, pass messages on; expected devices that lie, or another network",
        )
    if topology.mobility is not None:
        yield "topology.mobility", "liars are counted where they are; expected no mobility, or no adversaries"
    if schedule.controlled or schedule.measures is not None or schedule.buffers:
        text = f"{method.schedule.name} counts on all devices alike; expected schedule fixed, or no adversaries"
        yield "method.schedule", text
    yield from _of_lies_under_noise(experiment, network, liars)


def _of_lies_under_noise(experiment: ExperimentFile, network: Topology, liars: Adversaries) -> Found:
    placement = experiment.method.privacy
    if not placement.private:
        return
    edges, attack = "topology.adversaries.edges", "topology.adversaries.attack"
    trusts = {each.name: each.trust for each in network.servers()}
    summing = any(placement.sees(trust) == "sum" for trust in (*trusts.values(), network.cloud_trust))
    if summing and (liars.edges or liars.attack.omniscient or placement.rounding is not None):
        text = "secure sums hide single uploads from liars, too, and edge servers follow their protocol"
        yield attack, f"{text}; expected devices with another attack and rounding: null, or no secure sums"
    if liars.attack.omniscient and liars.edges and network.depth > 1:
        yield attack, f"{liars.attack.name} of edge servers knows single averages; expected one tier, or another attack"
    for number, subnet in enumerate(network.subnets):
        path = network.path(subnet.name)
        place = placement.place([trusts[name] for name in path], len(path))
        if place is None or not place.by_node:
            continue
        if lying := [name for name in path[: place.node] if name in liars.edges]:
            text = f"{lying[0]} sends up what has no noise yet, and that further up is sized for the truth"
            yield edges, f"{text}; expected edge servers that add noise, or untrusted ones"
            return
        if liars.attack.omniscient and (network.lying_devices(number) or place.node >= len(path)):
            text = f"{liars.attack.name} needs what others upload, which has no noise below {subnet.name} and is secret"
            yield attack, f"{text}; expected untrusted edge servers, or another attack"
            return
