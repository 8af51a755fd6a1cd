"""Compressed uploads: unbiased, small on the wire, and accounted as what each device sends alone."""

import math

import numpy as np
import pytest
import torch

from h2fdp import Topology, UserError
from h2fdp.privacy import Moment, Pipeline
from h2fdp.privacy.mechanisms.pipeline import COMPRESSORS
from h2fdp.privacy.mechanisms.stages import Quantise, TopK, UpdateNoise
from h2fdp.streams import Streams
from tests.networks import placed
from tests.protocol.test_any_tree import prepared

EIGHT_BITS = {"device": {"quantise": 8}}


def tree(trust="untrusted"):
    """Seven devices below an untrusted edge server, two below one of this trust."""
    return Topology(
        "q", tuple(placed(n, t, [9.0] * s, [9.0] * s) for n, t, s in (("a", "untrusted", 7), ("b", trust, 2)))
    )


def moment(nodes):
    return Moment(streams=Streams(5), nodes=list(nodes), levels=np.empty(0), interval=0, first_slot=0, last_slot=4)


@pytest.mark.parametrize("width", [2, 4, 8])
def test_the_mean_of_a_quantised_vector_is_the_vector_and_its_variance_is_within_the_bound(width):
    """By 4,000 draws of each of six coordinates, at five standard errors: an error rate below 1e-5."""
    vector, draws = torch.tensor([1.0, -0.7, 0.31, 0.003, 0.0, -1.0]), 4_000
    rows = vector.repeat(draws, 1)
    sent = Quantise(width).encode(rows, vector, moment(f"d{number}" for number in range(draws))).double()
    cell = 1 / (2 ** (width - 1) - 1)  # of a vector whose largest coordinate is 1
    assert ((sent.mean(dim=0) - vector.double()).abs() <= 5 * cell / 2 / math.sqrt(draws)).all()
    assert (sent.var(dim=0) <= cell**2 / 4 * 1.1).all()
    np.testing.assert_allclose((sent / cell).round(), sent / cell, atol=1e-4)  # whole cells alone are on the wire


@pytest.mark.parametrize("stage", [Quantise(3), TopK(0.3)])
def test_what_a_device_sends_does_not_hang_on_other_rows(stage):
    vectors = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    names = [f"a/{row}" for row in range(5)]
    together = stage.encode(vectors.clone(), vectors[0], moment(names))
    for rows in ([3], [0], [4, 2]):
        part = stage.encode(vectors[rows].clone(), vectors[0], moment([names[row] for row in rows]))
        assert torch.equal(part, together[rows])


def test_a_message_is_as_long_as_its_stage_says():
    for stage, bits in ((Quantise(8), 8 * 650 + 32), (TopK(0.1), 65 * (32 + 10)), (TopK(0.9), 32 * 650)):
        assert Pipeline((UpdateNoise(), stage)).message_bits(32 * 650, 650) == bits


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


def test_only_stages_after_the_noise_end_the_credit_for_others():
    assert Pipeline((Quantise(8), UpdateNoise())).keeps_sums
    assert Pipeline((Quantise(8),)).keeps_sums
    assert not Pipeline((UpdateNoise(), Quantise(8))).keeps_sums
    assert not any(stage.keeps_sums for stage in COMPRESSORS.values())


@pytest.mark.parametrize(
    ("trust", "changes", "text"),
    [
        ("trusted", {}, "b adds the noise, and nothing says how far a record moves a compressed update"),
        ("secure-sum", {}, "b holds secure sums, which hide no device once its upload is compressed"),
        (
            "trusted",
            {"method": {"privacy": "central"}, "aggregate_every": None, "aggregations_per_interval": 0},
            "central",
        ),
    ],
)
def test_what_does_not_go_with_compressed_uploads_is_refused(trust, changes, text):
    with pytest.raises(UserError, match=text):
        prepared(tree(trust), **{"aggregate_every": 2, "compression": EIGHT_BITS} | changes)
