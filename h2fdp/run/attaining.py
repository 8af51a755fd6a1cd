"""What a run gives explicit adversaries: what observers receive in its intervals, and the epsilon that this attains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from h2fdp.privacy import Observer, Release, SecureSum
from h2fdp.privacy.accounting import attained
from h2fdp.privacy.sightings import SeenInterval, Sightings
from h2fdp.protocol import IntervalPlan
from h2fdp.run.forecast import forecast
from h2fdp.run.setup import RunSetup

_INVERTIBLE = ("average", "momentum")  # server updates whose global models tell the averages


def is_attackable(setup: RunSetup) -> bool:
    """Whether adversaries against the run's releases are known: about null records, under noise of real numbers."""
    trust_models = [facts.trust_model for facts in setup.blueprint.facts]
    if setup.noise is None or setup.config.privacy.adjacency == "replace":
        return False
    modular = any(isinstance(each, SecureSum) and each.rounding is not None for each in trust_models)
    return setup.noise.attained and not modular


def seen_interval(setup: RunSetup, plan: IntervalPlan, rows: Sequence[Release]) -> SeenInterval:
    """An interval of the run, with what its rows of the ledger do not say."""
    facts = setup.blueprint.facts
    method = setup.config.method
    return SeenInterval(
        rows=rows,
        weights=dict(zip(plan.subnets, plan.weights.tolist(), strict=True)),
        ends={name: part.ends() for name, part in plan.subnets.items()},
        edges_alone=setup.topology.depth > 1 or any(each.cloud_sums or each.sums for each in facts),
        single=setup.blueprint.star and all(each.trust_model.devices_add_noise for each in facts),
        everyone=plan.participants == setup.topology.devices
        and all(part.completed is None for part in plan.subnets.values()),
        colluding=any(each.trust_model.colluding for each in facts),
        recoverable=method.server.name in _INVERTIBLE and method.upcycle is None,
    )


def planned_sightings(setup: RunSetup) -> Sightings:
    """What observers will have received after all planned intervals, see `planned_accounts`."""
    if setup.traits.counts_iterations:
        setup = setup.exhausted()
    found = Sightings(setup.sizes)
    if is_attackable(setup):
        for expected in forecast(setup):
            seen = seen_interval(setup, expected.plan, list(expected.releases()))
            found.add(seen.sightings(), times=expected.times)
    return found


def attained_about(setup: RunSetup, sightings: Sightings, observer: Observer, devices: np.ndarray) -> float | None:
    """What the worst record of the largest of these devices really loses; None where no adversary is known.

    Args:
        devices: numbers over the whole network, of devices with equal accounts.
    """
    device = int(devices[np.argmax(setup.data.sizes[devices])])
    vectors = sightings.about(observer, *setup.empty_accounts().place_of(device))
    if not vectors:
        return None
    return attained(vectors, int(setup.data.sizes[device]), setup.config.privacy.delta)
