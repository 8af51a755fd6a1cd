"""What each observer sees of a device, by hand, and that its noise is the noise that the ledger says."""

from dataclasses import replace

import numpy as np
import pytest

from h2fdp.audit.instrumented_run import IntervalTranscript, SubnetTranscript, observations
from h2fdp.privacy import releases, vectors_of_observers
from h2fdp.privacy.views import Sensitivities
from tests.privacy.uploads import PLACES, uploads_of

RNG = np.random.default_rng(0)
N, STEP = 4, 0.1
NOISE = {"device": np.array([[1.0, 2.0], [3.0, 4.0]]), "edge": np.array([[1.5], [2.5]])}


def subnet(source, share=1.0, first=0, rows=(0, 1), weights=(0.25, 0.75)):
    """Two segments of 2 and 3 steps; averages, broadcasts and the upload follow from the uploads (no edge noise)."""
    noise, weights = NOISE[source], np.array(weights)
    uploads = RNG.normal(size=(2, len(rows), N))
    averages = np.einsum("p,spn->sn", weights, uploads)
    steps = np.repeat([[2], [3]], len(rows), axis=1)
    start = np.ones(N)
    return SubnetTranscript(
        PLACES[source],
        first,
        np.array(rows),
        np.tile(weights, (2, 1)),
        share,
        steps,
        noise[:, : len(rows)],
        np.stack([start, start - averages[0]]),
        uploads,
        averages.sum(axis=0),
    )


def interval(*subnets):
    return IntervalTranscript(STEP, subnets, sum(each.share * each.upload for each in subnets))


def seen(observer, transcript, device, spy=None, **options):
    return list(observations(observer, transcript, {device}, lambda _: spy, **options))


def test_an_edge_server_sees_each_upload_under_its_own_noise():
    part = subnet("device")
    first, last = seen("edge", interval(part), 1)
    np.testing.assert_array_equal(first.values, part.uploads[0, 1])
    assert (first.weight, first.noise_std, first.steps) == (1.0, 2.0, 2)
    assert (last.noise_std, last.steps) == (4.0, 3)


def test_an_edge_server_under_secure_aggregation_sees_averages_alone():
    part = replace(subnet("device"), place=PLACES["share"])
    first, last = seen("edge", interval(part), 1)
    np.testing.assert_allclose(first.values, 0.25 * part.uploads[0, 0] + 0.75 * part.uploads[0, 1])
    assert (first.weight, first.noise_std, first.steps) == (0.75, pytest.approx(np.hypot(0.25, 0.75 * 2)), 2)
    assert (last.weight, last.noise_std, last.steps) == (0.75, pytest.approx(np.hypot(0.25 * 3, 0.75 * 4)), 3)


def test_the_cloud_sees_the_sum_of_the_pieces():
    part = subnet("device", share=0.5)
    (only,) = seen("cloud", interval(part), 0)
    np.testing.assert_array_equal(only.values, part.upload)
    assert only.weight == 0.25
    assert only.noise_std == pytest.approx(np.sqrt(0.25**2 * (1 + 9) + 0.75**2 * (4 + 16)))
    assert only.steps == 5


def test_the_public_sees_the_global_model_under_the_noise_of_all_subnets():
    parts = subnet("device", 0.25), subnet("edge", 0.75, first=2)
    (only,) = seen("public", interval(*parts), 3)
    np.testing.assert_allclose(only.values, 0.25 * parts[0].upload + 0.75 * parts[1].upload)
    variance = 0.25**2 * (0.25**2 * 10 + 0.75**2 * 20) + 0.75**2 * (1.5**2 + 2.5**2)
    assert only.noise_std == pytest.approx(np.sqrt(variance))
    assert only.weight == 0.75 * 0.75


def test_a_peer_subtracts_what_it_sent_itself():
    """Of two devices, what is left is the other one's upload alone; another subnet stays on top of the global one."""
    parts = subnet("device", 0.5), subnet("edge", 0.5, first=2)
    first, last = seen("peer", interval(*parts), 0, spy=1)
    np.testing.assert_allclose(first.values, 0.25 * parts[0].uploads[0, 0])
    np.testing.assert_allclose(last.values, 0.5 * (0.25 * parts[0].uploads[1, 0] + parts[1].upload))
    assert (first.weight, first.noise_std, first.steps) == (0.25, pytest.approx(0.25 * 1.0), 2)
    assert last.weight == 0.125
    assert last.noise_std == pytest.approx(0.5 * np.sqrt((0.25 * 3.0) ** 2 + 1.5**2 + 2.5**2))


@pytest.mark.parametrize("source", ["device", "edge"])
@pytest.mark.parametrize("observer", ["edge", "peer"])
def test_single_releases_have_the_noise_to_sensitivity_of_the_ledger(source, observer):
    if (source, observer) == ("edge", "edge"):
        return
    part = subnet(source)
    for device, spy in ((0, 1), (1, 0)):
        for segment, each in enumerate(seen(observer, interval(part), device, spy)):
            uploads = uploads_of(source, part.weights[segment], [0.5, 0.5], part.noise_std[segment])
            reach = Sensitivities(
                2 * STEP * part.steps[segment], np.full(2, 0.5), part.steps[segment], "poisson", "batch"
            )
            rows = releases(uploads, "local", reach, (), vectors_of_observers(uploads.place), True)
            (row,) = [r for r in rows if r.observer == observer and r.devices in (f"{device + 1}", "1-2")]
            assert each.noise_std / (2 * STEP * each.steps * each.weight) == pytest.approx(
                row.noise_std / row.sensitivity
            )


def failing(source="device"):
    """Two segments of 2 steps: device 1 does one step and drops out before the second, which device 0 ends alone."""
    part = subnet(source)
    weights, steps = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([[2, 1], [2, 0]])
    uploads = part.uploads * (steps > 0)[:, :, None]
    averages = np.einsum("sp,spn->sn", weights, uploads)
    received = np.stack([np.ones(N), np.ones(N) - averages[0]])
    return replace(part, weights=weights, steps=steps, uploads=uploads, received=received, upload=averages.sum(axis=0))


def test_a_device_that_dropped_out_is_seen_as_far_as_it_came():
    transcript = interval(failing())
    (only,) = seen("edge", transcript, 1)
    assert (only.noise_std, only.steps) == (2.0, 1)
    (only,) = seen("peer", transcript, 1, spy=0)
    assert (only.weight, only.noise_std, only.steps) == (0.75, pytest.approx(0.75 * 2.0), 1)
    (only,) = seen("cloud", transcript, 1)
    assert (only.weight, only.steps) == (0.75, 1)
    assert only.noise_std == pytest.approx(np.sqrt(0.25**2 + (0.75 * 2) ** 2 + 3**2))


def test_a_device_whose_weight_grew_is_seen_with_the_mean_of_its_weights():
    (only,) = seen("cloud", interval(failing()), 0)
    assert (only.weight, only.steps) == ((0.25 * 2 + 1.0 * 2) / 4, 4)
    # The spy dropped out: it subtracts nothing from the last average.
    _, last = seen("peer", interval(failing()), 0, spy=1)
    assert (last.weight, last.noise_std, last.steps) == (1.0, 3.0, 2)
