"""Problem P where aggregators stand between edge servers and the cloud: it sums costs over links of all tiers."""

import numpy as np
import pytest

from h2fdp.costs.device_costs import StepCosts
from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import DrawnCosts, NetworkCosts, Ways
from h2fdp.costs.traffic import ExchangeSizes, Tasks
from h2fdp.network import Aggregator, Topology, Wire
from h2fdp.schedules import AggregationTimes
from h2fdp.schedules.prices import ControlledNetwork, prices
from h2fdp.schedules.problem import ControlProblem
from h2fdp.streams import Streams
from tests.networks import placed

# Two regions: `north` above `e1` (two devices) and `e2` (one), `south` above `e3` (one).
SIZES, PARENTS = (2, 1, 1), ("north", "north", "south")
TREE = Topology(
    "deep",
    tuple(
        placed(
            f"e{number}", trust=number != 2, distance_m=np.full(size, 50.0), power_dbm=np.full(size, 20.0), parent=up
        )
        for number, (size, up) in enumerate(zip(SIZES, PARENTS, strict=True), start=1)
    ),
    aggregators=(Aggregator("north", trust="trusted"), Aggregator("south", trust="untrusted")),
)
COSTS = DrawnCosts(
    seconds=np.array([1.0, 3.0, 2.0, 4.0]),
    down_seconds=np.array([1.0, 3.0, 2.0, 4.0]),
    joules=np.array([10.0, 30.0, 20.0, 40.0]),
    link_seconds=np.array([0.5, 0.25, 1.0]),
    link_joules=np.array([5.0, 6.0, 7.0]),
    relay_seconds=np.zeros(4),
    relay_joules=np.zeros(4),
    links=Ways([], 8, 8),
    upper_links=Ways([Wire(8 / 0.1, 30 + 10 * np.log10(80.0)), Wire(8 / 0.2, 30 + 10 * np.log10(45.0))], 8, 8),
    step=StepCosts(),
    upload_bits=8,
    uplink_bits=8,
    snr=np.ones(4),
    down_snr=np.ones(4),
    power_dbm=np.full(4, 20.0),
)
RHYTHM = AggregationTimes(every=[1, 2])
STEP_J = 0.125


def problem_p(costs=COSTS, tree=TREE, aggregation_times=RHYTHM, remaining=8, exchanges=None):
    none = [None] * tree.edges
    network = ControlledNetwork(tree, tree.sizes, np.ones(tree.edges), none if exchanges is None else exchanges)
    return ControlProblem(
        remaining=remaining,
        tau_max=remaining,
        limits=tree.sizes,
        trusted=network.trusted,
        aggregations=lambda tau: len(aggregation_times.offsets(tau)),
        prices=prices(network, costs, STEP_J),
        gap_scale=lambda tau, local, active: 0.0,
        edge_gap=1.0,
        device_gap=1.0,
        alpha1=1.0,
        alpha2=1.0,
        alpha3=1.0,
        phi=1.0,
        upper=lambda tau: np.bincount(aggregation_times.heights(tau, tree.depth), minlength=9)[2 : tree.depth + 1],
    )


def test_energy_and_delay_by_hand():
    # tau = 4: local aggregations at slots 1 and 3, a regional one at 2, the cloud's at 4; two intervals are left.
    # A device sends four messages of 20, 20, 40 J in the mean of its subnet. Wires: to the region 5, 6, 7 J; to the
    # cloud the same and half of north's 8 J, all of south's 9 J.
    energy = 2 * ((2 * 80 + 5 + 9) + (80 + 6 + 10) + (160 + 7 + 16))
    # Seconds of a device: 2, 2, 4 at each of two local aggregations, there and back by way of 0.5, 0.25, 1 s to the
    # region, and by way of 0.6, 0.35, 1.2 s to the cloud.
    delay = 2 * (2 * (4 + 2 * 2.5 + 2 * 2.6) + (4 + 2 * 2.25 + 2 * 2.35) + (8 + 2 * 5.0 + 2 * 5.2))
    computed = 8 * 4 * STEP_J
    terms = problem_p().terms(4, TREE.sizes)
    assert terms.energy == pytest.approx(energy + computed)
    assert terms.delay == pytest.approx(delay)


def test_the_shares_of_the_subnets_sum_to_the_objective():
    problem = problem_p()
    terms = problem.terms(4, np.array([1, 1, 1]))
    assert problem.coefficients(4).at(np.array([1, 1, 1])).sum() == pytest.approx(terms.energy + terms.delay)


@pytest.mark.parametrize(
    "aggregation_times",
    [RHYTHM, AggregationTimes(every=2), AggregationTimes(per_interval=[6, 3]), AggregationTimes(every=[1, 2, 4])],
)
@pytest.mark.parametrize("tau", [1, 4, 8])
@pytest.mark.parametrize("vector", [None, 1.0, 0.5])  # of secure sums, in messages
def test_an_interval_of_all_devices_costs_what_the_radio_model_says(aggregation_times, tau, vector):
    tree = Topology.deep(tiers=(2, 2, 2, 3), seed=3).with_devices(joules_per_step=STEP_J)
    costs = NetworkCosts(tree, parameters=1000, streams=Streams(1)).drawn(0)
    sizes = None if vector is None else ExchangeSizes(key=0.3, share=0.2, vector=vector)
    exchanges = [sizes if number % 2 else None for number in range(tree.edges)]
    segments = aggregation_times.segments(tau)
    spent = interval_cost(
        costs,
        tree,
        {
            number: Tasks.planned(np.arange(size), segments, masked=exchanges[number] is not None)
            for number, size in enumerate(tree.sizes)
        },
        aggregation_times.heights(tau, tree.depth),
        sizes,
    )
    problem = problem_p(costs, tree, aggregation_times, remaining=tau, exchanges=exchanges)
    terms = problem.terms(tau, tree.sizes)
    assert problem.coefficients(tau).at(tree.sizes).sum() == pytest.approx(terms.energy + terms.delay)
    assert terms.energy == pytest.approx(spent.energy_j, rel=1e-9)
    assert terms.delay == pytest.approx(spent.delay_s, rel=1e-9)
