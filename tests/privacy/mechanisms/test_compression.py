"""Compressed uploads: right in the mean, small on the wire, and accounted as what each device sends alone."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.experiment.file import read_experiment
from h2fdp.network import Aggregator
from h2fdp.privacy import Moment, Pipeline
from h2fdp.privacy.mechanisms.compression import ErrorFeedback, Quantise, RandK, TopK, stages_of
from h2fdp.privacy.mechanisms.stages import UpdateNoise
from h2fdp.privacy.places import Segment
from h2fdp.streams import Streams
from tests.networks import placed
from tests.protocol.test_any_tree import prepared

EIGHT_BITS = {"device": {"quantise": 8}}


def tree(trust="untrusted", of_seven="untrusted"):
    """Seven devices below an edge server, untrusted unless it is stated, two below one of this trust."""
    return Topology("q", tuple(placed(n, t, [9.0] * s, [9.0] * s) for n, t, s in (("a", of_seven, 7), ("b", trust, 2))))


def moment(nodes, slot=4, streams=Streams(5), memory=None):  # noqa: B008 - a frozen value
    given = {"streams": streams, "nodes": list(nodes), "levels": np.empty(0), "memory": memory}
    return Moment(segment=Segment(0, 0, slot), **given)


VECTOR = torch.tensor([1.0, -0.7, 0.31, 0.003, 0.0, -1.0, 0.98])


@pytest.mark.parametrize("width", [2, 4, 8])
def test_a_quantised_coordinate_has_the_mean_and_the_variance_of_its_closed_form(width):
    """Of 4,000 draws, those that are rounded up are within 5 standard errors: wrong once in 80,000 tests of 7 numbers.
    The variance (A / L)^2 p (1 - p) follows from p; that of 2/3 or 3/2 of the cell would be refused."""
    draws, levels = 4_000, 2 ** (width - 1) - 1
    sent = Quantise(width).encode(VECTOR.repeat(draws, 1), VECTOR, moment(f"d{number}" for number in range(draws)))
    exact = levels * VECTOR.double()
    up = sent.double() * levels - exact.floor()  # cells above the one below
    np.testing.assert_allclose(up, up.round(), atol=1e-4)  # whole cells alone are on the wire
    p = exact - exact.floor()
    error = 5 * (p * (1 - p) / draws).sqrt() + 1e-6
    assert ((up.mean(dim=0) - p).abs() <= error).all()
    assert (sent.double().mean(dim=0) - VECTOR.double()).abs().max() <= error.max() / levels
    closed = p * (1 - p) / levels**2
    np.testing.assert_allclose(sent.double().var(dim=0), closed, atol=float(5 * closed.max() / math.sqrt(draws)) + 1e-9)
    assert closed.max() <= 1 / levels**2 / 4 + 1e-12


def test_random_coordinates_are_right_in_the_mean_and_keep_sums():
    """Of 2,000 slots a coordinate is sent in half, within 5 standard errors; sums of halves are exact."""
    stage, sent, vectors = RandK(0.5), torch.zeros(8), torch.randn(2, 8, generator=torch.Generator().manual_seed(2))
    for slot in range(2_000):
        at = moment(["a", "b"], slot)
        one, other = stage.encode(vectors.clone(), vectors[0], at)
        assert torch.equal((one + other) / 2, stage.encode(vectors.mean(dim=0, keepdim=True), vectors[0], at)[0])
        assert int((one != 0).sum()) == 4
        sent += one
    error = 5 * math.sqrt((8 / 4 - 1) / 2_000)
    assert ((sent / 2_000 - vectors[0]).abs() <= error * vectors[0].abs()).all()


def test_anybody_who_knows_the_seed_knows_which_coordinates_are_random():
    one, other = (
        RandK(0.4).encode(VECTOR[None].clone(), VECTOR, moment(["a"], streams=Streams(5, secret=secret)))
        for secret in (b"one", b"other")
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("link", [{"top_k": 0.3}, {"rand_k": 0.3}], ids=str)
def test_what_error_feedback_leaves_out_comes_back(link):
    """All that was sent and what is left are all vectors together; after each upload as a loop over numbers has it."""
    (stage,) = stages_of({**link, "error_feedback": True})
    vectors = torch.randn(6, 2, 10, generator=torch.Generator().manual_seed(3))
    memory, residue, sent = torch.zeros(2, 10), np.zeros((2, 10)), torch.zeros(2, 10)
    for slot, each in enumerate(vectors):
        found = stage.encode(each.clone(), each[0], moment("ab", slot, memory=memory))
        whole = each.double().numpy() + residue
        kept = found.numpy() != 0
        np.testing.assert_allclose(found, np.where(kept, whole, 0), rtol=1e-5)
        if "top_k" in link:
            assert all(
                set(np.argsort(-abs(row))[:3]) == set(np.flatnonzero(at)) for row, at in zip(whole, kept, strict=True)
            )
        residue, sent = whole * ~kept, sent + found
        np.testing.assert_allclose(memory, residue, atol=1e-6)
    np.testing.assert_allclose(sent + memory, vectors.sum(dim=0), atol=1e-5)


@pytest.mark.parametrize("stage", [Quantise(3), TopK(0.3), RandK(0.3), ErrorFeedback(TopK(0.3))])
def test_what_a_device_sends_does_not_hang_on_other_rows(stage):
    vectors = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    names, memory = [f"a/{row}" for row in range(5)], vectors.flip(0)
    together = stage.encode(vectors.clone(), vectors[0], moment(names, memory=memory.clone()))
    for rows in ([3], [0], [4, 2]):
        at = moment([names[row] for row in rows], memory=memory[rows])
        part = stage.encode(vectors[rows].clone(), vectors[0], at)
        assert torch.equal(part, together[rows])


def bits_of(numbers, width):
    """Whole numbers, each as so many bits."""
    return [(int(number) >> place) & 1 for number in numbers for place in range(width)]


def numbers_of(bits, width):
    return [sum(bit << place for place, bit in enumerate(bits[at : at + width])) for at in range(0, len(bits), width)]


def test_a_message_is_as_long_as_when_it_is_packed_and_can_be_read_back():
    """Codes of levels and one scale; values and places of ten bits; values alone; all, where that is less."""
    vector = torch.randn(650, generator=torch.Generator().manual_seed(4))
    for width in (2, 3, 8):
        stage, levels = Quantise(width), 2 ** (width - 1) - 1
        sent = stage.encode(vector[None].clone(), vector, moment("a"))[0]
        scale = sent.abs().max() if width > 2 else vector.abs().max()
        packed = bits_of((sent / scale * levels).round() + levels, width)
        assert len(packed) + np.float32(scale).nbytes * 8 == stage.message_bits(32 * 650, 650)
        read = (torch.tensor(numbers_of(packed, width)) - levels) * (scale / levels)
        np.testing.assert_allclose(read, sent, rtol=1e-6)
    for stage, of_place in ((TopK(0.1), 10), (RandK(0.1), 0), (ErrorFeedback(TopK(0.1)), 10)):
        sent = stage.encode(vector[None].clone(), vector, moment("a", memory=torch.zeros(1, 650)))[0]
        places = np.flatnonzero(sent)
        packed = [*bits_of(sent[places].numpy().view(np.uint32), 32), *bits_of(places, of_place)]
        assert len(packed) == stage.message_bits(32 * 650, 650)
        assert not of_place or numbers_of(packed[32 * len(places) :], of_place) == places.tolist()
    assert Pipeline((UpdateNoise(), TopK(0.9))).message_bits(32 * 650, 650) == 32 * 650
    assert Pipeline(stages_of({"quantise": 32})).message_bits(32 * 650, 650) == 32 * 650


def ratios(setup):
    """Observer -> the least noise over sensitivity of a global release of `a`, and how many devices a row has."""
    cloud, least = setup.cloud(None), {}
    for row in cloud.releases(cloud.plan(0)):
        if (row.kind, row.edge) == ("global", "a"):
            least[row.observer] = min(least.get(row.observer, math.inf), row.noise_std / row.sensitivity)
    return least


def test_the_account_gives_no_credit_for_the_noise_of_other_devices():
    """Seven of equal weight: the cloud's ratio falls by the square root of 7, to that of the edge server, as all do."""
    equal = {"aggregate_every": 2, "sampling_rate": 0.5}
    plain, small = (ratios(prepared(tree(), **equal, **more)) for more in ({}, {"compression": EIGHT_BITS}))
    assert set(small.values()) == {plain["edge"]}
    assert plain["cloud"] == pytest.approx(small["cloud"] * math.sqrt(7))
    assert set(small) == set(plain)


