"""Aggregations of an interval that repeat each other are worked out once: the rows are those of each by itself."""

from dataclasses import replace

import pytest

from h2fdp import Experiment, Topology
from h2fdp.privacy import Release
from h2fdp.privacy.ledger_rows import under
from h2fdp.protocol.planned_releases import uploads_of
from h2fdp.schedules import Decision

TREE = Topology.regular(edges=3, devices=3, trust=0.5, seed=2)
CASES = {
    "hierarchical": {"method": "h2fdp"},
    "one record for another": {"method": "h2fdp", "adjacency": "replace"},
    "few of the devices": {"method": "h2fdp", "participation": 0.5},
    "stragglers": {"method": "h2fdp", "faults": {"straggler": {"probability": 0.5, "fraction": [0.3, 0.7]}}},
    "noisy steps": {"method": {"extends": "hfl", "privacy": "dp-sgd"}},
    "local": {"method": "hfl-dp"},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_rows_of_repeated_aggregations_are_those_of_each_by_itself(settings):
    setup = Experiment(
        topology=TREE, data="digits", epsilon=5.0, intervals=2, local_steps=7, aggregate_every=2, seed=5, **settings
    ).prepare()
    planner = setup._planner(observes=False)
    plan = planner.plan(1, 7, Decision(7, 0.1, setup.context.participation))
    alone: list[Release] = []
    repeated = 0
    for (name, subnet), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True):
        before = None
        for upload in uploads_of(planner.facts[name], plan, subnet, share):
            repeated += before is not None and upload.repeats(before)
            alone += under(planner.adjacency, setup.noise.releases(replace(upload, steps=upload.steps.copy())))
            before = upload
    assert list(planner.releases(plan)) == alone
    assert len({row.slot for row in alone}) == (7 if "dp-sgd" in str(settings) else 4)
    assert repeated == (0 if "faults" in settings else 2 * len(plan.subnets))  # of segments of 2, 2, 2 and 1 steps
