"""What an experiment may not ask of edge servers that hold secure sums."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from h2fdp.algorithms.aggregation import WeightedAverageOptions
from h2fdp.config import Document
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy import SecureSum, noise_placement_of
from h2fdp.schedules.client_sampling import share_of
from h2fdp.schedules.registry import chosen
from h2fdp.topology import Topology

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