def test_noise_is_that_of_the_run_without_compression():
    plain, small = (prepared(tree(), aggregate_every=2, **more) for more in ({}, {"compression": EIGHT_BITS}))
    one, other = (setup.cloud(None).plan(0).subnets["a"].noise_std for setup in (plain, small))
    np.testing.assert_array_equal(one, other)


def test_random_coordinates_of_all_alike_leave_the_whole_account_as_it_is():
    """Unless what is left out comes back: then an upload hangs on earlier ones."""
    settings = {"aggregate_every": 2, "sampling_rate": 0.5}
    plain, one = (rows_of(prepared(tree(), **settings, **more)) for more in ({}, link("device", rand_k=0.1)))
    assert plain == one
    fed_back = ratios(prepared(tree(), **settings, **link("device", rand_k=0.1, error_feedback=True)))
    assert set(fed_back.values()) == {ratios(prepared(tree(), **settings))["edge"]}


def link(where, **stages):
    return {"compression": {where: stages}}


def rows_of(setup):
    cloud = setup.cloud(None)
    return list(cloud.releases(cloud.plan(0)))


@pytest.mark.parametrize("trust", ["untrusted", "trusted", "secure-sum"])
def test_what_edge_servers_send_up_has_the_account_that_it_has_without_compression(trust):
    """In one tier: the cloud sees what follows from noisy sums, each of which it had in its account already."""
    plain, small = (
        rows_of(prepared(tree(trust), aggregate_every=2, **more)) for more in ({}, link("edge", quantise=4))
    )
    assert plain == small


