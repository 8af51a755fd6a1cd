"""What the ledger says where nodes lie: honest devices hide behind nothing that a liar adds, and liars have no rows."""

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Adversaries, Aggregator
from h2fdp.network.adversaries import ATTACKS, Alie, Ipm, LabelFlip, Scaling, SignFlip
from h2fdp.protocol import InProcessNodes
from h2fdp.runtime.lockstep import lockstep_of
from tests.networks import placed
from tests.protocol.overhearing import devices_of, overheard, squared_distance
from tests.protocol.test_any_tree import Views, prepared, random_chain, random_tree, records
from tests.protocol.test_secure_sums import method

OMNISCIENT = [Alie(), Ipm()]


def network(trust=False, size=5, liars=(), edges=(), attack=None):
    subnets = tuple(placed(name, trust, [9.0] * size, [9.0] * size) for name in "ab")
    adversaries = Adversaries(attack or SignFlip(), tuple(liars), tuple(edges)) if liars or edges else None
    return Topology("two", subnets, adversaries=adversaries)


def rows(tree, **settings):
    """(edge server, device, observer) -> sensitivity over noise, of the first interval's only aggregation."""
    fixed = {"aggregate_every": None, "aggregations_per_interval": 0, "weights": "uniform", "method": "h2fdp"}
    setup = prepared(tree, **fixed | settings)
    cloud = setup.cloud(InProcessNodes({}))
    found = {}
    for row in cloud.releases(cloud.plan(0)):
        for edge, device in devices_of(row):
            assert (edge, device, row.observer) not in found
            found[edge, device, row.observer] = row.sensitivity / row.noise_std
    return found


def test_honest_devices_of_an_untrusted_edge_server_hide_behind_honest_ones_only():
    """Five devices of equal noise sigma and weight 1/5, two of which lie. The cloud sees the average under the noises
    of three: ratio sqrt(3) sigma; a peer knows one of these; the edge server sees single uploads."""
    plain, lying = rows(network()), rows(network(liars=["a/2", "a/5"]))
    own = plain["a", 0, "edge"]
    assert plain["a", 0, "cloud"] == pytest.approx(own / math.sqrt(5))
    honest = [0, 2, 3]
    assert {device for edge, device, _ in lying if edge == "a"} == set(honest)
    for device in honest:
        assert lying["a", device, "edge"] == own
        assert lying["a", device, "cloud"] == lying["a", device, "public"] == pytest.approx(own / math.sqrt(3))
        assert lying["a", device, "peer"] == pytest.approx(own / math.sqrt(2))
    assert {key: value for key, value in lying.items() if key[0] == "b"} == {
        key: value for key, value in plain.items() if key[0] == "b"
    }


def test_liars_know_their_shares_of_a_secure_sums_noise():
    """Shares of five: the sum has the noise of three of them, as if two had colluded and nobody sized it for that."""
    plain, lying = rows(network("secure-sum")), rows(network("secure-sum", liars=["a/2", "a/5"]))
    for observer, left in (("edge", 3), ("cloud", 3), ("peer", 2)):
        unknown = 4 if observer == "peer" else 5
        ratio = plain["a", 0, observer] * math.sqrt(unknown / left)
        assert lying["a", 0, observer] == pytest.approx(ratio)
    assert ("a", 1, "cloud") not in lying


def test_liars_know_their_shares_of_a_sum_over_the_whole_network():
    """Ten devices below relays, three of which lie: the cloud sees the sum under seven shares, a peer under six."""
    plain, lying = rows(network("relay")), rows(network("relay", liars=["a/2", "a/5", "b/1"]))
    (place,) = {name for name, *_ in plain}
    for observer, all_of, left in (("cloud", 10, 7), ("public", 10, 7), ("peer", 9, 6)):
        assert lying[place, 0, observer] == pytest.approx(plain[place, 0, observer] * math.sqrt(all_of / left))
    assert {device for _, device, _ in lying} == set(range(10)) - {1, 4, 5}


