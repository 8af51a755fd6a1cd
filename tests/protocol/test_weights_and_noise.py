"""Whatever the weights: what one record moves in all that leaves, by brute force, is within the ledger's sensitivity.

The movement is worked out from local steps and weights written anew here; the package is asked for plans and rows only.
"""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.algorithms import Aggregation, WeightedAverage
from h2fdp.algorithms.fedavg import NormalisedAverage
from h2fdp.errors import UserError
from h2fdp.privacy import GradientSumMechanism, HierarchicalDp
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches, ClippedRecords
from h2fdp.privacy.mechanisms.device_unit import CentralDp, CentralMechanism
from h2fdp.privacy.releases import rows_in
from h2fdp.protocol import Averaging, Planner, SubnetFacts, TierFacts
from h2fdp.protocol.arrivals import Faults
from h2fdp.schedules import AggregationTimes, Decision
from h2fdp.streams import Streams
from h2fdp.training.local_steps import gain, gradients_in_uploads

ETA, CLIP = 0.3, 0.7
TIERS = {(1, 2): 40, (2, 3): 40}
SLOWEST = Faults(device_dropout=0.3, straggler_probability=0.6, straggler_fraction=(0.05, 1.0))


class ByRootOfSteps(Aggregation):
    """A user's own: weights that sum to anything, and grow as steps are missing."""

    def weights(self, uploads):
        return 3.0 * uploads.shares * np.sqrt(uploads.planned_steps / uploads.steps)


class BySquaredSteps(Aggregation):
    """A user's own whose normalisers fall faster than the steps: devices must not add as much less noise."""

    def weights(self, uploads):
        return uploads.shares

    def normalisers(self, uploads):
        return uploads.steps**2.0


AGGREGATIONS = st.sampled_from([WeightedAverage(), NormalisedAverage(), ByRootOfSteps(), BySquaredSteps()])


def expected_weights(aggregation, shares, steps, norms, planned):
    """(n,) by which uploads are multiplied, as their formulas say."""
    if isinstance(aggregation, NormalisedAverage):
        tau_eff = sum(share * norm for share, norm in zip(shares, norms, strict=True))
        return [share * tau_eff / norm for share, norm in zip(shares, norms, strict=True)]
    if isinstance(aggregation, ByRootOfSteps):
        return [3 * share * math.sqrt(planned / done) for share, done in zip(shares, steps, strict=True)]
    if isinstance(aggregation, WeightedAverage):
        return shares
    return [share / done**2 for share, done in zip(shares, steps, strict=True)]


def upload(gradients, momentum, mu):
    """w(received) - w after these local steps, in one coordinate."""
    w = velocity = 0.0
    for g in gradients:
        velocity = momentum * velocity + g + mu * w
        w -= ETA * velocity
    return -w


def largest_movement(steps, momentum, mu, own=1.0):
    """Between two uploads whose clipped gradients may all differ by 2G, in any direction: all signs are tried.

    Args:
        own: the share of 2G by which the draw of the record moves its own step, the first one.
    """
    lengths = [2 * CLIP * own] + [2 * CLIP] * (steps - 1)
    signs = product((-1, 1), repeat=steps)
    return max(upload(np.multiply(lengths, each), momentum, mu) for each in signs)


def norm_of_a(steps, momentum, mu):
    """||a||_1 by impulse: what each single gradient leaves in the upload."""
    if steps == 0:
        return 0.0
    return sum(abs(upload(np.eye(steps)[at], momentum, mu)) / ETA for at in range(steps))


@st.composite
def networks(draw):
    """Subnets of some devices, in one tier or two; who trusts whom; what devices do."""
    count = draw(st.integers(1, 3))
    sizes = [draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)) for _ in range(count)]
    momentum = draw(st.sampled_from([0.0, 0.5]))
    return {
        "sizes": sizes,
        "trusted": [draw(st.booleans()) for _ in sizes],
        "rates": draw(st.sampled_from([0.5, None])),
        "weighting": draw(st.sampled_from(["uniform", "by-size"])),
        "rule": draw(st.sampled_from(["paper", "tight"])),
        "momentum": momentum,
        "mu": 0.0 if momentum else draw(st.sampled_from([0.0, 1.0, 1 / ETA, 1.5 / ETA])),
        "segments": draw(st.sampled_from([(5,), (4, 2), (2, 2, 2)])),
        "region": draw(st.sampled_from([None, False, True])),
        "aggregation": draw(AGGREGATIONS),
        "clipped": draw(st.sampled_from([ClippedBatches, ClippedRecords])),
    }