def deep(*trusts):
    """Two edge servers with devices below one, and a third beside it."""
    low, upper = trusts
    subnets = [placed(n, low, [9.0] * 3, [9.0] * 3, parent=above) for n, above in (("a", "u"), ("b", "u"), ("c", None))]
    return Topology("deep", tuple(subnets), aggregators=(Aggregator("u", upper, parent=None),))


@pytest.mark.parametrize("low", ["untrusted", "trusted"])
def test_above_compressed_averages_no_other_subnet_hides_a_device(low):
    """Everybody above has the row of who sees the subnet's own average: that of a tree of one tier."""
    settings = {"aggregate_every": [1, 2], "local_steps": 2, "sampling_rate": 0.5}
    plain, small = (
        rows_of(prepared(deep(low, "untrusted"), **settings, **more)) for more in ({}, link("edge", top_k=0.1))
    )

    def ratio(rows, observer, edge):
        last = [row for row in rows if (row.observer, row.edge, row.kind) == (observer, edge, "global")]
        return min(row.noise_std / row.sensitivity for row in last)

    assert ratio(plain, "cloud", "a") > ratio(plain, "tier-2", "a") * 1.2  # two subnets hide more than one
    for edge in "ab":
        assert ratio(small, "cloud", edge) == ratio(small, "public", edge) == ratio(small, "tier-2", edge)
        assert ratio(small, "tier-2", edge) == pytest.approx(ratio(plain, "tier-2", edge))
    assert [row for row in plain if row.edge == "c"] == [row for row in small if row.edge == "c"]


def test_only_stages_after_the_noise_end_the_credit_for_others():
    assert Pipeline((Quantise(8), UpdateNoise())).keeps_sums
    assert Pipeline((Quantise(8),)).keeps_sums
    assert not Pipeline((UpdateNoise(), Quantise(8))).keeps_sums
    keep = {each for each in (Quantise(8), TopK(0.1), RandK(0.1), ErrorFeedback(RandK(0.1))) if each.keeps_sums}
    assert keep == {RandK(0.1)}


NO_LOCAL = {"aggregate_every": None, "aggregations_per_interval": 0}
STAR = {"method": {"extends": "h2fdp", "topology": "star"}, **NO_LOCAL}
CENTRAL = {"method": {"privacy": "central"}, **NO_LOCAL}