def test_under_a_trusted_edge_server_nothing_changes_but_that_liars_have_no_rows():
    plain, lying = rows(network(True)), rows(network(True, liars=["a/2"]))
    assert lying == {key: value for key, value in plain.items() if key[:2] != ("a", 1)}


def test_a_lying_edge_server_may_pass_on_single_uploads_but_keeps_its_noise():
    plain, lying = rows(network()), rows(network(edges=["a"]))
    for device in range(5):
        for observer in ("edge", "cloud", "peer", "public"):
            assert lying["a", device, observer] == plain["a", device, "edge"]
            assert lying["b", device, observer] == plain["b", device, observer]
    assert rows(network(True, edges=["a"])) == rows(network(True))


@pytest.mark.parametrize("attack", OMNISCIENT)
def test_omniscient_devices_see_single_uploads(attack):
    """Their lies are no function of a sum: devices of their subnet have the account of their own noise."""
    plain, lying = rows(network()), rows(network(liars=["a/1"], attack=attack))
    for observer in ("edge", "cloud", "peer", "public"):
        assert lying["a", 1, observer] == plain["a", 1, "edge"]
        assert lying["b", 1, observer] == plain["b", 1, observer]


def test_nothing_in_what_a_lying_edge_server_sends_hides_devices_of_another_branch():
    """Three trusted edge servers below one that is not, which aggregates: its average has their three noises, and that
    of a liar is not credited; a liar above them shows their averages one by one."""
    subnets = tuple(placed(name, True, [9.0] * 2, [9.0] * 2, parent="top") for name in "abc")
    tree = Topology("three", subnets, aggregators=(Aggregator("top", False),))

    def cloud(liars):
        lied = replace(tree, adversaries=Adversaries(SignFlip(), edges=tuple(liars)) if liars else None)
        return {name: rows(lied, local_steps=2)[name, 0, "cloud"] for name in "abc"}

    plain, one, above = cloud([]), cloud(["c"]), cloud(["top"])
    own = plain["a"] * math.sqrt(3)  # of its own edge server's noise alone
    assert one["a"] == one["b"] == pytest.approx(own / math.sqrt(2))
    assert one["c"] == pytest.approx(own)
    assert above == pytest.approx(dict.fromkeys("abc", own))


def test_nor_does_anything_in_what_one_of_an_upper_tier_sends():
    """a below mid-1, x and y below mid-2, both below an untrusted north: its average has the noise of a with the weight
    1/2, and those of x and y with 1/4. Where mid-2 lies they hide a no more; x and y have their own."""
    subnets = [placed("a", True, [9.0] * 2, [9.0] * 2, parent="mid-1")]
    subnets += [placed(name, True, [9.0] * 2, [9.0] * 2, parent="mid-2") for name in "xy"]
    above = Aggregator("north", False), *(Aggregator(name, False, parent="north") for name in ("mid-1", "mid-2"))
    tree = Topology("three tiers", tuple(subnets), aggregators=above)
    plain, lying = (
        rows(each, local_steps=2)
        for each in (tree, replace(tree, adversaries=Adversaries(SignFlip(), edges=("mid-2",))))
    )
    own = plain["a", 0, "cloud"] * math.sqrt((1 / 4 + 2 / 16) / (1 / 4))
    assert lying["a", 0, "cloud"] == lying["a", 0, "public"] == pytest.approx(own)
    assert lying["x", 0, "cloud"] == lying["y", 0, "cloud"] == pytest.approx(own)
    assert plain["x", 0, "cloud"] == pytest.approx(own * math.sqrt((1 / 16) / (1 / 4 + 2 / 16)))


