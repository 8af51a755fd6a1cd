"""The local aggregations of an experiment in its network."""

from __future__ import annotations

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.training_section import Slots
from h2fdp.schedules import AggregationTimes
from h2fdp.topology import TRUSTS, Topology


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
