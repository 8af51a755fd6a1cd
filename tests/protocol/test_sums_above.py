"""Secure sums above edge servers and at the cloud: what they are worth to each observer, by hand."""

import math
from dataclasses import replace

import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.audit.run_audit import audit
from h2fdp.network import Aggregator
from h2fdp.run.live_accounts import notes
from h2fdp.run.preview import privacy_report
from tests.networks import placed
from tests.protocol.test_any_tree import prepared
from tests.protocol.test_secure_sums import method, multipliers

OBSERVERS = ("edge", "peer", "cloud", "public")


def subnets(*levels, parent=None):
    return tuple(
        placed(name, level, [9.0] * 3, [9.0] * 3, parent=parent) for name, level in zip("abcd", levels, strict=False)
    )


def summing(tree, cloud):
    """The same network, whose cloud holds a secure sum, or none."""
    return replace(tree, cloud_trust="secure-sum" if cloud else "untrusted")


def alike(tree, cloud, **settings):
    """Devices of equal weight and one aggregation an interval, the cloud's."""
    tree = summing(tree, cloud)
    given = {
        "method": method(),
        "aggregate_every": None,
        "aggregations_per_interval": 0,
        "weights": "uniform",
    }
    return prepared(tree, **given | settings)


@pytest.mark.parametrize("level", ["trusted", "secure-sum"])
def test_a_sum_of_four_subnets_has_the_noise_of_four(level):
    """The cloud sees one average under four independent noises of a quarter of the weight each: twice the ratio.
    Another edge server knows one of the four; where devices share one, that is more than a peer in the subnet knows."""
    tree = Topology("four", subnets(*[level] * 4))
    plain, summed = alike(tree, cloud=False), alike(tree, cloud=True)
    for observer, factor in (("cloud", 2), ("public", 2), ("edge", 1)):
        before, after = (multipliers(each, observer) for each in (plain, summed))
        assert after == pytest.approx({place: factor * value for place, value in before.items()})
    outside = {place: math.sqrt(3) * value for place, value in multipliers(plain, "cloud").items()}
    assert multipliers(summed, "peer") == pytest.approx(outside)
    assert len(multipliers(summed, "cloud")) == 2 * 3


def test_a_region_that_holds_a_secure_sum_sees_the_sum_alone():
    """Two trusted edge servers below it and one untrusted with three devices, whose noises are independent: it sees an
    average where an untrusted region sees each vector."""
    seen = {}
    for trust in ("untrusted", "secure-sum"):
        below = subnets("trusted", "trusted", "untrusted", parent="r")
        tree = Topology("region", below, aggregators=(Aggregator("r", trust),))
        seen[trust] = {
            observer: multipliers(alike(tree, cloud=False), observer)
            for observer in ("tier-2", "cloud", "peer", "edge")
        }
    for observer in ("cloud", "peer", "edge"):
        assert seen["secure-sum"][observer] == seen["untrusted"][observer]
    assert seen["secure-sum"]["tier-2"] == pytest.approx(seen["secure-sum"]["cloud"])
    # Noises of a trusted server on its average: 1; of the untrusted one's: 3 / 3^2 = 1/3 of each device's 3^2.
    ratio = math.sqrt((1 + 1 + 3) / 1)
    expected = {place: ratio * value for place, value in seen["untrusted"]["tier-2"].items()}
    assert seen["secure-sum"]["tier-2"] == pytest.approx(expected)


def test_noise_that_is_calibrated_falls_with_what_the_cloud_cannot_see():
    """Ten trusted edge servers: every observer sees the sum, so each adds about a third of the noise and all accounts
    meet the target still."""
    tree = Topology.regular(edges=10, devices=2, trust=1.0)
    factors = {}
    for cloud in (False, True):
        given = {"intervals": 2, "local_steps": 1, "batch_size": 16, "epsilon": 1.0, "seed": 1, "delta": 1e-5}
        given |= {"calibration": "accounted", "accountant": "pld"}
        setup = Experiment(summing(tree, cloud), "digits", method=method(), weights="uniform", **given).prepare()
        report = privacy_report(setup)["observers"]
        worst = max(report[observer]["pld"] for observer in OBSERVERS if report[observer]["pld"] is not None)
        assert worst == pytest.approx(1.0, rel=0.02)
        assert worst <= 1
        factors[cloud] = setup.factor
    assert factors[True] / factors[False] == pytest.approx(1 / 3, rel=0.1)  # nine of ten are unknown to a peer


def test_methods_without_secure_sums_treat_such_a_region_as_untrusted():
    tree = Topology(
        "region", subnets("secure-sum", "trusted", parent="r"), aggregators=(Aggregator("r", "secure-sum"),)
    )
    assert not any(facts.sees_sums for facts in prepared(tree, method="hfl-dp").blueprint.facts)
    summed = alike(tree, cloud=True)
    assert all(facts.sees_sums for facts in summed.blueprint.facts)
    assert any(note.startswith("secure sums: these epsilons hold only if") for note in notes(summed))


def test_an_audit_of_sums_of_integers_is_refused():
    setup = prepared(Topology("one", subnets("secure-sum")), method=method(rounding=16))
    with pytest.raises(UserError, match=r"method\.privacy\.secure_sum\.rounding: canaries read vectors"):
        audit(setup, "edge", canaries=10)


def test_an_audit_of_what_only_a_sum_shows_is_refused():
    with pytest.raises(UserError, match=r"topology\.cloud\.trust: an audit reads what each edge server"):
        audit(alike(Topology("two", subnets("trusted", "untrusted")), cloud=True), "cloud", canaries=10)
