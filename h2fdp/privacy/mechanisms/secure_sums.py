"""Secure sums: the faults that they withstand, and settings that they, or relays of one sum over the network, exclude.

Devices add shares of one noise, so that only their sum is seen: by an edge server, an aggregator above, or the cloud.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from h2fdp.config.fields import LARGEST_INTEGER, Expect, Section, Whole
from h2fdp.errors import NETWORK_REFUSALS, refused
from h2fdp.network import Topology

SUMS = "method.privacy.secure_sum"
_CLOUD = "topology.cloud.trust"


def _number_or_share(value: float) -> float:
    if isinstance(value, float) and value >= 1:
        raise ValueError(f"expected a whole number of at least 0, or a share below 1, found {value:g}")
    return value


Dropouts = Annotated[
    int | float,
    Field(ge=0, le=LARGEST_INTEGER),
    AfterValidator(_number_or_share),
    Expect("a whole number of at least 0, or a share below 1"),
]
Bits = Annotated[int, Field(ge=8, le=32), Expect("a whole number of bits from 8 to 32")]


class SecureSumSection(Section):
    """The losses and collusions that secure sums withstand.

    Attributes:
        colluding: number of devices that may reveal their shares of the noise.
        dropouts: devices that may be lost while a sum is made: a number, or a share below 1 of those that begin.
        rounding: b: sums are of integers modulo 2^b, under discrete noise; null: of real numbers.
    """

    colluding: Whole = 0
    dropouts: Dropouts = 0
    rounding: Bits | None = None


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of secure sums that this network cannot make; other methods treat its edge servers as untrusted."""
    if wrong := list(_of_relays(experiment, topology)):
        yield from wrong
        return
    method, placement, schedule = experiment.method, experiment.method.privacy, experiment.method.traits
    above = [server.name for server in network.aggregators if placement.sees(server.trust) == "sum"]
    summing = [number for number, each in enumerate(network.subnets) if placement.sees(each.trust) == "sum"]
    trust, at_cloud = topology.cloud_trust, placement.sees(topology.cloud_trust) == "sum"
    if not (at_cloud or above or summing):
        return
    tolerance, law = placement.place(("secure-sum",), 1).tolerance, placement.noise_law
    bits, key, control = placement.rounding, f"{SUMS}.rounding", experiment.control
    star = method.topology == "star" or topology.subnets[0].relays is not None
    rules = [rule for link, rule in method.rules.items() if link == "device" or at_cloud or above]
    unlike = next((rule.name for rule in rules if rule.name != "average"), None)
    withstood, budget = tolerance.colluding or tolerance.dropouts, control.enabled and control.has_budget
    measures = schedule.measures is not None
    upper = f"no budget: no plan has the messages for the sums of {''.join(above[:1])}"
    controlled = schedule.controlled and withstood
    yield from refused(
        "secure sums show one sum of weighted uploads, in which each has a share of the noise",
        (_CLOUD, at_cloud and star, "untrusted in a star, whose devices are below an edge server of the cloud", trust),
        (_CLOUD, at_cloud and not schedule.foreseen, "untrusted, or a schedule that is fixed before the run", trust),
        ("method.privacy.law", not law.stable, "gaussian, as other laws change in a sum", law.name),
        ("method.aggregation", unlike is not None, "average, by weights that do not hang on who drops out", unlike),
        (key, None not in (bits, placement.input_norm), "null with input_bound: integers need clipped gradients", bits),
        (key, bits is not None and measures, "null, as the schedule measures single devices", bits),
        (SUMS, controlled, "colluding: 0 and dropouts: 0, as the controller knows no more noise", f"{withstood:g}"),
        ("control", above and budget, upper, "one"),
    )
    yield from _without_shares(experiment, network, summing)


def _of_relays(experiment: Any, topology: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of settings that need more than masked vectors at edge servers that relay one sum of the network."""
    method, training = experiment.method, experiment.training
    trusts = {each.name: each.trust for each in topology.servers()}
    relay = next((name for name, trust in trusts.items() if trust == "relay"), None)
    if relay is None or method.topology == "star" or method.privacy.sees("relay") == "each":
        return
    other = next((name for name, trust in trusts.items() if trust != "relay"), None)
    key = "aggregate_every" if training.aggregate_every is not None else "aggregations_per_interval"
    steps, stated = training.local_steps, not {key, "local_steps"} & training.left_open
    averaging = steps is not None and stated and bool(training.aggregation_times.offsets(steps))
    right = f"at least local_steps, {steps}" if key == "aggregate_every" else "0"
    yield from refused(
        f"{relay} relays masked vectors of one sum over the whole network",
        ("topology", other is not None, "relay for all edge servers", f"{other} {trusts.get(other or relay)}"),
        ("control.enabled", method.traits.controlled, "false, or secure-sum edge servers", "true"),
        (f"training.{key}", averaging, right, getattr(training, key)),
    )


def _without_shares(experiment: Any, network: Topology, summing: list[int]) -> Iterator[tuple[str, str]]:
    """The refusal of the first of these subnets in whose sums an observer may know each share of the noise."""
    tolerance = experiment.method.privacy.place(("secure-sum",), 1).tolerance
    subnets = [network.subnets[number] for number in summing]
    taking = experiment.training.taking(np.array([subnet.size for subnet in subnets], dtype=np.int64)).tolist()
    for number, subnet, begin in zip(summing, subnets, taking, strict=True):
        lying = len(network.replacing_devices(number))
        if tolerance.honest_shares(begin) - (lying if lying < subnet.size else 0) < 1:
            of = "" if subnet.relays is not None else f" of {subnet.name}"
            text = f"of {begin} devices{of} that take part, {tolerance.colluding} may collude and "
            text = f"{text}{tolerance.lost(begin)} drop out{f', besides {lying} that lie' if lying else ''}"
            yield SUMS, f"{text}, which leaves no device whose share of the noise is unknown; expected fewer"
            return