def test_devices_with_clocks_of_their_own_keep_no_sums():
    """Their masks are those of their own slots; quantised uploads claim nothing of others, and may go with buffers."""
    settings = {
        "method": {"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"edge": 1}}},
        "aggregate_every": 5,
        "calibration": "accounted",
    }
    with pytest.raises(UserError, match="expected top_k or quantise, error_feedback: true, or schedule fixed"):
        prepared(tree(), **settings, **link("device", rand_k=0.1))
    prepared(tree(), **settings, **link("device", quantise=8))


@pytest.mark.parametrize(
    ("network", "changes", "where", "text"),
    [
        (
            tree("trusted"),
            {},
            "device",
            "b adds the noise, and nothing says how far a record moves a compressed update",
        ),
        (tree("secure-sum"), {}, "device", "b holds secure sums, which are of whole vectors"),
        (
            tree(),
            CENTRAL,
            "device",
            "expected null, or top_k alone: others make updates longer, or remember",
        ),
        (tree(), CENTRAL, "edge", "expected null: edge servers send raw averages up"),
        (tree(), STAR, "edge", "a star has no edge servers"),
        (deep("trusted", "trusted"), {}, "edge", "u adds the noise to what a sends up, and nothing says how far"),
        (deep("untrusted", "secure-sum"), {}, "edge", "u holds secure sums, which are of whole vectors"),
        (
            replace(tree(), cloud_trust="secure-sum"),
            {},
            "edge",
            "cloud holds secure sums, which are of whole vectors",
        ),
        (tree(), {"control": {"enabled": True}}, "edge", "reckons with uploads as devices made them"),
        (tree(), {"control": {"enabled": True}}, "down", "reckons with uploads as devices made them"),
        (tree("secure-sum"), {}, "down", "b holds secure sums, which are of whole vectors"),
        (tree(), {"method": "feddyn", "calibration": "paper"}, "down", "found feddyn, whose devices compare models"),
    ],
)
def test_what_does_not_go_with_compressed_messages_is_refused(network, changes, where, text):
    with pytest.raises(UserError, match=text) as refused:
        prepared(network, **{"aggregate_every": 2, **link(where, quantise=8)} | changes)
    assert [each.key for each in refused.value.problems] == [f"compression.{where}"]


def test_the_largest_coordinates_of_a_clipped_update_are_no_longer_than_it():
    """So under central a device's update may be compressed before its noise: rows are those of whole updates."""
    plain, small = (
        rows_of(prepared(tree("trusted", "trusted"), **CENTRAL, **more)) for more in ({}, link("device", top_k=0.1))
    )
    assert plain == small
    vectors = torch.randn(50, 30, generator=torch.Generator().manual_seed(5))
    kept = TopK(0.1).encode(vectors.clone(), vectors[0], moment([]))
    assert (kept.norm(dim=1) <= vectors.norm(dim=1)).all()


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
def test_what_comes_down_changes_no_row(trust):
    """Models have all noise that they will have when they are compressed."""
    plain, small = (rows_of(prepared(tree(trust), **more)) for more in ({}, link("down", quantise=4)))
    assert plain == small


def test_no_part_of_a_model_is_left_out():
    with pytest.raises(UserError, match=r"what comes down is a model, of which no part may be left out"):
        prepared(tree(), **link("down", top_k=0.5))


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ({}, "expected one of quantise, top_k, rand_k, as {quantise: 8}; found nothing"),
        (
            {"quantise": 8, "top_k": 0.1},
            "expected one of quantise, top_k, rand_k, as {quantise: 8}; found quantise, top_k",
        ),
        ({"sketch": 3}, "found sketch"),
        (
            {"quantise": 17},
            "expected a whole number of bits from 2 to 16, or 32 for coordinates as they are as quantise",
        ),
        ({"quantise": True}, "found True"),
        ({"rand_k": 1.0}, "expected a number above 0 and below 1 as rand_k, found 1.0"),
        ({"top_k": 0.1, "error_feedback": 2}, "expected true or false as error_feedback, found 2"),
        ({"quantise": 4, "error_feedback": True}, "quantise is right in the mean"),
    ],
)
def test_a_link_that_means_nothing_is_refused_with_its_line(tmp_path, stages, text):
    path = tmp_path / "run.yaml"
    path.write_text(f"topology: {{edges: []}}\ndata: digits\ncompression:\n  edge: {json.dumps(stages)}\n")
    with pytest.raises(UserError) as refused:
        read_experiment(path)
    found = next(each for each in refused.value.problems if each.key == "compression.edge")
    assert text in found.text
    assert found.where == f"{path}:4"


SUMS = """
topology:
  cloud: {trust: CLOUD}
  edges: [{name: a, trust: EDGE, devices: {count: 4}}]
data: digits
method: {extends: h2fdp, privacy: {name: hierarchical, secure_sum: {colluding: 1, dropouts: 2}}}
training: {extends: paper, intervals: 2, local_steps: 2, aggregate_every: 2}
compression: {LINK: {top_k: 0.1}}
"""


@pytest.mark.parametrize(
    ("edge", "cloud", "link"),
    [("relay", "untrusted", "device"), ("relay", "untrusted", "edge"), ("untrusted", "secure-sum", "device")],
)
def test_one_sum_over_the_network_is_of_whole_vectors(tmp_path, edge, cloud, link):
    path = tmp_path / "run.yaml"
    path.write_text(SUMS.replace("CLOUD", cloud).replace("EDGE", edge).replace("LINK", link))
    with pytest.raises(UserError) as refused:
        read_experiment(path)
    sums = "cloud holds secure sums, which are of whole vectors and hide no compressed ones"
    assert str(refused.value).startswith(f"{path}:8: compression.{link}: {sums}; expected null")


@pytest.mark.parametrize(("key", "meant"), [("devices", "device"), ("edges", "edge")])
def test_a_link_in_the_plural_is_told_by_its_name_and_not_by_that_of_another_section(key, meant):
    with pytest.raises(UserError) as refused:
        Experiment(compression={key: {"quantise": 8}})
    assert f"compression.{key}: unknown" in str(refused.value)
    assert f"did you mean `{meant}`?" in str(refused.value)
