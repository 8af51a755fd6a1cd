"""What an experiment asks of its network: local aggregations, secure sums, adaptive clip norms, transmit powers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from h2fdp.algorithms.aggregation import WeightedAverageOptions
from h2fdp.config import Document
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.training_section import Slots
from h2fdp.privacy import SecureSum, UploadClipping, noise_placement_of
from h2fdp.schedules import AggregationTimes
from h2fdp.schedules.client_sampling import share_of
from h2fdp.schedules.registry import chosen
from h2fdp.topology import TRUSTS, Topology


def check_transmit_power(experiment: ExperimentFile, topology: Topology, document: Document | None = None) -> None:
    """Refuse a least power that leaves a device no choice.

    Raises:
        UserError: a device whose own power is not above the least.
    """
    form = experiment.control.power
    if form is None:
        return
    for subnet in topology.subnets:
        row = int(np.argmin(subnet.power_dbm))
        if subnet.power_dbm[row] <= form.least_dbm:
            text = f"expected a number below {subnet.power_dbm[row]:g}, the power_dbm of {subnet.device_name(row)}"
            where = "" if document is None else document.where(("control", "power", "least_dbm"))
            raise UserError(f"{text}; found {form.least_dbm:g}", where, "control.power.least_dbm")


_KEY = "method.privacy.secure_sum"


def check_secure_sums(experiment: ExperimentFile, topology: Topology, document: Document | None = None) -> None:
    """Raise for what no secure sum of this network can do; other methods treat its edge servers as untrusted.

    Raises:
        UserError: too few devices for what is to be withstood, private estimates, a controller that would have to know
            of drop-outs, or under a budget of messages to nodes above edge servers, another aggregation than the
            average; at the cloud a star, or a schedule that learns.
    """
    placement = noise_placement_of(experiment.method.privacy)
    trust_model = placement.trust_model("secure-sum")
    holds = any(server.trust == "secure-sum" for server in topology.servers())
    star = experiment.method.topology == "star" or topology.subnets[0].relays is not None
    if not isinstance(trust_model, SecureSum) or not (placement.cloud_sums or (holds and not star)):
        return
    found = [
        Problem(text, "" if document is None else document.where(key.split(".")), key)
        for key, text in _problems(experiment, topology, trust_model)
    ]
    if found:
        raise UserError(found)


def _problems(experiment: ExperimentFile, topology: Topology, sums: SecureSum) -> Iterator[tuple[str, str]]:
    method, tolerance, schedule = experiment.method, sums.tolerance, chosen(experiment.method.schedule)
    if method.privacy.build().cloud_sums:
        yield from _of_the_cloud(experiment, topology)
    if not isinstance(method.aggregation, WeightedAverageOptions):
        text = "under secure sums devices weigh their uploads before they know who drops out"
        yield "method.aggregation", f"{text}; expected average, found {method.aggregation.name}"
    if schedule.measures == "gradients" and experiment.control.estimates == "private":
        text = "a secure-sum edge server sees no estimates of single devices; expected released"
        yield "control.estimates", f"{text}, found private"
    if sums.rounding is not None and method.privacy.build().input_norm is not None:
        text = "integers stand for vectors of bounded length, which clipped gradients make"
        yield f"{_KEY}.rounding", f"{text}; expected null with input_bound, found {sums.rounding}"
    if sums.rounding is not None and schedule.measures == "secants":
        text = "a sum of integers says nothing of single devices, which this schedule measures"
        yield f"{_KEY}.rounding", f"{text}; expected null, found {sums.rounding}"
    if schedule.controlled and (tolerance.colluding or tolerance.dropouts):
        text = "the controller weighs costs against the noise of one trusted edge server, which tolerances multiply"
        yield _KEY, f"{text}; expected colluding: 0 and dropouts: 0 with control"
    above = [server.name for server in topology.aggregators if server.trust == "secure-sum"]
    if above and experiment.control.enabled and experiment.control.budget is not None:
        text = f"what is exchanged for the secure sums of {above[0]} is in no plan's costs, so that it could exceed the"
        yield "control.budget", f"{text} budget; expected secure sums at the lowest edge servers alone"
    subnets = [subnet for subnet in topology.subnets if subnet.trust == "secure-sum"]
    sizes = np.array([subnet.size for subnet in subnets], dtype=np.int64)
    taking = share_of(sizes, experiment.training.participation).tolist()
    for subnet, begin in zip(subnets, taking, strict=True):
        if tolerance.honest_shares(begin) < 1:
            lost = tolerance.lost(begin)
            text = f"of {begin} devices of {subnet.name} that take part, {tolerance.colluding} may collude and {lost}"
            yield _KEY, f"{text} drop out, which leaves nobody whose share of the noise is unknown; expected fewer"
            return


def _of_the_cloud(experiment: ExperimentFile, topology: Topology) -> Iterator[tuple[str, str]]:
    """What does not go with a secure sum at the cloud."""
    if experiment.method.topology == "star" or topology.subnets[0].relays is not None:
        text = "in a star the cloud's own edge server has the devices, whose trust the topology states"
        yield f"{_KEY}.cloud", f"{text}; expected false"
    if not chosen(experiment.method.schedule).foreseen:
        text = "a sum hides what each child of the cloud uploads, and its messages are in no plan's costs"
        yield f"{_KEY}.cloud", f"{text}; expected false, or a schedule that is fixed before the run"


def check_adaptive_clipping(experiment: ExperimentFile, topology: Topology, document: Document | None = None) -> None:
    """Refuse several steps between two releases of a subnet whose noise is on uploads or averages.

    After the step that draws a record its device stands elsewhere, and all other records may vote otherwise: no small
    noise hides that. Where every step is noisy, its votes are noisy too.

    Raises:
        UserError: such a subnet, with the rhythm that would do.
    """
    training, placement = experiment.training, noise_placement_of(experiment.method.privacy)
    if training.adaptive is None or placement.clips == "update" or training.local_steps is None:
        return
    times, star = aggregation_times(experiment, topology), experiment.method.topology == "star"
    for subnet in topology.as_star().subnets if star else topology.subnets:
        if placement.pipeline(subnet.trust, UploadClipping(training.first_clip_norm, by_record=True)).noisy_steps:
            continue
        longest = max(times.of(subnet.name).segments(training.local_steps))
        if longest > 1:
            text = (
                f"the noise of {subnet.name} is on {longest} steps together, after the first of which every record may "
                "vote otherwise; expected 1 (or noise: steps, dp-sgd), or a number as training.clip_norm"
            )
            key = "aggregate_every" if training.aggregate_every is not None and not star else "local_steps"
            where = "" if document is None else document.where(("training", key))
            raise UserError(text, where, f"training.{key}")


def aggregation_times(
    experiment: ExperimentFile, topology: Topology, document: Document | None = None
) -> AggregationTimes:
    """The local aggregations of an experiment in its network; a star has none.

    Args:
        document: of the experiment, to name the line of a mistake.

    Raises:
        UserError: the network does not have the tiers or the edge servers that the experiment names.
    """
    _check_tiers(experiment, topology, document)
    if experiment.method.topology == "star":
        return AggregationTimes()
    every = _aggregate_every(experiment, topology, document)
    return AggregationTimes(every, experiment.training.aggregations_per_interval)


def _check_tiers(experiment: ExperimentFile, topology: Topology, document: Document | None) -> None:
    """Raise for local aggregations of tiers that the network does not have.

    Raises:
        UserError: a list longer than the network has tiers of edge servers.
    """
    for key in ("aggregate_every", "aggregations_per_interval"):
        stated = getattr(experiment.training, key)
        if isinstance(stated, list) and len(stated) > topology.depth:
            tiers = "one tier" if topology.depth == 1 else f"{topology.depth} tiers"
            where = "" if document is None else document.where(("training", key))
            text = f"expected at most one number for each tier of edge servers, found {len(stated)} for {tiers}"
            raise UserError(text, where, f"training.{key}")


def _aggregate_every(
    experiment: ExperimentFile, topology: Topology, document: Document | None
) -> Slots | dict[str, int]:
    """`training.aggregate_every`, with a mapping by trust as one by the names of edge servers.

    Raises:
        UserError: an edge server without a number, a name that the network does not have, a network of several tiers.
    """
    stated, key = experiment.training.aggregate_every, "training.aggregate_every"
    if not isinstance(stated, dict):
        return stated
    where = "" if document is None else document.where(("training", "aggregate_every"))
    if topology.depth > 1:
        text = "expected a list in a network of several tiers, one number for each; found a mapping"
        raise UserError(text, where, key)
    names = {subnet.name for subnet in topology.subnets}
    for name in stated:
        if name not in names and name not in TRUSTS:
            text = f"expected {', '.join(TRUSTS)} or the name of an edge server, found {name}"
            raise UserError(text, where, f"{key}.{name}")
    found = {}
    for subnet in topology.subnets:
        slots = stated.get(subnet.name, stated.get(subnet.trust))
        if slots is None:
            text = f"expected a number for the edge server {subnet.name}, by its name or as {subnet.trust}; found none"
            raise UserError(text, where, key)
        found[subnet.name] = slots
    return found