def lying_tree(rng):
    """A random tree, some of whose devices lie, and edge servers where they may."""
    tree = random_tree(rng) if rng.random() < 0.8 else random_chain(rng)
    if rng.random() < 0.6:  # without secure sums, whose edge servers do not lie
        plain = {"secure-sum": "untrusted"}
        tree = replace(
            tree,
            subnets=tuple(replace(each, trust=plain.get(each.trust, each.trust)) for each in tree.subnets),
            aggregators=tuple(replace(each, trust=plain.get(each.trust, each.trust)) for each in tree.aggregators),
        )
    devices = [name for name in tree.device_names() if rng.random() < 0.3][: tree.devices - 1]
    edges = [name for name in tree.names["edges"] if rng.random() < 0.3]
    attack = SignFlip() if rng.random() < 0.5 else Scaling(factor=5.0)
    return tree, [Adversaries(attack, tuple(devices), tuple(each)) for each in (edges, ())]


def first_that_may_be(tree, choices, number):
    """A run with the first of these liars that are not refused, and these."""
    for adversaries in choices:
        lied = replace(tree, adversaries=adversaries if adversaries.devices or adversaries.edges else None)
        with contextlib.suppress(UserError):
            return prepared(lied, np.random.default_rng(number)), adversaries
    pytest.skip("a secure sum of too few honest devices")


@pytest.mark.parametrize("number", range(80))
def test_no_observer_learns_more_than_its_rows_say_whatever_the_liars_tell_it(number, monkeypatch):
    """Random trees, overheard (see `test_any_tree`). Each observer also has the noise of all lying devices, and all
    that lying edge servers received or added; of those in a device's own trusted chain only what they send."""
    tree, choices = lying_tree(np.random.default_rng(number))
    setup, adversaries = first_that_may_be(tree, choices, number)
    heard = overheard(setup, monkeypatch, intervals=2)
    views, allowed = Views(setup), {}
    for row in heard.rows:
        for device in devices_of(row):
            allowed[device, row.observer] = allowed.get((device, row.observer), 0.0) + (
                (row.sensitivity / row.noise_std) ** 2
            )
    liars, edges = set(adversaries.devices), set(adversaries.edges)
    assert not {views.name(device) for device, _ in allowed} & liars
    for device in {whose for whose, _ in heard.signals.values() if views.name(whose) not in liars}:
        outside = views.outside_chain(device)
        chain = set(views.path(device)) - set(outside.values())
        told = [vector for name in edges - chain for vector in heard.had_by(name)]
        known = liars | (edges - chain) | views.colluders(device)
        has = {observer: [(heard.had_by(node), set())] for observer, node in outside.items()}
        has["cloud"] = [([*heard.received.get("cloud", ()), *heard.models], set())]
        has["public"] = [(heard.models, set())]
        has["peer"] = []
        for node, own in views.peers(device):
            listens = [*heard.broadcasts.get(node, ()), *heard.models]
            has["peer"].append((heard.had_by(node) if node in own else listens, own))
        for observer, sides in has.items():
            for vectors, own in sides:
                learned = squared_distance(heard, [*vectors, *told], device, known | own)
                assert learned <= allowed.get((device, observer), 0.0) * (1 + 1e-5) + 1e-12, (device, observer)


@pytest.mark.parametrize("attack", [SignFlip(), Scaling(), Ipm(), Alie()])
@pytest.mark.parametrize("who", ["devices", "edges"])
def test_lies_arrive_wherever_nodes_are(attack, who):
    """Devices on their own hosts, and all in one computation: the same bits, and not those of an honest network."""
    liars = {"liars": ["a/2", "b/1", "b/2"]} if who == "devices" else {"edges": ["b"]}
    models = {}
    for kind, tree in (("honest", network()), ("lying", network(attack=attack, **liars))):
        setup = Experiment(
            tree, records, test_data=records("test"), method="hfl-dp", intervals=2, local_steps=4, aggregate_every=2,
            batch_size=None, sampling_rate=1.0, clip_norm=1.0, seed=5, faults={"device_dropout": 0.2}, noise_key="seed",
        ).prepare()  # fmt: skip
        names = [subnet.name for subnet in setup.topology.subnets]
        apart = {
            name: setup.blueprint.edge_server(at, setup.blueprint.device_group(at)) for at, name in enumerate(names)
        }
        together = lockstep_of(setup.blueprint, range(len(names)), setup.blueprint.local_engine())
        for edges in (InProcessNodes(apart), together):
            cloud = setup.cloud(edges)
            for interval in range(2):
                cloud.run_interval(cloud.plan(interval))
            models.setdefault(kind, []).append(cloud.model)
    assert torch.equal(*models["honest"])
    assert torch.equal(*models["lying"])
    assert not torch.equal(models["honest"][0], models["lying"][0])