def places_of(placement, *trusted):
    """Of a subnet below aggregators that are trusted or not; None: there is none."""
    chain = ["trusted" if each else "untrusted" for each in trusted if each is not None]
    return tuple(placement.place(chain, passed) for passed in range(1, len(chain) + 1))


def planned(network, interval, faults=SLOWEST, noise=None, placement=None):
    """A planner and its plan of an interval."""
    segments, region = network["segments"], network["region"]
    facts = [
        SubnetFacts(
            name=f"e{number}",
            places=places_of(placement or HierarchicalDp(), trusted, region),
            records=np.array(records),
            sampling_rates=np.array([network["rates"] or 1 / (1 + size) for size in records]),
            sampling="poisson",
            heights=(1,) if region is None else (1, 2),
            depth=1 if region is None else 2,
        )
        for number, (records, trusted) in enumerate(zip(network["sizes"], network["trusted"], strict=True))
    ]
    tiers = {}
    if region is not None:
        guarded = frozenset(each.name for each in facts if each.place.trusted > 1)
        names = tuple(each.name for each in facts)
        tiers["R"] = TierFacts(name="R", children=names, height=2, height_above=3, guarded=guarded, ends_chain=True)
    calibration = PaperCalibration(2.0, 1e-5, 1.0, 40, 40, tiers=TIERS if tiers else {})
    momentum, mu = network["momentum"], network["mu"]
    planner = Planner(
        Streams(5),
        tuple(facts),
        AggregationTimes(every=segments[0] if len(segments) > 1 else 9),
        noise or GradientSumMechanism(calibration, network["clipped"](CLIP, partial(gain, momentum)), network["rule"]),
        Averaging(
            network["aggregation"],
            network["weighting"],
            lambda step_size, most: gradients_in_uploads(momentum, mu, step_size, most),
        ),
        faults,
        tiers=tiers,
        children=("R",) if tiers else (),
    )
    everyone = np.array([len(records) for records in network["sizes"]])
    return planner, planner.plan(interval, 0, Decision(sum(segments), ETA, everyone)), calibration


def shares_of(masses):
    return [mass / sum(masses) for mass in masses]


@settings(max_examples=150)
@given(networks(), st.integers(0, 500))
def test_no_record_moves_anything_that_leaves_by_more_than_its_row_says(network, interval):
    """And the noise on it is no smaller, by that, than where every device does all its steps."""
    planner, plan, calibration = planned(network, interval)
    by_size, momentum, mu = network["weighting"] == "by-size", network["momentum"], network["mu"]
    weight_of = {}  # subnet, segment, device -> in the subnet's average
    for name, part in plan.subnets.items():
        records = network["sizes"][int(name[1:])]
        for segment, row in enumerate(part.tasks.steps.tolist()):
            there = [(device, done) for device, done in zip(part.rows.tolist(), row, strict=True) if done]
            if there:
                weights = expected_weights(
                    network["aggregation"],
                    shares_of([records[device] if by_size else 1 for device, _ in there]),
                    [done for _, done in there],
                    [norm_of_a(done, momentum, mu) for _, done in there],
                    part.segments[segment],
                )
                for (device, done), weight in zip(there, weights, strict=True):
                    weight_of[name, segment, device] = weight, done
    seen = 0
    for row in planner.noises.releases(plan):
        facts = planner.facts[row.edge]
        part = plan.subnets[row.edge]
        segment = part.ends().index(row.slot)
        height = plan.heights[segment] if plan.heights else 1 + (segment == len(part.segments) - 1)
        level = facts.vectors_seen(facts.passed(height))[row.observer]
        above = plan.vectors[row.edge][segment][level - 2].share if level > 1 else 1.0
        for device in [number for part_of in rows_in(row.devices) for number in range(part_of.start, part_of.stop)]:
            weight, done = weight_of[row.edge, segment, device]
            share = (weight if level else 1.0) * above
            own = 1.0
            if network["clipped"] is ClippedRecords:  # G / b_i, and no more than any clipped gradient
                own = min(1.0, 0.5 / float(facts.sampling_rates[device] * facts.records[device]))
            moved = share * largest_movement(done, momentum, mu, own)
            assert moved <= row.sensitivity * (1 + 1e-9)
            if not mu:  # and no row says more than that: a record may turn every gradient
                assert row.sensitivity == pytest.approx(moved)
            seen += 1
            if level == 0 or (facts.place.by_node and row.observer != "peer"):
                local = segment < len(part.segments) - 1
                tier = facts.tier(plan.heights[segment]) if plan.heights and local else None
                asked = calibration.noise_std("local" if local else "global", 1.0, facts.sampling_rates[device], tier)
                assert row.noise_std >= asked * row.sensitivity * (1 - 1e-9)
    assert seen or not plan.subnets