def test_a_flipped_edge_server_is_minus_its_upload():
    """Two edge servers of equal weight without noise: the model moves by half of the difference of their uploads."""
    honest, lying = (
        prepared(tree, method="hfl", weights="uniform", seed=3) for tree in (network(), network(edges=["b"]))
    )
    moved = []
    for setup in (honest, lying):
        groups = {
            name: setup.blueprint.edge_server(at, setup.blueprint.device_group(at)) for at, name in enumerate("ab")
        }
        cloud = setup.cloud(InProcessNodes(groups))
        plan = cloud.plan(0)
        uploads = {name: groups[name].run_interval(cloud.model, part).update for name, part in plan.subnets.items()}
        cloud.run_interval(plan)
        moved.append(setup.initial - cloud.model)
    torch.testing.assert_close(moved[0], (uploads["a"] + uploads["b"]) / 2)
    torch.testing.assert_close(moved[1], (uploads["a"] - uploads["b"]) / 2)


BUFFERED = {"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"edge": 2}}}
CHAIN = Topology(
    "chain",
    tuple(placed(name, True, [9.0] * 2, [9.0] * 2, parent="top") for name in "ab"),
    aggregators=(Aggregator("top", True),),
)


@pytest.mark.parametrize(
    ("tree", "settings", "message"),
    [
        (network(edges=["a"], attack=LabelFlip()), {}, "edge servers have no records"),
        (network(edges=["a"]), {"method": {"extends": "h2fdp", "topology": "star"}}, "relays, pass messages on"),
        (network(True, liars=["a/1"], attack=Alie()), {}, "has no noise below a and is secret"),
        (network(liars=["a/1"], attack=Ipm()), {"method": {"extends": "hfl", "privacy": "central"}}, "is secret"),
        (network(edges=["a"]), {"method": {"extends": "hfl", "privacy": "central"}}, "sends up what has no noise yet"),
        (network("secure-sum", 3, ["a/1", "a/3"]), {"method": method(colluding=1)}, "besides 2 that lie, which leaves"),
        (network("secure-sum", edges=["a"]), {}, "secure sums hide single uploads from liars"),
        (network("secure-sum", liars=["a/1"], attack=Ipm()), {}, "secure sums hide single uploads from liars"),
        (replace(CHAIN, adversaries=Adversaries(SignFlip(), edges=("a",))), {}, "a sends up what has no noise yet"),
        (replace(CHAIN, adversaries=Adversaries(Alie(), edges=("top",))), {}, "expected one tier"),
        (network(liars=["a/1"]), {"method": BUFFERED, "calibration": "accounted"}, "expected schedule fixed"),
        (network(liars=["a/1"]), {"method": "h2fdp-adaptive"}, "expected schedule fixed"),
    ],
)
def test_what_liars_do_not_go_with_is_refused(tree, settings, message):
    with pytest.raises(UserError, match=message):
        prepared(tree, **{"method": "h2fdp"} | settings)


def test_liars_stay_where_they_are():
    from h2fdp.network.mobility import Mobility

    with pytest.raises(UserError, match=r"topology\.mobility: liars are counted where they are; expected no mobility"):
        prepared(replace(network(liars=["a/1"]), mobility=Mobility([(2, "a/2", "b")])), method="h2fdp")


def test_every_attack_is_one_of_a_topology_file():
    assert ATTACKS.names == ("label-flip", "sign-flip", "scaling", "alie", "ipm", "backdoor")