@settings(max_examples=60)
@given(networks(), st.integers(0, 500))
def test_the_clouds_noise_covers_a_clipped_update_at_the_largest_weight(network, interval):
    """Whole updates of norm C: one of them, at its weight in the global average, is what a device moves."""
    network = network | {"segments": (5,), "trusted": [True] * len(network["sizes"]), "region": None}
    noise = CentralMechanism(2.0, lambda step_size, steps: CLIP, formula=PaperCalibration(2.0, 1e-5, 1.0, 0, 40))
    planner, plan, _ = planned(network, interval, noise=noise, placement=CentralDp())
    weights = {
        (name, row): share * weight
        for (name, part), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
        for row, weight in zip(part.aggregation(0).rows.tolist(), part.aggregation(0).weights.tolist(), strict=True)
    }
    seen = set()
    for row in planner.noises.releases(plan):
        for part_of in rows_in(row.devices):
            for device in range(part_of.start, part_of.stop):
                seen.add((row.edge, device))
                assert row.sensitivity == pytest.approx(CLIP * weights[row.edge, device])
                assert row.noise_std >= 2.0 * row.sensitivity * (1 - 1e-9)
    assert seen == set(weights)


@settings(max_examples=60)
@given(networks(), st.integers(0, 500))
def test_in_a_tree_with_one_aggregation_fednova_weighs_devices_as_in_a_star(network, interval):
    """tau_eff p_i / ||a_i||_1, p_i the product of shares on a device's way, tau_eff over all devices."""
    network = network | {"segments": (5,), "aggregation": NormalisedAverage()}
    _, plan, _ = planned(network, interval)
    found, p, norms = [], [], []
    by_size = network["weighting"] == "by-size"
    arriving = {
        name: [(row, done) for row, done in zip(part.rows.tolist(), part.tasks.steps[0].tolist(), strict=True) if done]
        for name, part in plan.subnets.items()
    }
    mass = {
        name: sum(network["sizes"][int(name[1:])][row] for row, _ in there) if by_size else 1
        for name, there in arriving.items()
    }
    for (name, part), weight in zip(plan.subnets.items(), plan.weights.tolist(), strict=True):
        records = network["sizes"][int(name[1:])]
        there = arriving[name]
        total = sum(records[row] if by_size else 1 for row, _ in there)
        found += (weight * part.aggregation(0).weights).tolist()
        p += [mass[name] / sum(mass.values()) * (records[row] if by_size else 1) / total for row, _ in there]
        norms += [norm_of_a(done, network["momentum"], network["mu"]) for _, done in there]
    tau_eff = sum(share * norm for share, norm in zip(p, norms, strict=True))
    assert found == pytest.approx([share * tau_eff / norm for share, norm in zip(p, norms, strict=True)])


@given(networks())
def test_without_faults_fednova_is_the_average(network):
    found = []
    for aggregation in (NormalisedAverage(), WeightedAverage()):
        _, plan, _ = planned(network | {"aggregation": aggregation}, 0, Faults())
        found.append([plan.weights, *(part.weights for part in plan.subnets.values())])
    for normalised, plain in zip(*found, strict=True):
        np.testing.assert_allclose(normalised, plain)


@pytest.mark.parametrize(
    ("momentum", "mu"), [(0.0, 0.0), (0.5, 0.0), (0.9, 0.0), (0.0, 1.0), (0.0, 1.9 / ETA), (0.5, 2.0)]
)
def test_the_gradients_in_an_upload_are_counted_by_what_each_leaves_in_it(momentum, mu):
    found = gradients_in_uploads(momentum, mu, ETA, 7)
    assert found.tolist() == pytest.approx([norm_of_a(steps, momentum, mu) for steps in range(8)])
    if not mu:
        assert found.tolist() == pytest.approx([gain(momentum, steps) for steps in range(8)])


@pytest.mark.parametrize("wrong", [[1.0], [0.5, -0.5], [np.nan, 1.0], [0.0, 1.0]])
def test_weights_that_no_sum_can_be_made_of_are_refused(wrong):
    class Wrong(Aggregation):
        def weights(self, uploads):
            return np.array(wrong)

    network = {"sizes": [[5, 5]], "trusted": [True], "rates": 0.5, "weighting": "uniform", "rule": "tight"}
    network |= {"clipped": ClippedBatches, "momentum": 0.0, "mu": 0.0, "segments": (5,), "region": None}
    network |= {"aggregation": Wrong()}
    with pytest.raises(UserError, match=r"method\.aggregation: expected weights above 0 for 2 uploads from Wrong"):
        planned(network, 0, Faults())
